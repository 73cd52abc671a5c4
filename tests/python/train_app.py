"""The training app, run as its users run it: train_app.py TRAIN_PROGRAM"""

import json
import os
import pathlib
import pty
import re
import subprocess
import sys
import tempfile

from safetensors.torch import load_file

import app
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "apps"))
import lesson

QUICK = ("--steps", 40, "--threads", 1, "--d-model", 16, "--heads", 2, "--layers", 1)


def without_rates(log):
    return re.sub(r"\s+\d+ steps/s.*", "", log)


class Train(app.AppTest):
    def test_wrong_command_lines_exit_2(self):
        for arguments, message in ((("--bogus",), "--bogus"), (("--task", "add"), '"add" is not one of copy|reverse'),
                                   (("--steps", 0), "0"), (("--steps", "many"), "many"), (("--lr", -1), "-1"),
                                   (("--device", "gpu"), "gpu is not auto, cpu, cuda or cuda:N"),
                                   (("--norm", "middle"), '"middle" is not one of pre|post'), (("extra",), "extra")):
            self.check_error(2, message, *arguments)

    def test_impossible_values_exit_1_before_any_work(self):
        with tempfile.TemporaryDirectory() as folder:
            blocked = pathlib.Path(folder) / "file"
            blocked.write_text("keep me")
            for arguments, message in (
                (("--heads", 10), "d_model 64 is not divisible by num_heads 10"),
                (("--dropout", 1), "dropout is 1, not in [0, 1)"),
                (("--symbols", 1), "the number of symbols is 1, fewer than 2"),
                (("--min-length", 9, "--max-length", 8), "the longest length 8 is less than the shortest, 9"),
                (("--min-length", 0), "the shortest length is 0, less than 1"),
                (("--symbols", 2, "--max-length", 8), "there are only 496 sequences"),
                (("--task", "majority", "--min-length", 8, "--max-length", 8), "majority needs an odd length"),
                (("--max-positions", 8), "--max-positions 8 is less than --max-length 16"),
                (("--out", blocked), "cannot be made a folder: Not a directory"),
            ):
                self.check_error(1, message, *arguments)
            self.assertEqual(blocked.read_text(), "keep me")

    def test_cuda_where_there_is_none_is_one_clear_error(self):
        if os.path.exists("/dev/nvidia0"):
            self.skipTest("this machine has a CUDA device")
        self.check_error(1, "no CUDA device", "--device", "cuda")
        self.check_error(1, "no CUDA device", "--device", "cuda:1")
        self.assertIn("device: cpu (picked by auto)", self.run_app(*QUICK).stderr)

    def test_help_names_every_task(self):
        result = self.run_app("--help")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(dict(re.findall(r"\n  (\w+) .*\[(\d+)\]", result.stdout)),
                         {"copy": "500", "reverse": "2000", "sort": "1200", "histogram": "1500", "majority": "1000",
                          "parity": "3000"})
        self.assertIn("training: 1200 steps", self.run_app(*QUICK[2:]).stderr)

    def test_a_seed_determines_the_run(self):
        first, again, other = (self.run_app(*QUICK, "--dropout", 0.1, "--seed", seed) for seed in (7, 7, 8))
        self.assertEqual(first.stdout, again.stdout)
        self.assertEqual(without_rates(first.stderr), without_rates(again.stderr))
        self.assertNotEqual(without_rates(first.stderr), without_rates(other.stderr))

    def test_logs_hold_no_control_characters(self):
        result = self.run_app(*QUICK)
        self.assertEqual(result.returncode, 0)
        for text in (result.stdout, result.stderr):
            self.assertNotRegex(text, r"[\r\x1b]")
        self.assertEqual(len(re.findall(r"^step \d+/40  loss ", result.stderr, re.M)), 20)
        self.assertEqual(len(re.findall("^step ", self.run_app(*QUICK[2:], "--steps", 59).stderr, re.M)), 20)

    def test_a_terminal_gets_a_bar(self):
        ours, theirs = pty.openpty()
        with subprocess.Popen([self.program, *map(str, QUICK)], stdout=subprocess.DEVNULL, stderr=theirs) as process:
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
        self.assertIn(b"\r\x1b[K40/40 [====================] loss", shown)

    def test_every_task_runs_and_keeps_its_model(self):
        for task in ("copy", "reverse", "sort", "histogram", "majority", "parity"):
            with self.subTest(task=task), tempfile.TemporaryDirectory() as folder:
                out = pathlib.Path(folder) / "new" / task
                result = self.run_app(*QUICK, "--task", task, "--out", out)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertRegex(result.stdout, rf"^{task}: [\d.]+ % of 10,000 unseen sequences exact \(chance: ")
                self.assertEqual(sorted(path.name for path in out.iterdir()), ["config.json", "example.safetensors", "model.safetensors"])
                config = json.loads((out / "config.json").read_text())
                self.assertEqual((config["model_type"], config["d_model"], config["num_heads"]), ("prenorm", 16, 2))
                lesson.EncoderModel(config).load_state_dict(load_file(out / "model.safetensors"))

    def test_a_diverging_run_stops_with_the_step(self):
        result = self.run_app("--lr", 1e6, "--steps", 60, "--threads", 1)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr.splitlines()[-1], r"^train: the loss is (nan|inf|-nan) after \d+ steps: lower --lr")

    def test_the_documented_runs_learn(self):
        for arguments, least in (((), 99.5), (("--task", "reverse"), 99.0), (("--task", "copy", "--norm", "post"), 99.0),
                                 (("--task", "histogram"), 98.0), (("--task", "majority", "--steps", 500), 99.0)):
            with self.subTest(arguments=arguments):
                result = self.run_app("--threads", 1, *arguments)
                accuracy = float(re.match(r"\w+: ([\d.]+) %", result.stdout).group(1))
                self.assertGreaterEqual(accuracy, least)


if __name__ == "__main__":
    app.main(Train)
