"""The training app, run as its users run it: train_app.py TRAIN_PROGRAM"""

import fcntl
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios

from safetensors.torch import load_file

import app
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "apps"))
import lesson

QUICK = ("--steps", 40, "--threads", 1, "--d-model", 16, "--heads", 2, "--layers", 1)


def without_rates(log):
    return re.sub(r"\s+[\d.]+ steps/s.*", "", log)


class Train(app.AppTest):
    def test_wrong_command_lines_exit_2(self):
        cases = ((("--bogus",), "--bogus"), (("--task", "add"), '"add" is not one of copy|reverse'),
                 (("--steps", 0), "0"), (("--steps", "many"), "many is not a whole number of 64 bits"),
                 (("--steps", 0), "0 is not a positive number"), (("--steps", "1e3"), "1e3 is not a whole number"),
                 (("--seed", 2**64), "18446744073709551616 is not a whole number from 0 of 64 bits"),
                 (("--lr", -1), "-1 is not a positive number"), (("--lr", "nan"), "nan is not a finite number"),
                 (("--norm-eps", "1e400"), "1e400 is not a finite number"),
                 (("--lr", "1e-310"), "1e-310 is nearer to 0 than"), (("--lr", "1e-400"), "1e-400 is nearer to 0 than"),
                 (("--weight-decay", "-1e-310"), "nearer to 0"), (("--clip-norm", "5e-324"), "5e-324 is nearer to 0"),
                 (("--lr", "0x10"), "0x10 is not a finite number"), (("--steps", "0x10"), "0x10 is not a whole number"),
                 (("--dropout", "inf"), "inf is not a finite number"), (("--lr", "+-1"), "+-1 is not a finite number"),
                 (("--target", 0), "0 is not a positive number"), (("--target", "nan"), "nan is not a finite number"),
                 (("--clip-norm", -1), "-1 is negative"),
                 (("--out", ""), "an empty path"), (("--resume", ""), "an empty path"),
                 (("--batch-size", 10**30), "is not a whole number of 64 bits"),
                 (("--device", "gpu"), "gpu is not auto, cpu, cuda or cuda:N"),
                 (("--norm", "middle"), '"middle" is not one of pre|post'), (("extra",), "extra"))
        self.check_errors(*((2, message, arguments) for arguments, message in cases))

    def test_impossible_values_exit_1_before_any_work(self):
        with tempfile.TemporaryDirectory() as folder:
            blocked = pathlib.Path(folder) / "file"
            blocked.write_text("keep me")
            cases = (
                (("--heads", 10), "d_model 64 is not divisible by num_heads 10"),
                (("--dropout", 1), "dropout is 1, not in [0, 1)"),
                (("--task", "majority", "--tie-head"), "--tie-head needs data whose answers are its tokens, in the same "
                 "order; these have 10 tokens and 2 answers"),
                (("--symbols", 1), "the number of symbols is 1, fewer than 2"),
                (("--min-length", 9, "--max-length", 8), "the longest length 8 is less than the shortest, 9"),
                (("--min-length", 0), "the shortest length is 0, less than 1"),
                (("--symbols", 2, "--max-length", 8), "there are only 496 sequences"),
                (("--task", "majority", "--min-length", 8, "--max-length", 8), "majority needs an odd length"),
                (("--max-positions", 8), "--max-positions 8 is less than the longest sequence, 16"),
                (("--max-positions", "010"), "--max-positions 10 is less than the longest sequence, 16"),
                (("--max-positions", "+8"), "--max-positions 8 is less than the longest sequence, 16"),
                (("--out", blocked), "cannot be made a folder: Not a directory"),
                (("--stop-after", 5), "--stop-after goes with --out"),
                (("--export", folder), "is a folder, not a file"),
                (("--export", "/dev/null"), "/dev/null is not a regular file"),
                (("--out", folder + "/a", "--export", folder + "/b/model.ts"), "there is no folder"),
                (("--out", folder, "--export", folder + "/metrics.jsonl"), "is in the folder of the run"),
                (("--task", "brackets", "--symbols", 5), "the number of symbols is 5; brackets needs an even one"),
            )
            self.check_errors(*((1, message, arguments) for arguments, message in cases))
            self.assertEqual(blocked.read_text(), "keep me")
            files = []
            for number, (text, message) in enumerate((
                    ('{"lr": 1e-310}', "--lr: 1e-310 is nearer to 0 than"), ('{"lr": 1e400}', '"lr" is out of range'),
                    ('{"clip-norm": "1e-310"}', "--clip-norm: 1e-310 is nearer to 0 than"),
                    ('{"steps": "0x10"}', "--steps: 0x10 is not a whole number"),
                    ('{"lr": 0.1, "steps": 3, "lr": 0.2}', '"lr" stands twice'),
                    ('{"lr": [', "not valid JSON at byte 9"),
                    ("[" * 200, "JSON nested more than 100 deep"), ("[1]", "is not a JSON object of options"))):
                files.append((pathlib.Path(folder) / f"{number}.json", message))
                files[-1][0].write_text(text)
            self.check_errors(*((1, message, ("--config", path)) for path, message in files),
                              *((1, f"train: {path}", ("--config", path)) for path, _ in files))

    def test_cuda_where_there_is_none_is_one_clear_error(self):
        if os.path.exists("/dev/nvidia0"):
            self.skipTest("this machine has a CUDA device")
        self.check_errors(*((1, "no CUDA device", ("--device", device)) for device in ("cuda", "cuda:1")))
        self.assertIn("device: cpu (picked by auto)", self.run_app(*QUICK).stderr)

    def test_help_names_every_task(self):
        result = self.run_app("--help")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(dict(re.findall(r"\n  (\w+) .*\[(\d+)\]", result.stdout)),
                         {"copy": "500", "reverse": "2000", "sort": "1200", "histogram": "1500", "majority": "1000",
                          "parity": "3000", "brackets": "3000"})
        with subprocess.Popen([self.program, *map(str, QUICK[2:])], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True) as process:
            while not (line := process.stderr.readline()).startswith("training: "):
                self.assertNotEqual(line, "", "the program ended")
            process.kill()  # nothing of what it learns is looked at
        self.assertIn("training: 1200 steps", line)

    def test_a_seed_determines_the_run(self):
        first, again, other = self.run_apps((*QUICK, "--dropout", 0.1, "--seed", seed) for seed in (7, 7, 8))
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertEqual(first.stdout, again.stdout)
        self.assertEqual(without_rates(first.stderr), without_rates(again.stderr))
        self.assertNotEqual(without_rates(first.stderr), without_rates(other.stderr))

    def test_logs_hold_no_control_characters(self):
        result, longer = self.run_apps((QUICK, (*QUICK[2:], "--steps", 59)))
        self.assertEqual(result.returncode, 0)
        for text in (result.stdout, result.stderr):
            self.assertNotRegex(text, r"[\r\x1b]")
        self.assertEqual(len(re.findall(r"^step \d+/40  loss ", result.stderr, re.M)), 20)
        self.assertEqual(len(re.findall("^step ", longer.stderr, re.M)), 20)

    def on_terminal(self, columns, name):
        """What a terminal of that width and kind is sent."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
        with subprocess.Popen([self.program, *map(str, QUICK)], stdout=subprocess.DEVNULL, stderr=theirs,
                              env=os.environ | {"TERM": name}) as process:
            os.close(theirs)
            shown = b""
            while True:
                try:
                    chunk = os.read(ours, 4096)
                except OSError:
                    break
                if not chunk:
                    break
                shown += chunk
        os.close(ours)
        self.assertEqual(process.returncode, 0)
        return shown.decode()

    def test_a_terminal_gets_a_bar_that_fits(self):
        rates = r"[\d.]+ steps/s(  \d+ tokens/s)?  0 s left\r\n"
        self.assertRegex(self.on_terminal(200, "xterm"),
                         r"\r\x1b\[K40/40  \[={20}\]  loss \d.*  accuracy .* %  lr .*  " + rates)
        for columns in (80, 60, 40, 20, 10):
            shown = self.on_terminal(columns, "xterm")
            last = re.findall(r"\r\x1b\[K(40/40.*)\r\n", shown)[-1]
            self.assertLess(len(last), columns)
            self.assertEqual(last.endswith("0 s left"), columns > 15, last)
            self.assertEqual("steps/s" in last, columns >= 40, last)
            self.assertEqual("[==========]" in last, columns == 80, last)
        plain = self.on_terminal(80, "dumb")
        self.assertNotIn("\x1b", plain)
        self.assertRegex(plain, r"\nstep 40/40  loss .*  lr .*" + rates)

    def test_every_task_runs_and_keeps_its_model(self):
        with tempfile.TemporaryDirectory() as folder:
            outs = {task: pathlib.Path(folder) / "new" / task
                    for task in ("copy", "reverse", "sort", "histogram", "majority", "parity", "brackets")}
            results = self.run_apps((*QUICK, "--eval-every", 40, "--task", task, "--out", outs[task]) for task in outs)
            for (task, out), result in zip(outs.items(), results):
                with self.subTest(task=task):
                    self.assertEqual(result.returncode, 0, result.stderr)
                    self.assertRegex(result.stdout, rf"^{task}: [\d.]+ % of 10,000 unseen sequences exact \(chance: ")
                    self.assertEqual(sorted(path.name for path in out.iterdir()),
                                     ["checkpoints", "config.json", "example.safetensors", "metrics.jsonl",
                                      "model.safetensors", "run.json", "vocabulary.json"])
                    config = json.loads((out / "config.json").read_text())
                    self.assertEqual((config["model_type"], config["d_model"], config["num_heads"]),
                                     ("prenorm", 16, 2))
                    lesson.EncoderModel(config).load_state_dict(load_file(out / "model.safetensors"))

    def test_a_diverging_run_stops_with_the_step(self):
        result = self.run_app("--lr", 1e6, "--steps", 60, "--threads", 1)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr.splitlines()[-1],
                         r"^train: the (loss|norm of the gradient) is (nan|inf) at step \d+: lower --lr")
        decayed = self.run_app(*QUICK, "--weight-decay", 1e300).stderr.splitlines()[-1]
        self.assertIn("lower --lr (0.002), --weight-decay (1e+300) or --clip-norm (1)", decayed)

    def test_the_warm_up_fits_the_steps(self):
        short, long = self.run_apps(((*QUICK, "--warmup-steps", 4000), QUICK))
        self.assertIn("note: with --steps 40 and --warmup-steps 4000 the learning rate ends at 1.95e-05 and never comes "
                      "to --lr 0.002\n", short.stderr)
        self.assertNotIn("note: ", long.stderr)
        self.assertIn("0.002 (cosine, 4 warm-up steps)", long.stderr)

    def test_quiet_and_verbose(self):
        with tempfile.TemporaryDirectory() as folder:
            short = (*QUICK, "--max-length", 5)  # quickly evaluated
            quiet, usual, verbose = self.run_apps(((*short, "--quiet", "--out", folder + "/a"),
                                                   (*short, "--out", folder + "/b"),
                                                   (*short, "--verbose", "--out", folder + "/c")))
            self.assertEqual((quiet.returncode, quiet.stderr), (0, ""))
            for result, name in ((usual, "b"), (verbose, "c")):
                self.assertEqual(result.stdout, quiet.stdout.replace("/a", f"/{name}"))
                self.assertEqual(len(re.findall("^evaluation after step", result.stderr, re.M)), 9)
            self.assertEqual(len(re.findall(r"^checkpoint: .*/checkpoints/step-\d+$", verbose.stderr, re.M)), 10)
            self.assertRegex(verbose.stderr,
                             r"(?m)^memory: about [\d.]+ GB beside LibTorch's own, [\d.]+ GB available$")
            self.assertNotRegex(verbose.stderr, r"[\r\x1b]")
            self.assertNotIn("checkpoint: ", usual.stderr)

    def test_metrics_are_those_of_single_steps(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "run"
            self.assertEqual(self.run_app(*QUICK, "--out", out, "--log-every", 16, "--warmup-steps", 32).returncode, 0)
            lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            steps = [line for line in lines if "loss" in line]
            self.assertEqual([line["step"] for line in steps], [16, 32, 40])
            self.assertEqual(set(steps[0]), {"step", "epoch", "loss", "accuracy", "learning_rate", "gradient_norm",
                                             "tokens_per_second"})
            self.assertAlmostEqual(steps[0]["learning_rate"], 0.002 * 15 / 32)
            self.assertGreater(steps[-1]["learning_rate"], 0)
            self.assertTrue(2 < steps[0]["loss"] < 3 and steps[0]["gradient_norm"] > 0 and steps[0]["tokens_per_second"] > 0)
            self.assertEqual([line["step"] for line in lines if "evaluation_loss" in line], list(range(4, 41, 4)))

    def test_a_target_ends_the_run(self):
        result = self.run_app("--task", "majority", "--threads", 1, "--target", 90, "--eval-every", 50)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreaterEqual(float(re.match(r"majority: ([\d.]+) %", result.stdout).group(1)), 90)
        self.assertNotIn("step 1000/1000", result.stderr)
        self.assertRegex(result.stderr, r"(?m)^--target 90 % reached after step \d+$")

    def test_deterministic_runs_are_equal_with_many_threads(self):
        runs = [self.run_app("--steps", 30, "--threads", 2, "--dropout", 0.1, "--deterministic") for _ in range(2)]
        self.assertEqual(runs[0].returncode, 0, runs[0].stderr)
        self.assertEqual(runs[0].stdout, runs[1].stdout)
        self.assertEqual(without_rates(runs[0].stderr), without_rates(runs[1].stderr))

    def test_the_documented_runs_learn(self):
        runs = ((("--task", "reverse"), 99.0), (("--task", "histogram"), 98.0), ((), 99.5),
                (("--task", "majority", "--steps", 500), 99.0), (("--task", "copy", "--norm", "post"), 99.0))
        results = self.run_apps(("--threads", 1, *arguments) for arguments, _ in runs)
        for (arguments, least), result in zip(runs, results):
            with self.subTest(arguments=arguments):
                accuracy = float(re.match(r"\w+: ([\d.]+) %", result.stdout).group(1))
                self.assertGreaterEqual(accuracy, least)


if __name__ == "__main__":
    app.main(Train)
