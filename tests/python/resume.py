"""Resuming a training run gives the run that was not interrupted: resume.py TRAIN_PROGRAM"""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time

import torch
from safetensors.torch import load_file, save_file

import app

QUICK = ("--threads", 1, "--d-model", 16, "--heads", 2, "--layers", 2, "--dropout", 0.2, "--attention-dropout", 0.1,
         "--embedding-dropout", 0.1, "--warmup-steps", 5, "--batch-size", 16, "--symbols", 6, "--max-length", 10)

SMALL = ("--threads", 1, "--d-model", 16, "--heads", 2, "--layers", 1, "--batch-size", 8)


def losses(run):
    """The lines of metrics.jsonl without what depends on the clock."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("tokens_per_second", None)
    return lines


class Resume(app.AppTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def train(self, *arguments, code=0):
        result = self.run_app(*arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def assert_same_run(self, run, other, step):
        """Every loss, every file of the last checkpoint and the model are equal bit for bit."""
        self.assertEqual(losses(run), losses(other))
        for name in ("config.json", "model.safetensors", "training.safetensors", "training.json", "vocabulary.json"):
            ours, theirs = (folder / "checkpoints" / f"step-{step}" / name for folder in (run, other))
            self.assertEqual(ours.read_bytes(), theirs.read_bytes(), name)
        self.assertEqual((run / "model.safetensors").read_bytes(), (other / "model.safetensors").read_bytes())

    def text_files(self):
        draw = random.Random(1)
        for name, size in (("train.txt", 37), ("valid.txt", 5)):
            lines = []
            for _ in range(size):
                tokens = [draw.choice("abcde") for _ in range(draw.randint(2, 9))]
                lines.append(" ".join(tokens) + "\t" + " ".join(reversed(tokens)) + "\n")
            (self.folder / name).write_text("".join(lines))
        return ("--train", self.folder / "train.txt", "--valid", self.folder / "valid.txt")

    def test_stopped_anywhere_the_run_goes_on_to_the_same_bits(self):
        text = ("--threads", 1, "--d-model", 16, "--heads", 2, "--layers", 1, "--dropout", 0.2, "--batch-size", 16,
                *self.text_files())
        cases = ((QUICK, (1, 2, 9, 10, 19)),
                 ((*QUICK, "--task", "majority", "--schedule", "inverse_sqrt", "--norm", "post", "--accumulate", 3),
                  (7,)),
                 ((*QUICK[:-2], "--max-length", 20, "--task", "brackets", "--schedule", "linear", "--precision",
                   "bfloat16", "--clip-norm", 0), (13,)),
                 (text, (2, 3, 7)))
        # Every run, whole or in parts, is one of its own: they run side by side.
        runs = [(number, settings, stop) for number, (settings, stops) in enumerate(cases) for stop in (None, *stops)]

        def train(number, settings, stop):
            out = self.folder / f"{number}-{stop}"
            arguments = (*settings, "--steps", 20, "--eval-every", 10, "--out", out)
            if stop is None:
                return [self.run_app(*arguments)]
            results = [self.run_app(*arguments, "--stop-after", stop)]
            self.assertFalse((out / "model.safetensors").exists())
            return [*results, self.run_app("--resume", out)]

        for (number, settings, stop), results in zip(runs, app.side_by_side(lambda run: train(*run), runs)):
            whole, parts = self.folder / f"{number}-None", self.folder / f"{number}-{stop}"
            with self.subTest(settings=settings, stop=stop):
                for result in results:
                    self.assertEqual(result.returncode, 0, result.stderr)
                if stop is None:
                    self.assertEqual(len(losses(whole)), 22)
                else:
                    self.assert_same_run(whole, parts, 20)

    def test_in_many_parts_by_signals(self):
        """Each part is stopped after some evaluations, at whatever step it has come to; the run would go on for hours,
        so that it never ends before its signal."""
        settings, draw = (*QUICK, "--steps", 1000000, "--eval-every", 5), random.Random(5)
        whole, parts = self.folder / "whole", self.folder / "parts"
        arguments, step = (*settings, "--out", parts), 0
        for part, evaluations in enumerate((1, 0, 2, 0, 1, 3)):
            number = (signal.SIGINT, signal.SIGTERM)[part % 2]
            with subprocess.Popen([self.program, *map(str, arguments)], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True) as process:
                waits = ["device:"] + ["evaluation after step"] * evaluations
                while waits:
                    line = process.stderr.readline()
                    self.assertNotEqual(line, "", "the program ended")
                    if line.startswith(waits[0]):
                        waits.pop(0)
                time.sleep(draw.uniform(0, 0.03))  # so that it comes in steps, evaluations and saves
                process.send_signal(number)
                errors = process.stderr.read()
                process.wait()
            self.assertEqual(process.returncode, 128 + number, errors)
            said = re.fullmatch(rf"interrupted after step (\d+); go on with: train --resume {parts}",
                                errors.splitlines()[-1])
            self.assertGreaterEqual(int(said[1]), step + bool(evaluations))
            step = int(said[1])
            arguments = ("--resume", parts)
        last = step + 7
        self.train(*settings, "--out", whole, "--stop-after", last)
        self.train("--resume", parts, "--stop-after", last)
        self.assertEqual(losses(whole), losses(parts))
        for run in (whole, parts):  # which makes a model of each
            self.train("--resume", run, "--steps", last)
        self.assert_same_run(whole, parts, last)

    def test_the_comparison_can_fail(self):
        """Without the moments, or with another random generator, the resumed run is another one."""
        whole = self.folder / "whole"
        self.train(*QUICK, "--steps", 12, "--out", whole, "--eval-every", 12)
        half = self.folder / "half"
        self.train(*QUICK, "--steps", 12, "--out", half, "--eval-every", 12, "--stop-after", 6)
        spoils = ("nothing", "exp_avg", "exp_avg_sq", "step", "generator.cpu", "examples", "horizon")
        for spoiled in spoils:
            run = self.folder / spoiled
            shutil.copytree(half, run)
            checkpoint = run / "checkpoints" / "step-6"
            tensors = load_file(checkpoint / "training.safetensors")
            state = json.loads((checkpoint / "training.json").read_text())
            for name, tensor in tensors.items():
                if name == spoiled == "generator.cpu":
                    tensors[name] = torch.Generator().manual_seed(5).get_state()
                elif name.startswith(spoiled + "."):
                    tensors[name] = torch.zeros_like(tensor)
            if spoiled == "examples":
                state["examples"] += 1
            if spoiled == "horizon":
                state["schedule_steps"] = 11
            save_file(tensors, checkpoint / "training.safetensors")
            (checkpoint / "training.json").write_text(json.dumps(state))
        results = self.run_apps(("--resume", self.folder / spoiled, *(("--steps", 12) if spoiled == "horizon" else ()))
                                for spoiled in spoils)
        for spoiled, result in zip(spoils, results):
            self.assertEqual(result.returncode, 0, result.stderr)
            same = load_file(self.folder / spoiled / "model.safetensors")["head.weight"].equal(
                load_file(whole / "model.safetensors")["head.weight"])
            # A horizon of 11 moves to 12, which is what the whole run has.
            self.assertEqual(same, spoiled in ("nothing", "horizon"), spoiled)

    def test_python_reads_a_checkpoint_without_us(self):
        run = self.folder / "run"
        self.train(*QUICK, "--steps", 4, "--eval-every", 4, "--out", run)
        checkpoint = run / "checkpoints" / "step-4"
        model, training = load_file(checkpoint / "model.safetensors"), load_file(checkpoint / "training.safetensors")
        state = json.loads((checkpoint / "training.json").read_text())
        self.assertEqual((state["step"], state["examples"], state["schedule_steps"]), (4, 64, 4))
        self.assertEqual(state["options"], json.loads((run / "run.json").read_text()))
        self.assertEqual(state["options"]["dropout"], 0.2)
        for name, tensor in model.items():
            self.assertEqual(training[f"exp_avg.{name}"].shape, tensor.shape)
            self.assertEqual(training[f"step.{name}"].item(), 4)
        torch.Generator().set_state(training["generator.cpu"])
        # Python's own AdamW goes on with it.
        parameters = {name: torch.nn.Parameter(tensor) for name, tensor in model.items()}
        optimizer = torch.optim.AdamW(parameters.values())
        optimizer.load_state_dict({"param_groups": optimizer.state_dict()["param_groups"], "state": {
            index: {part: training[f"{part}.{name}"] for part in ("exp_avg", "exp_avg_sq", "step")}
            for index, name in enumerate(parameters)}})
        sum(parameter.sum() for parameter in parameters.values()).backward()
        optimizer.step()

    def test_another_model_or_task_is_refused_with_both_values(self):
        run = self.folder / "run"
        self.train(*QUICK, "--steps", 6, "--eval-every", 6, "--stop-after", 3, "--out", run)
        before = (run / "checkpoints" / "step-3" / "model.safetensors").read_bytes()
        cases = (("--d-model", 32, "--d-model is 32, the checkpoint has 16"),
                 ("--task", "copy", "--task is copy, the checkpoint has sort"),
                 ("--dropout", 0.3, "--dropout is 0.3, the checkpoint has 0.2"),
                 ("--norm", "post", "--norm is post, the checkpoint has pre"),
                 ("--max-length", 12, "--max-length is 12, the checkpoint has 10"),
                 ("--seed", 2, "--seed is 2, the checkpoint has 1"),
                 ("--final-norm", "true", "--final-norm is true, the checkpoint has unset"),
                 ("--steps", 2, "--steps 2 is less than the 3 that the run has done"),
                 ("--config", "x.json", "--resume excludes --config"))
        self.check_errors(*((2 if option == "--config" else 1, message, ("--resume", run, option, value))
                            for option, value, message in cases))
        self.check_error(1, "--attention-bias is true, the checkpoint has unset", "--resume", run, "--attention-bias")
        self.check_error(1, "train.txt, the checkpoint has unset", "--resume", run, *self.text_files())
        self.assertEqual((run / "checkpoints" / "step-3" / "model.safetensors").read_bytes(), before)
        # The same values, a new number of steps, threads and the device are no other run.
        result = self.train("--resume", run, "--d-model", 16, "--dropout", 0.20, "--steps", 8, "--device", "cpu",
                            "--threads", 2,
                            "--keep", 9)
        self.assertEqual(result.stderr.splitlines()[0], "note: the schedule's horizon moves from 6 to 8 steps")
        self.assertEqual(losses(run)[-1]["step"], 8)
        result = self.train("--resume", run, "--steps", 9, "--lr", 0.5)
        self.assertIn("note: --lr is 0.5, the checkpoint has 0.002\n", result.stderr)

    def test_other_data_is_refused_wherever_it_is(self):
        text, run = self.text_files(), self.folder / "run"
        self.train(*QUICK[:12], *text, "--steps", 6, "--eval-every", 6, "--stop-after", 3, "--out", run)
        moved = self.folder / "moved.txt"
        (self.folder / "train.txt").rename(moved)
        self.check_error(1, "no such file", "--resume", run)
        original = moved.read_text()
        moved.write_text(original.replace("a", "b", 1))
        self.check_error(1, f"{moved}: these are not the data of the checkpoint", "--resume", run, "--train", moved)
        other = self.folder / "other.txt"
        other.write_text((self.folder / "valid.txt").read_text().replace("a", "b", 1))
        moved.write_text(original)
        self.check_error(1, f"{other}: these are not the data of the checkpoint", "--resume", run, "--train", moved,
                         "--valid", other)
        moved.write_bytes(original.replace("\n", "\r\n").encode())  # the same examples
        self.train("--resume", run, "--train", moved)

    def test_broken_checkpoints_are_named_and_change_nothing(self):
        run = self.folder / "run"
        self.train(*QUICK, "--steps", 6, "--eval-every", 6, "--stop-after", 3, "--out", run)
        checkpoint = run / "checkpoints" / "step-3"
        before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        for name in ("training.json", "training.safetensors", "model.safetensors", "config.json"):
            whole = (checkpoint / name).read_bytes()
            (checkpoint / name).write_bytes(whole[:len(whole) // 2])
            self.check_error(1, name, "--resume", run)
            (checkpoint / name).unlink()
            self.check_error(1, name, "--resume", run)
            (checkpoint / name).write_bytes(whole)
        self.check_error(1, "--stop-after 3 is not after the 3 steps", "--resume", run, "--stop-after", 3)
        self.assertEqual({path: path.read_bytes() for path in run.rglob("*") if path.is_file()}, before)
        for folder, message in ((self.folder / "none", "no such folder"), (self.folder, "holds no checkpoint"),
                                (checkpoint / "config.json", "is not a folder")):
            self.check_error(1, message, "--resume", folder)
        away = self.folder / "away"
        shutil.copytree(checkpoint, away)
        self.check_error(1, "is in no run's folder: give --out", "--resume", away)
        self.train("--resume", away, "--out", self.folder / "elsewhere")
        self.train("--resume", run)
        self.assertEqual((run / "model.safetensors").read_bytes(),
                         (self.folder / "elsewhere" / "model.safetensors").read_bytes())

    def test_going_back_to_an_older_checkpoint(self):
        run, branch = self.folder / "run", self.folder / "branch"
        self.train(*QUICK, "--steps", 12, "--eval-every", 4, "--out", run)
        expected = losses(run)
        self.train("--resume", run / "checkpoints" / "step-4", "--out", branch)
        self.assertEqual(losses(branch), expected)
        self.assert_same_run(run, branch, 12)
        self.check_error(1, "has come to step 12; to go on after step 4 instead, take another folder", "--resume",
                         run / "checkpoints" / "step-4", "--quiet")
        self.assertEqual(losses(run), expected)

    def test_a_checkpoint_that_is_removed_meanwhile(self):
        """By a run that goes on: here while a branch of it waits for its data."""
        text, run, branch, pipe = self.text_files(), self.folder / "run", self.folder / "branch", self.folder / "pipe"
        self.train(*SMALL, *text, "--steps", 3, "--eval-every", 1, "--out", run)
        os.mkfifo(pipe)
        with subprocess.Popen([self.program, "--resume", run, "--out", branch, "--train", pipe, "--quiet"],
                              stdout=subprocess.DEVNULL) as process:
            with open(pipe, "w") as data:  # once the program reads it
                shutil.rmtree(run / "checkpoints" / "step-3")
                data.write((self.folder / "train.txt").read_text())
        self.assertEqual(process.returncode, 0)
        self.assertEqual([path.name for path in (branch / "checkpoints").iterdir()], ["step-3"])
        self.assertEqual(losses(branch), losses(run))

    def test_a_path_means_what_the_system_makes_of_it(self):
        self.text_files()
        (self.folder / "far" / "inside").mkdir(parents=True)
        here = self.folder / "here"
        precious = here / "run" / "checkpoints" / "step-1" / "precious"
        precious.parent.mkdir(parents=True)
        precious.write_text("keep me")
        (here / "link").symlink_to(self.folder / "far" / "inside")
        for name in ("train.txt", "valid.txt"):
            (self.folder / name).rename(self.folder / "far" / name)
            (here / name).write_text("x y\tx y\n")
        across = "here/link/.."
        self.assertEqual(self.run_app(*SMALL, "--train", across + "/train.txt", "--valid", across + "/valid.txt",
                                      "--steps", 2, "--stop-after", 1, "--eval-every", 1, "--out", across + "/run",
                                      "--export", across + "/m.ts", cwd=self.folder).returncode, 0)
        self.train("--resume", f"{self.folder}/{across}/run")  # from elsewhere
        self.assertEqual({path for path in here.rglob("*") if path.is_file()},
                         {precious, here / "train.txt", here / "valid.txt"})
        self.assertTrue((self.folder / "far" / "m.ts").exists())
        self.assertEqual({path.name for path in (self.folder / "far" / "run" / "checkpoints").iterdir()},
                         {"step-1", "step-2"})

    def test_nothing_of_one_run_is_written_over_by_another(self):
        run, text = self.folder / "run", self.text_files()
        arguments = (*SMALL, *text, "--steps", 2, "--eval-every", 1)
        outside = self.folder / "outside.ts"
        self.train(*arguments, "--out", run, "--export", run / "model.ts")
        self.train(*arguments, "--out", self.folder / "other", "--export", outside)
        self.assertEqual(json.loads((run / "run.json").read_text())["export"], "{out}/model.ts")
        files = [outside, *(path for path in run.rglob("*") if path.is_file())]
        before = [(path.stat().st_ino, path.read_bytes()) for path in files]
        cases = [(("--resume", run / "checkpoints" / "step-1"), "model.ts"),
                 (("--config", run / "run.json"), "model.ts"),
                 (("--resume", self.folder / "other" / "checkpoints" / "step-1"), "outside.ts"),
                 (("--config", self.folder / "other" / "run.json"), "outside.ts")]
        for number, (source, script) in enumerate(cases):
            new = self.folder / f"new{number}"
            result = self.train(*source, "--out", new)
            self.assertTrue((new / script).exists(), source)
            note = f"note: --export {outside} stays as it is; this run's is {new / script}\n"
            self.assertEqual(note in result.stderr, script == "outside.ts")
        self.assertEqual([(path.stat().st_ino, path.read_bytes()) for path in files], before)

        hard, soft = self.folder / "hard.ts", self.folder / "soft.ts"
        hard.hardlink_to(text[1])
        soft.symlink_to(text[3])
        config = self.folder / "config.ts"
        config.write_text("{}")
        new = self.folder / "new"
        self.check_errors(*((1, message, (*arguments, *more)) for more, message in (
            (("--export", text[1]), "is the file of --train and would replace it"),
            (("--export", hard), "is the file of --train and would replace it"),
            (("--export", soft), "is the file of --valid and would replace it"),
            (("--config", config, "--export", config), "is the file of --config and would replace it"),
            (("--out", new, "--export", new), "is a file, --out"),
            (("--out", new / "run", "--export", new), "is a file, --out"),
            (("--out", new, "--export", new / "checkpoints" / "m.ts"), "is in a folder of checkpoints"),
            (("--out", new, "--export", new / "deep" / "m.ts"), "there is no folder"),
            (("--out", new, "--export", run / "model.ts"), "is in the folder of another run"),
            (("--export", run / "checkpoints" / "step-2" / "m.ts"), "is in a folder of checkpoints"),
            (("--export", run / "model.safetensors"), "is in the folder of another run"),
            (("--export", "{out}/m.ts"), "{out}/m.ts goes with --out"),
            (("--out", run / "checkpoints"), "is a place of checkpoints"),
            (("--out", run / "checkpoints" / "step-2" / "new"), "is a place of checkpoints"))))
        self.check_error(1, "outside.ts is there already: give it on the command line to replace it, or --out", "--config",
                         self.folder / "other" / "run.json")
        self.assertFalse(new.exists())
        self.assertEqual([(path.stat().st_ino, path.read_bytes()) for path in files], before)

        moved = run.rename(self.folder / "moved")
        (moved / "model.ts").unlink()
        self.train("--resume", moved)
        self.assertTrue((moved / "model.ts").exists())

    def test_the_hint_is_for_a_shell(self):
        run = self.folder / "it's a\nrun"
        result = self.train(*SMALL, *self.text_files(), "--steps", 2, "--stop-after", 1, "--out", run)
        hint = result.stderr.splitlines()[-1].partition("go on with: ")[2].replace("train", "echo -n", 1)
        self.assertEqual(subprocess.run(["bash", "-c", hint], capture_output=True, text=True).stdout, f"--resume {run}")

    def test_a_run_that_is_over_only_reports(self):
        run = self.folder / "run"
        first = self.train(*QUICK, "--steps", 4, "--eval-every", 4, "--out", run).stdout
        again = self.train("--resume", run).stdout
        self.assertEqual(first, again)
        longer = self.train("--resume", run, "--steps", 6, "--stop-after", 5)
        self.assertIn("note: the schedule's horizon moves", longer.stderr)
        self.assertFalse((run / "model.safetensors").exists())  # that of step 4
        self.train("--resume", run)
        self.assertTrue((run / "model.safetensors").exists())

    def test_a_folder_that_holds_a_run_is_not_written_over(self):
        run = self.folder / "run"
        self.train(*QUICK, "--steps", 4, "--eval-every", 4, "--out", run)
        self.check_error(1, "holds a run that came to step 4: resume it or take another folder", *QUICK, "--out", run)
        for name in ("config.json", "metrics.jsonl", "vocabulary.json"):
            other = self.folder / name.replace(".", "-")
            other.mkdir()
            (other / name).write_text("precious")
            self.check_error(1, f"holds a {name} already: take another folder", *QUICK, "--out", other)
            self.assertEqual((other / name).read_text(), "precious")

    def test_a_configuration_file_and_the_effective_one(self):
        config = self.folder / "config.json"
        config.write_text(json.dumps({"task": "copy", "d-model": 16, "heads": 2, "layers": 1, "steps": 4,
                                      "attention-bias": True, "embedding-norm": False, "lr": 1e-3}))
        run, again = self.folder / "run", self.folder / "again"
        self.train("--config", config, "--threads", 1, "--heads", 4, "--out", run)
        effective = json.loads((run / "run.json").read_text())
        self.assertEqual({name: effective[name] for name in ("task", "d-model", "heads", "lr", "steps", "eval-every")},
                         {"task": "copy", "d-model": 16, "heads": 4, "lr": 0.001, "steps": 4, "eval-every": 1})
        self.assertEqual((effective["attention-bias"], "embedding-norm" in effective), (True, False))
        self.train("--config", run / "run.json", "--out", again)
        self.assertEqual(json.loads((again / "run.json").read_text()), effective)
        self.assertEqual(losses(run), losses(again))
        cases = (("{", "not valid JSON at byte 2"), ("[]", "is not a JSON object of options"),
                 ('{"d_model": 16}', 'there is no option "d_model"'), ('{"out": "x"}', 'no option "out"'),
                 ('{"resume": "x"}', 'no option "resume"'), ('{"steps": 0}', "--steps"),
                 ('{"steps": "many"}', "many"), ('{"seed": 1e20}', "--seed"),
                 ('{"lr": ' + "[" * 100000 + "]" * 100000 + "}",
                 "JSON nested more than 100 deep"), ('{"steps": [1]}', "steps is [1]"),
                 ('{"norm": "middle"}', '"middle" is not one of pre|post'),
                 ('{"attention-bias": 1}', "attention-bias is 1, not true or false"),
                 ('{"heads": 5, "d-model": 16}', "not divisible"))
        wrong = [self.folder / f"wrong{number}.json" for number in range(len(cases))]
        for path, (text, _) in zip(wrong, cases):
            path.write_text(text)
        self.check_errors(*((1, message, ("--config", path)) for path, (_, message) in zip(wrong, cases)))
        self.check_error(1, "no such file", "--config", self.folder / "none.json")


if __name__ == "__main__":
    app.main(Resume)
