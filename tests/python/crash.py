"""Crashes cost no work that was saved: crash.py TRAIN_PROGRAM. PRENORM_KILLS=100 kills that often, not ten times."""

import json
import os
import pathlib
import random
import re
import resource
import signal
import subprocess
import tempfile
import time
import unittest

from safetensors.torch import load_file

import app

KILLS = int(os.environ.get("PRENORM_KILLS", 10))


class Crash(app.AppTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "data.txt").write_text("a b\tx\nb a\ty\n")
        self.data = ("--train", self.folder / "data.txt", "--valid", self.folder / "data.txt", "--threads", 1)

    def start(self, *arguments, **options):
        return subprocess.Popen([self.program, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                text=True, **options)

    def test_a_kill_leaves_the_newest_checkpoint_whole(self):
        """Killed again and again, one time in ten at any moment, else at some moment after a save has begun: a wide model
        writes 80 MB after every step."""
        run, draw = self.folder / "run", random.Random(KILLS)
        wide = (*self.data, "--d-model", 512, "--layers", 2, "--batch-size", 2, "--eval-every", 1, "--steps", 1000000)
        arguments, inside, newest, kills = (*wide, "--out", run), 0, 0, 0
        while kills < KILLS:
            with self.start(*arguments) as process:
                while not re.match("device:|step ", process.stderr.readline()):
                    self.assertIsNone(process.poll())
                time.sleep(draw.uniform(0.05, 0.3))
                while kills % 3 == 0 and not (run / "checkpoints" / f"step-{newest + 1}").exists():
                    self.assertIsNone(process.poll())
                    time.sleep(0.001)
                while kills % 10 != 9 and not list((run / "checkpoints").glob("*.tmp*")):
                    self.assertIsNone(process.poll())
                    time.sleep(0.001)
                time.sleep(draw.uniform(0, 0.02))
                process.kill()
                process.wait()
                self.assertEqual(process.returncode, -signal.SIGKILL, process.stderr.read())
            kills += 1
            checkpoints = {int(path.name.removeprefix("step-")): path for path in (run / "checkpoints").iterdir()
                           if ".tmp" not in path.name}
            inside += len(checkpoints) < len(list((run / "checkpoints").iterdir()))
            if not checkpoints:
                continue
            last = max(checkpoints)
            self.assertGreaterEqual(last, newest)
            newest = last
            # Python reads it, and so does the next round.
            state = json.loads((checkpoints[last] / "training.json").read_text())
            self.assertEqual(state["step"], last)
            load_file(checkpoints[last] / "model.safetensors")
            load_file(checkpoints[last] / "training.safetensors")
            arguments = ("--resume", run)
        print(f"{kills} kills, {inside} of them inside a save, {newest} steps kept", flush=True)
        self.assertGreaterEqual(inside, 0.8 * kills)
        result = self.run_app("--resume", run, "--steps", newest + 1)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([path.name for path in run.rglob("*.tmp*")], [])

    def check_full_disk(self, run, **options):
        """A run whose checkpoints stop to fit ends with one line; the old one stays and goes on elsewhere."""
        first = self.run_app(*self.data, "--d-model", 64, "--layers", 1, "--steps", 4, "--stop-after", 2, "--out", run,
                             "--log-every", 100)
        self.assertEqual(first.returncode, 0, first.stderr)
        before = {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()}
        result = self.run_app("--resume", run, "--quiet", **options)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertRegex(result.stderr, "cannot (write|replace|sync|open)")
        self.assertEqual({path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()},
                         before)
        self.assertEqual(self.run_app("--resume", run).returncode, 0)

    def test_a_limit_on_file_sizes(self):
        self.check_full_disk(self.folder / "run", preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_FSIZE, (200_000, 200_000)))

    @unittest.skipUnless(os.geteuid() == 0, "only root can mount a small disk")
    def test_a_full_disk(self):
        disk = self.folder / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk],
                          capture_output=True).returncode != 0:
            self.skipTest("mounting is not allowed here")
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        filler = disk / "filler"
        filler.write_bytes(b"")
        run = disk / "run"
        first = self.run_app(*self.data, "--d-model", 64, "--layers", 1, "--steps", 4, "--stop-after", 2, "--out", run)
        self.assertEqual(first.returncode, 0, first.stderr)
        free = os.statvfs(disk)
        filler.write_bytes(b"x" * (free.f_bavail * free.f_bsize - 300_000))
        result = self.run_app("--resume", run, "--quiet")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertIn("No space left on device", result.stderr)
        self.assertEqual(sorted(path.name for path in (run / "checkpoints").iterdir()), ["step-1", "step-2"])
        filler.unlink()
        self.assertEqual(self.run_app("--resume", run).returncode, 0)

    def test_a_folder_that_cannot_be_written(self):
        self.check_error(1, "cannot be made a folder", *self.data, "--out", "/proc/prenorm")
        (self.folder / "file").write_text("keep me")
        self.check_error(1, "cannot be made a folder", *self.data, "--out", self.folder / "file")
        self.assertEqual((self.folder / "file").read_text(), "keep me")
        if os.geteuid() != 0:
            locked = self.folder / "locked"
            locked.mkdir(mode=0o500)
            self.check_error(1, "Permission denied", *self.data, "--out", locked)

    def test_two_runs_in_one_folder(self):
        run = self.folder / "run"
        with self.start(*self.data, "--d-model", 16, "--heads", 2, "--steps", 1000000, "--eval-every", 100, "--out",
                        run) as process:
            while not (run / "checkpoints" / "step-100").exists():
                self.assertIsNone(process.poll())
                time.sleep(0.05)
            self.check_error(1, "is in use by another run", "--resume", run)
            process.terminate()
            process.communicate()
        self.assertEqual(process.returncode, 143)

    def test_signals(self):
        endless = (*self.data, "--d-model", 16, "--heads", 2, "--steps", 1000000, "--eval-every", 1000000)
        for number in (signal.SIGINT, signal.SIGTERM):
            for kept in (True, False):
                out = ("--out", self.folder / f"run{number}") if kept else ()
                with self.subTest(signal=number, kept=kept), self.start(*endless, *out) as process:
                    while not process.stderr.readline().startswith("device:"):
                        pass
                    time.sleep(0.3)
                    process.send_signal(number)
                    last = process.stderr.read().splitlines()[-1]
                    process.wait()
                    self.assertEqual(process.returncode, 128 + number)
                    if kept:
                        step = re.fullmatch(rf"interrupted after step (\d+); go on with: train --resume {out[1]}",
                                            last)[1]
                        self.assertTrue((out[1] / "checkpoints" / f"step-{step}" / "training.json").exists())
                    else:
                        self.assertIn("; nothing was kept (--out FOLDER keeps a run)", last)

    def test_the_second_ctrl_c_ends_it_at_once(self):
        """While a huge checkpoint is being written, or a long step computed."""
        slow = (*self.data, "--d-model", 512, "--layers", 6, "--steps", 1000000, "--eval-every", 1, "--out",
                self.folder / "run")
        with self.start(*slow) as process:
            while not process.stderr.readline().startswith("device:"):
                pass
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            process.wait()
            self.assertLess(time.monotonic() - began, 1)
            process.stderr.read()
        self.assertEqual(process.returncode, 130)

    def test_a_diverging_run_never_spoils_a_checkpoint(self):
        run = self.folder / "run"
        small = ("--threads", 1, "--d-model", 16, "--heads", 2)
        good = self.run_app(*small, "--steps", 60, "--stop-after", 4, "--eval-every", 3, "--out", run)
        self.assertEqual(good.returncode, 0, good.stderr)
        result = self.run_app("--resume", run, "--lr", 1e30)
        self.assertEqual(result.returncode, 1)
        message = result.stderr.splitlines()[-1]
        step = int(re.match(r"train: (?:the loss|the norm of the gradient) is (?:nan|inf) at step (\d+): lower --lr",
                            message)[1])
        last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
        self.assertEqual(last["step"], step)
        self.assertTrue(last["loss"] is None or last["gradient_norm"] is None)
        self.assertIn("nan", "".join(re.findall(r"\nstep .*", result.stderr)) + ("nan" if "inf" in message else ""))
        for path in (run / "checkpoints").iterdir():
            for tensors in (load_file(path / "model.safetensors"), load_file(path / "training.safetensors")):
                for name, tensor in tensors.items():
                    self.assertTrue(tensor.isfinite().all(), (path, name))
        self.assertEqual(self.run_app("--resume", run, "--steps", 8).returncode, 0)

    def test_too_large_is_said_before_anything_is_allocated(self):
        for arguments, flags in ((("--d-model", 1000000), r"--d-model \(1000000\), --layers \(2\)"),
                                 (("--layers", 10**12), r"--d-model \(64\), --layers \(1000000000000\)"),
                                 (("--d-ff", 10**12), r"--d-ff \(1000000000000\)"),
                                 (("--batch-size", 10**11), r"--batch-size \(100000000000\)"),
                                 (("--max-positions", 10**12), "--max-positions")):
            began = time.monotonic()
            result = self.run_app(*arguments, "--threads", 1)
            with self.subTest(arguments=arguments):
                self.assertEqual((result.returncode, result.stdout, len(result.stderr.splitlines())), (1, "", 1),
                                 result.stderr)
                self.assertRegex(result.stderr,
                                 rf"training takes about [\d.e+]+ GB .*this machine has [\d.]+ GB: lower .*{flags}")
                self.assertLess(time.monotonic() - began, 10)

    def test_one_allocation_that_fails(self):
        """Below a limit on memory that is set once the run goes on, so that no estimate sees it."""
        with self.start("--threads", 1, "--batch-size", 2048, "--steps", 1000) as process:
            while not process.stderr.readline().startswith("device:"):
                self.assertIsNone(process.poll())
            used = int(pathlib.Path(f"/proc/{process.pid}/statm").read_text().split()[0]) * resource.getpagesize()
            resource.prlimit(process.pid, resource.RLIMIT_AS, (used, used))
            error = process.stderr.read().splitlines()[-1]
        self.assertEqual(process.returncode, 1)
        self.assertRegex(error,
                         r"^train: out of memory.* training takes about [\d.]+ GB: lower --batch-size \(2048\), --max-length \(16\)")

    def test_the_estimate_is_near_what_a_run_takes(self):
        (self.folder / "long.txt").write_text("".join(" ".join("ab" * 32) + "\t" + label + "\n" for label in "xy"))
        long = ("--train", self.folder / "long.txt", "--valid", self.folder / "long.txt", "--threads", 1, "--steps", 3,
                "--verbose")

        def memory(*arguments):
            with self.start(*long, *arguments) as process:
                estimate = float(re.search(r"memory: about ([\d.]+) GB", process.stderr.read())[1])
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 0)
            return estimate, usage.ru_maxrss * 1024 / 1e9

        _, alone = memory("--batch-size", 2)
        for arguments in ((), ("--dropout", 0.1), ("--attention-dropout", 0.1), ("--precision", "bfloat16")):
            estimate, taken = memory("--batch-size", 512, *arguments)
            with self.subTest(arguments=arguments, estimate=estimate, taken=taken - alone):
                self.assertLess(abs(estimate / (taken - alone) - 1), 0.35)

    def test_a_reader_of_the_log_that_is_gone(self):
        run = self.folder / "run"
        with self.start(*self.data, "--d-model", 16, "--heads", 2, "--steps", 2000, "--out", run) as process:
            process.stderr.readline()
            process.stderr.close()
            process.wait()
        self.assertEqual(process.returncode, 0)
        self.assertTrue((run / "model.safetensors").exists())

    def test_results_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([self.program, *map(str, self.data), "--steps", "2", "--quiet"], stdout=full,
                                    stderr=subprocess.PIPE, text=True)
        self.assertEqual((result.returncode, result.stderr), (1,
                                                              "train: cannot write to stdout: No space left on device\n"))

    def test_weights_that_are_no_numbers(self):
        run = self.folder / "run"
        result = self.run_app(*self.data, "--lr", 1e39, "--warmup-steps", 0, "--eval-every", 1, "--out", run)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr.splitlines()[-1],
                         r"^train: a weight or the evaluation is no longer finite after step 1: lower --lr \(1e\+39\)")
        self.assertEqual(list((run / "checkpoints").iterdir()), [])


if __name__ == "__main__":
    app.main(Crash)
