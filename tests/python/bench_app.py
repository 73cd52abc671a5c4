"""What the benchmark compares and writes down, and what it refuses: bench_app.py PROGRAM_FOLDER BENCH_SCRIPT"""

import importlib.util
import json
import pathlib
import sys
import tempfile
import types

import numpy
import safetensors  # what every case's weights are in

import app

sys.path.insert(0, str(pathlib.Path(sys.argv[2]).parent))
bench = importlib.util.module_from_spec(spec := importlib.util.spec_from_file_location("bench", sys.argv.pop(2)))
spec.loader.exec_module(bench)
PROGRAMS = sys.argv.pop(1)
sys.argv.insert(1, sys.executable)


class Bench(app.AppTest):
    def bench(self, *arguments, **options):
        return self.run_app(bench.__file__, *arguments, **options)

    def test_contenders_agree_and_are_timed(self):
        """Each checks its answers against ours: the C++ ones, the lesson's and PyTorch's own encoder."""
        with tempfile.TemporaryDirectory() as folder:
            result = self.bench(PROGRAMS, "--cases", "T4-T2", "A1-sort", "--rounds", "2", "--threads", "1", "--out", folder,
                                "--contenders", "prenorm padded", "torch::nn (C++)", "lesson (Python)", "torch.nn (Python)",
                                "roof plain", "--before", PROGRAMS)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("1 threads for each; cpu, float32; 2 rounds", result.stdout)
            written = json.loads(pathlib.Path(folder, "results.json").read_text())
            self.assertIn("<svg", pathlib.Path(folder, "ratios.svg").read_text())
        step = written["cases"]["T4-T2"]
        self.assertEqual(step["skipped"], {})
        self.assertEqual(list(step["contenders"]), ["prenorm", "prenorm padded", "torch::nn (C++)", "lesson (Python)",
                                                    "torch.nn (Python)", "roof"])
        self.assertEqual([own["note"] for own in step["contenders"].values()],
                         ["", "", "post-norm, the same work", "", "", "plain, matrix products alone"])
        for name, own in step["contenders"].items():
            self.assertEqual(len(own["rounds_ms"]), 2)
            medians = [numpy.median(times) for times in own["rounds_ms"]]
            self.assertAlmostEqual(own["median_ms"], numpy.median(medians))
            self.assertAlmostEqual(own["ratio"], own["median_ms"] / step["contenders"]["prenorm"]["median_ms"])
            self.assertGreater(own["memory_mib"], 10)
        self.assertEqual(list(written["cases"]["A1-sort"]["contenders"]), ["train", "train before"])

    def test_missing_packages_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("onnxruntime", "ctranslate2"):
                pathlib.Path(folder, f"{name}.py").write_text(f"raise ModuleNotFoundError('no {name} here')\n")
            result = self.bench(PROGRAMS, "--cases", "I3", "--rounds", "1", "--out", folder, "--contenders", "ONNX Runtime",
                                "CTranslate2", env=bench.os.environ | {"PYTHONPATH": folder})
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertRegex(result.stdout, r"ONNX Runtime +-  no onnxruntime here")
            self.assertRegex(result.stdout, r"CTranslate2 +-  no ctranslate2 here")

    def test_other_answers_are_seen(self):
        """Compared on real tokens alone, as a share of the largest value, or of 1."""
        case = {"lengths": [2, 1], "length": 2}
        answers = numpy.array([[[1, 2], [3, -4]], [[5, 6], [7, 8]]], numpy.float32)
        with tempfile.TemporaryDirectory() as folder:
            paths = {name: pathlib.Path(folder, name) for name in ("ours", "theirs")}
            answers.tofile(paths["ours"])
            other = answers.copy()
            other[1, 1] = 99  # padding
            other[0, 1, 1] += 0.5
            other.tofile(paths["theirs"])
            self.assertAlmostEqual(bench.difference(paths, "theirs", case), 0.5 / 6)
            answers[:, :, :1].tofile(paths["theirs"])
            self.assertEqual(bench.difference(paths, "theirs", case), float("inf"))
            (answers / 100).tofile(paths["ours"])
            (other / 100).tofile(paths["theirs"])
            self.assertAlmostEqual(bench.difference(paths, "theirs", case), 0.005, places=6)

    def test_the_faster_roof_counts(self):
        roofs = [types.SimpleNamespace(name=name, median=median, note="products alone")
                 for name, median in (("prenorm", 4.0), ("roof plain", 3.0), ("roof prepacked", 2.0))]
        merged = bench.merge_roofs(roofs)
        self.assertEqual([(own.name, own.median, own.note) for own in merged],
                         [("prenorm", 4.0, "products alone"), ("roof", 2.0, "prepacked, products alone")])

    def test_lengths_are_spread_evenly(self):
        self.assertEqual(sorted(bench.uniform(8, 128)), [8, 24, 40, 56, 72, 88, 104, 120])
        self.assertEqual(bench.uniform(8, 128), bench.uniform(8, 128))

    def test_wrong_arguments(self):
        self.check_errors((2, "invalid choice: 'I9'", (bench.__file__, PROGRAMS, "--cases", "I9")),
                          (2, "invalid choice: 'JAX'", (bench.__file__, PROGRAMS, "--contenders", "JAX")),
                          (2, "'0' is not a whole number above 0", (bench.__file__, PROGRAMS, "--rounds", "0")),
                          (2, "/ holds no built programs", (bench.__file__, "/")),
                          (2, "/ holds no built programs", (bench.__file__, PROGRAMS, "--before", "/")))


app.main(Bench)
