"""The plot of training runs: what is drawn, by numbers made by hand, and what is refused: plot_app.py PLOT_SCRIPT"""

import contextlib
import importlib.util
import io
import json
import math
import os
import pathlib
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import unittest.mock

import matplotlib.colors

import app

NAN = math.nan


def training(step, loss, accuracy, rate, norm):
    return {"step": step, "epoch": None, "loss": loss, "accuracy": accuracy, "learning_rate": rate,
            "gradient_norm": norm, "tokens_per_second": 1234.5}


def evaluation(step, loss, accuracy):
    return {"step": step, "evaluation_loss": loss, "evaluation_accuracy": accuracy, "unknown": "ignored"}


RUN = [training(1, 4.0, 0.25, 0.001, 8.0), training(2, 2.0, 0.5, 0.002, 2.0), evaluation(2, 3.5, 0.375),
       training(3, None, None, 0.002, None), training(4, 3.0, 0.75, 0.001, 0.5), evaluation(4, 2.5, 0.625)]


class Plot(app.AppTest):
    @classmethod
    def setUpClass(cls):
        cls.program = str(pathlib.Path(cls.program).resolve())
        specification = importlib.util.spec_from_file_location("plot", cls.program)
        cls.plot = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(cls.plot)

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name).resolve()

    def run_app(self, *arguments):
        """Without a process of its own, which takes a second to import matplotlib."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            with unittest.mock.patch("sys.argv", [self.program, *map(str, arguments)]):
                try:
                    code = self.plot.main()
                except SystemExit as exit:
                    code = exit.code
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    def run_process(self, *arguments, **options):
        return subprocess.run([sys.executable, self.program, *map(str, arguments)], capture_output=True, text=True,
                              **options)

    def run_folder(self, name, entries=RUN, end=""):
        folder = self.folder / name
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries) + end)
        return folder

    def figure(self, *names, smooth=2):
        return self.plot.figure_of([(name, self.plot.read_metrics(self.folder / name / "metrics.jsonl"))
                                    for name in names], smooth)

    def check_lines(self, axes, *expected):
        self.assertEqual(len(axes.lines), len(expected))
        for line, (steps, values) in zip(axes.lines, expected):
            self.assertEqual(list(line.get_xdata()), steps)
            self.assertEqual([None if math.isnan(value) else round(value, 9) for value in line.get_ydata()],
                             [None if math.isnan(value) else value for value in values])

    def check_png(self, path):
        """The size in the file's header: signature, length and name of the first chunk, width, height."""
        signature, length, name, width, height = struct.unpack(">8sI4sII", path.read_bytes()[:24])
        self.assertEqual((signature, length, name), (b"\x89PNG\r\n\x1a\n", 13, b"IHDR"))
        self.assertEqual((width, height), (1440, 960))

    def test_each_panel_shows_its_numbers(self):
        self.run_folder("a")
        loss, accuracy, rate, norm = self.figure("a").axes
        steps = [1, 2, 3, 4]
        self.check_lines(loss, (steps, [4, 2, NAN, 3]), (steps, [4, 3, NAN, 3]), ([2, 4], [3.5, 2.5]))
        self.check_lines(accuracy, (steps, [25, 50, NAN, 75]), (steps, [25, 37.5, NAN, 75]), ([2, 4], [37.5, 62.5]))
        self.check_lines(rate, (steps, [0.001, 0.002, 0.002, 0.001]))
        self.check_lines(norm, (steps, [8, 2, NAN, 0.5]), (steps, [8, 5, NAN, 0.5]))
        self.assertEqual([axes.get_title() for axes in (loss, accuracy, rate, norm)],
                         ["loss (nats)", "accuracy (%)", "learning rate", "gradient norm"])
        self.assertEqual({axes.get_xlabel() for axes in (loss, accuracy, rate, norm)}, {"step"})
        thin, thick, dots = loss.lines
        self.assertLess(thin.get_linewidth(), thick.get_linewidth())
        self.assertEqual(dots.get_marker(), "o")
        self.assertEqual([axes.get_yscale() for axes in (loss, norm)], ["linear", "log"])
        self.assertEqual(self.figure("a").legends, [])

    def test_the_norm_is_linear_where_it_hardly_changes_or_is_zero(self):
        for name, norms in (("near", [1.0, 9.0]), ("zero", [0.0, 100.0]), ("none", [None, None])):
            self.run_folder(name, [training(step, 1.0, 1.0, 0.1, norm) for step, norm in enumerate(norms)])
            self.assertEqual(self.figure(name).axes[3].get_yscale(), "linear", name)

    def test_running_mean(self):
        for values, count, expected in (([1, 2, 3, 4, 5], 3, [1, 1.5, 2, 3, 4]), ([1, 2, 6], 1, [1, 2, 6]),
                                        ([2, 4, 9], 10**15, [2, 3, 5]), ([NAN, 4, NAN, 8, 2], 3, [NAN, 4, NAN, 6, 5]),
                                        ([1e300, 1, 3], 2, [1e300, 5e299, 2]), ([NAN], 2, [NAN]), ([], 2, [])):
            actual = list(self.plot.running_mean(values, count))
            self.assertEqual([str(float(value)) for value in actual], [str(float(value)) for value in expected])

    def test_several_runs_have_a_colour_and_a_name_each(self):
        other = [training(5, 1.0, 1.0, 0.003, 1.0), evaluation(6, 0.5, 1.0)]
        for name, entries in (("x/a", RUN), ("y/a", other), ("y/$^^$", other)):
            self.run_folder(name, entries)
        figure = self.figure("x/a", "y/a")
        self.check_lines(figure.axes[2], ([1, 2, 3, 4], [0.001, 0.002, 0.002, 0.001]), ([5], [0.003]))
        for axes in figure.axes:
            colors = [matplotlib.colors.to_hex(line.get_color()) for line in axes.lines]
            self.assertEqual(colors, ["#1f77b4"] * (len(colors) // 2) + ["#ff7f0e"] * (len(colors) // 2))
        self.assertEqual([text.get_text() for text in figure.legends[0].get_texts()], ["x/a", "y/a"])
        many = self.plot.figure_of([(str(i), [{"step": 1, "loss": 1.0}]) for i in range(25)], 1)
        self.assertEqual(len({line.get_color() for line in many.axes[0].lines}), 25)

        paths = [self.folder / name for name in ("x/a/metrics.jsonl", "y/a/metrics.jsonl", "y/$^^$/metrics.jsonl")]
        self.assertEqual(self.plot.run_names(paths), ["x/a", "y/a", "$^^$"])
        self.assertEqual(self.plot.run_names(paths[:1]), ["a"])
        self.assertEqual(self.plot.run_names([paths[0], paths[0]]), ["a", "a"])
        self.assertEqual(self.plot.run_names([pathlib.Path("/r/a"), pathlib.Path("/r/q/r/a")]), ["/r/a", "q/r/a"])

        out = self.folder / "three.png"
        result = self.run_app(*(path.parent for path in paths), "--out", out)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, f"{out}\n", ""))
        self.check_png(out)

    def test_the_picture_lies_beside_the_metrics(self):
        folder = self.run_folder("a")
        for run in (folder, folder / "metrics.jsonl"):
            result = self.run_app(run, "--smooth", 3)
            self.assertEqual((result.returncode, result.stdout, result.stderr), (0, f"{folder / 'metrics.png'}\n", ""))
            self.check_png(folder / "metrics.png")
            self.assertEqual(sorted(os.listdir(folder)), ["metrics.jsonl", "metrics.png"])
            (folder / "metrics.png").unlink()
        result = self.run_process("a", "--out", "a/b.SVG", cwd=self.folder)
        self.assertEqual((result.returncode, result.stdout), (0, "a/b.SVG\n"))
        self.assertIn("<svg", (folder / "b.SVG").read_text())

    def test_a_folder_s_name_may_be_no_text(self):
        names = [self.run_folder(name) for name in ("x", "y")]
        paths = [path.rename(os.fsdecode(os.fsencode(path) + b"\xe4\n")) for path in names]
        self.assertEqual(self.plot.run_names([path / "metrics.jsonl" for path in paths]), ["x\ufffd\n", "y\ufffd\n"])
        result = subprocess.run([sys.executable, self.program, *paths], capture_output=True)
        self.assertEqual((result.returncode, result.stdout, result.stderr),
                         (0, os.fsencode(paths[0] / "metrics.png") + b"\n", b""))
        self.check_png(paths[0] / "metrics.png")
        (paths[0] / "metrics.jsonl").write_text("[1]\n")
        result = subprocess.run([sys.executable, self.program, paths[0]], capture_output=True)
        self.assertEqual((result.returncode, result.stderr.count(b"\n")), (1, 1), result.stderr)

    def test_a_torn_last_line_is_passed_over(self):
        whole = self.plot.read_metrics(self.run_folder("whole") / "metrics.jsonl")
        for number, torn in enumerate(('{"st', '{"step":5,"loss":1', '{"step"', "{", "\r\n")):
            self.assertEqual(str(self.plot.read_metrics(self.run_folder(f"{number}", end=torn) / "metrics.jsonl")),
                             str(whole), torn)
        complete = self.run_folder("complete", end='{"step": 5, "loss": 1}')
        self.assertEqual(self.plot.read_metrics(complete / "metrics.jsonl")[-1], {"step": 5, "loss": 1})

    def test_what_is_wrong_is_one_line(self):
        good = self.run_folder("good")
        self.check_error(1, "plot: no such folder or file: nowhere", "nowhere")
        self.check_error(1, "no such folder", good, self.folder / "other")
        self.check_error(1, f"{self.folder} holds no metrics.jsonl", self.folder)
        for name, text in (("empty", ""), ("blank", "\n\n"), ("torn", '{"step": 1')):
            self.check_error(1, "metrics.jsonl: holds no lines", self.run_folder(name, [], text))
        for number, line in enumerate(('{"st', "[1]", "1", "{}", '{"step": "1"}', '{"step": 5, "loss": "a"}', "\0\0",
                                       '{"step": 5, "loss": 1' + "0" * 400 + "}", "[" * 100000)):
            folder = self.run_folder(f"broken {number}", end=line + "\n" + json.dumps(RUN[0]) + "\n")
            self.check_error(1, f"{folder / 'metrics.jsonl'}:7: not a line of metrics: ", folder)
        (good / "latin").write_bytes(b'{"step": 1, "a": "\xe4"}\n')
        self.check_error(1, "latin:1: not a line of metrics: ", good / "latin")
        self.assertEqual(self.run_process("nowhere").returncode, 1)
        huge = self.run_folder("huge", [training(step, step, 0.5, 0.1, abs(step)) for step in (1e308, -1e308)])
        result = self.run_process(huge)
        self.assertEqual((result.returncode, result.stdout, len(result.stderr.splitlines())), (1, "", 1))
        self.assertIn("plot: cannot write", result.stderr)
        for arguments in ((), (good, "--smooth", 0), (good, "--smooth", "many"), (good, "--unknown")):
            self.check_error(2, "plot: ", *arguments)

    def test_a_picture_that_cannot_be_written_leaves_nothing(self):
        good = self.run_folder("good")
        for name, message in (("no/a.png", "No such file or directory"),
                              ("good/metrics.jsonl/a.png", "Not a directory"),
                              ("a.xyz", "'xyz' is not supported"), ("a", "is not supported")):
            out = self.folder / name
            self.check_error(1, f"plot: cannot write {out}: ", good, "--out", out)
            self.check_error(1, message, good, "--out", out)
        (self.folder / "folder.png").mkdir()
        self.check_error(1, "is a folder, not a file", good, "--out", self.folder / "folder.png")
        if os.geteuid() != 0:  # who may write anywhere
            good.chmod(0o555)
            self.check_error(1, f"plot: cannot write {good / 'metrics.png'}: Permission denied", good)
            good.chmod(0o755)
        self.assertEqual(sorted(os.listdir(self.folder)), ["folder.png", "good"])

    def test_a_full_disk_leaves_the_old_picture(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        good = self.run_folder("good")
        (good / "metrics.png").write_text("old")
        result = self.run_process(good, preexec_fn=limit)
        self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
        self.assertRegex(result.stderr.splitlines()[-1], "^plot: cannot write .*metrics.png: File too large$")
        self.assertEqual((good / "metrics.png").read_text(), "old")
        self.assertEqual(sorted(os.listdir(good)), ["metrics.jsonl", "metrics.png"])

    def test_matplotlib_missing_is_said(self):
        code = ("import sys, runpy\n"
                "sys.modules['matplotlib'] = None\n"
                f"sys.argv = {[self.program, str(self.run_folder('a'))]}\n"
                "runpy.run_path(sys.argv[0], run_name='__main__')\n")
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertEqual(result.stderr, "plot: matplotlib is missing: pip install matplotlib\n")


if __name__ == "__main__":
    app.main(Plot)
