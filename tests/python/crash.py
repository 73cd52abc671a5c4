"""Crashes cost no work that was saved: crash.py TRAIN_PROGRAM. PRENORM_KILLS=100 kills that often, not ten times."""

import array
import contextlib
import fcntl
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import termios
import time
import unittest

from safetensors.torch import load_file

import app

PIPE, ROOM = 4096, 200  # the room is for the first words of a log's summary, which is longer
KILLS = int(os.environ.get("PRENORM_KILLS", 10))


class Crash(app.AppTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "data.txt").write_text(2 * "a b\tx\nb a\ty\n")
        self.data = ("--train", self.folder / "data.txt", "--valid", self.folder / "data.txt", "--threads", 1)

    def start(self, *arguments, **options):
        return subprocess.Popen([self.program, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                text=True, **options)

    def await_line(self, process, start):
        """Reads the log up to a line that starts so."""
        while not (line := process.stderr.readline()).startswith(start):
            self.assertNotEqual(line, "", "the program ended")
        return line

    def pause(self, process):
        """Stops the program where it is; returns when it stands."""
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)

    def is_pending(self, process, number):
        """Whether a signal that was sent has not been taken yet."""
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        return any(int(mask, 16) >> (number - 1) & 1 for mask in re.findall(r"(?:SigPnd|ShdPnd):\s+(\w+)", status))

    def await_taken(self, process, number):
        while process.poll() is None and self.is_pending(process, number):
            time.sleep(0.001)

    @contextlib.contextmanager
    def start_held(self, *arguments):
        """A program that stands in the first lines of its log, right before its first step, as nobody reads them: the
        pipe is nearly full. With it comes the end to read from."""
        ours, theirs = os.pipe()
        with open(ours) as log:
            fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, PIPE)
            os.write(theirs, b"\n" * (PIPE - ROOM))
            with subprocess.Popen([self.program, *map(str, arguments)], stdout=subprocess.DEVNULL,
                                  stderr=theirs) as process:
                os.close(theirs)
                try:
                    waiting = array.array("i", [0])
                    while waiting[0] <= PIPE - ROOM:
                        self.assertIsNone(process.poll())
                        fcntl.ioctl(log, termios.FIONREAD, waiting)
                        time.sleep(0.01)
                    yield process, log
                finally:
                    process.kill()  # one that has ended does not mind

    def test_a_kill_leaves_the_newest_checkpoint_whole(self):
        """Killed again and again, one time in ten at any moment, else at some moment after a save has begun: a wide
        model writes 20 MB after every step. It is stopped first, to see that it stands inside a save when it is killed."""
        run, draw = self.folder / "run", random.Random(KILLS)
        wide = (*self.data, "--d-model", 256, "--layers", 2, "--batch-size", 2, "--eval-every", 1, "--steps", 1000000)
        arguments, inside, wanted, newest, kills = (*wide, "--out", run), 0, 0, 0, 0

        def unfinished():
            return list((run / "checkpoints").glob("*.tmp*"))

        def checkpoints():
            return {int(path.name.removeprefix("step-")): path for path in (run / "checkpoints").glob("step-*")
                    if ".tmp" not in path.name}

        while kills < KILLS:
            with self.start(*arguments) as process:
                self.await_line(process, "device:")
                time.sleep(draw.uniform(0, 0.2))
                while kills % 3 == 0 and max(checkpoints(), default=0) <= newest:
                    self.assertIsNone(process.poll())
                    time.sleep(0.001)
                while kills % 10 != 9:
                    while not unfinished():
                        self.assertIsNone(process.poll())
                        time.sleep(0.001)
                    time.sleep(draw.uniform(0, 0.01))
                    self.pause(process)
                    if unfinished():
                        wanted += 1
                        break
                    process.send_signal(signal.SIGCONT)  # the save was over before the program stood
                process.kill()
                process.wait()
                self.assertEqual(process.returncode, -signal.SIGKILL, process.stderr.read())
            kills += 1
            inside += bool(unfinished())
            kept = checkpoints()
            if not kept:
                continue
            last = max(kept)
            self.assertGreaterEqual(last, newest)
            newest = last
            # Python reads it, and so does the next round.
            state = json.loads((kept[last] / "training.json").read_text())
            self.assertEqual(state["step"], last)
            load_file(kept[last] / "model.safetensors")
            load_file(kept[last] / "training.safetensors")
            arguments = ("--resume", run)
        print(f"{kills} kills, {inside} of them inside a save, {newest} steps kept", flush=True)
        self.assertEqual(wanted, kills - kills // 10)
        self.assertGreaterEqual(inside, wanted)
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

    def test_a_disk_that_is_full_at_the_start(self):
        """What is left behind can be begun again, in a new folder as in that of a branch."""
        run, full = self.folder / "run", lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        small = (*self.data, "--d-model", 16, "--heads", 2, "--steps", 2, "--eval-every", 1, "--quiet")
        for arguments in ((*small, "--out", run),
                          ("--resume", run / "checkpoints" / "step-1", "--out", self.folder / "branch")):
            result = self.run_app(*arguments, preexec_fn=full)
            self.assertEqual((result.returncode, len(result.stderr.splitlines())), (1, 1), result.stderr)
            self.assertRegex(result.stderr, "cannot write .*run.json")
            result = self.run_app(*arguments)
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_closed_streams(self):
        run = self.folder / "run"
        process = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", self.program, *map(str, self.data),
                                  "--d-model", "16", "--heads", "2", "--steps", "4", "--out", run])
        self.assertEqual(process.returncode, 0)
        lines = (run / "metrics.jsonl").read_text().splitlines()
        self.assertEqual([json.loads(line)["step"] for line in lines], [1, 1, 2, 2, 3, 3, 4, 4])

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
            self.await_line(process, "evaluation after step 100:")
            self.check_error(1, "is in use by another run", "--resume", run)
            process.terminate()
            process.communicate()
        self.assertEqual(process.returncode, 143)

    def test_signals(self):
        endless = (*self.data, "--d-model", 16, "--heads", 2, "--steps", 1000000, "--eval-every", 10)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            for kept in (True, False):
                out = ("--out", self.folder / f"run{number}") if kept else ()
                with self.subTest(signal=number, kept=kept), self.start(*endless, *out) as process:
                    # Some steps later where that can be seen: what is not kept is not evaluated.
                    self.await_line(process, "evaluation after step 10:" if kept else "device:")
                    process.send_signal(number)
                    if number == signal.SIGHUP:  # the shell's, then the system's
                        self.await_taken(process, number)
                        process.send_signal(number)
                    last = process.stderr.read().splitlines()[-1]
                    process.wait()
                    self.assertEqual(process.returncode, 128 + number)
                    if kept:
                        step = re.fullmatch(rf"interrupted after step (\d+); go on with: train --resume {out[1]}",
                                            last)[1]
                        self.assertGreaterEqual(int(step), 10)
                        self.assertTrue((out[1] / "checkpoints" / f"step-{step}" / "training.json").exists())
                    else:
                        self.assertIn("; nothing was kept (--out FOLDER keeps a run)", last)

    def test_signals_that_are_ignored(self):
        def ignore():
            for number in (signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)

        with self.start(*self.data, "--d-model", 16, "--heads", 2, "--steps", 1000000, "--eval-every", 10,
                        "--out", self.folder / "run", preexec_fn=ignore) as process:
            self.await_line(process, "evaluation after step 10:")
            for number in (signal.SIGINT, signal.SIGHUP):
                process.send_signal(number)
            for _ in range(2):
                self.await_line(process, "evaluation after step")
            process.terminate()
            self.assertIn("interrupted", process.stderr.read())
        self.assertEqual(process.returncode, 143)

    def test_the_second_ctrl_c_ends_it_at_once(self):
        """While a large checkpoint is being written, or a long step computed: neither is brought to its end, after
        which the first one alone would end the program, with a last line."""
        def interrupt(process):
            """The signal, once the one before has been taken."""
            process.send_signal(signal.SIGINT)
            self.await_taken(process, signal.SIGINT)

        saves = 0
        while saves == 0:  # unless the save was over before both signals had come
            run = self.folder / "run"
            shutil.rmtree(run, ignore_errors=True)
            with self.start(*self.data, "--d-model", 512, "--layers", 2, "--steps", 1000000, "--eval-every", 1, "--out",
                            run) as process:
                while not list(run.glob("checkpoints/*.tmp*")):
                    self.assertIsNone(process.poll())
                    time.sleep(0.001)
                interrupt(process)
                self.pause(process)
                saved, unfinished = [sorted(run.glob("checkpoints/" + names)) for names in ("step-*[0-9]", "*.tmp*")]
                process.send_signal(signal.SIGINT)
                process.send_signal(signal.SIGCONT)
                errors = process.stderr.read()
            self.assertEqual(process.returncode, 130)
            if unfinished:
                saves += 1
                self.assertNotIn("interrupted", errors)
                self.assertEqual(sorted(run.glob("checkpoints/step-*[0-9]")), saved)
                self.assertEqual(sorted(run.glob("checkpoints/*.tmp*")), unfinished)

        with self.start(*self.data, "--d-model", 512, "--layers", 6, "--batch-size", 4096, "--steps", 2) as process:
            self.await_line(process, "device:")
            interrupt(process)
            process.send_signal(signal.SIGINT)
            errors = process.stderr.read()
        self.assertEqual((process.returncode, errors), (130, ""))

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
        def run(*arguments):
            with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
                process = subprocess.Popen([self.program, "--threads", "1", *map(str, arguments)], stdout=output,
                                           stderr=errors)
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                output.seek(0), errors.seek(0)
                return process.returncode, output.read(), errors.read(), usage.ru_maxrss // 1024

        *_, usual = run("--heads", 10)  # which is refused at once
        for arguments, flags in ((("--d-model", 1000000), r"--d-model \(1000000\), --layers \(2\)"),
                                 (("--layers", 10**12), r"--d-model \(64\), --layers \(1000000000000\)"),
                                 (("--d-ff", 10**12), r"--d-ff \(1000000000000\)"),
                                 (("--batch-size", 10**11), r"--batch-size \(100000000000\)"),
                                 (("--max-positions", 10**12), "--max-positions")):
            code, output, errors, memory = run(*arguments)
            with self.subTest(arguments=arguments):
                self.assertEqual((code, output, len(errors.splitlines())), (1, "", 1), errors)
                self.assertRegex(errors,
                                 rf"training takes about [\d.e+]+ GB .*this machine has [\d.]+ GB: lower .*{flags}")
                self.assertLess(memory, usual + 100)

    def test_one_allocation_that_fails(self):
        """Below a limit on memory that is set once the run goes on, so that no estimate sees it."""
        with self.start_held("--threads", 1, "--batch-size", 2048, "--steps", 1000) as (process, log):
            used = int(pathlib.Path(f"/proc/{process.pid}/statm").read_text().split()[0]) * resource.getpagesize()
            resource.prlimit(process.pid, resource.RLIMIT_AS, (used, used))
            error = log.read().splitlines()[-1]
            process.wait()
        self.assertEqual(process.returncode, 1)
        self.assertRegex(error,
                         r"^train: out of memory.* training takes about [\d.]+ GB: lower --batch-size \(2048\), --max-length \(16\)")

    def test_a_reader_of_the_log_that_is_gone(self):
        run = self.folder / "run"
        with self.start_held(*self.data, "--d-model", 16, "--heads", 2, "--steps", 200, "--out", run) as (process, log):
            log.close()
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
