"""From training to the comparison, as users walk: compare_app.py TRAIN_PROGRAM COMPARE_SCRIPT"""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest.mock

import safetensors.torch
import torch

import app

COMPARE = sys.argv.pop(2)
QUICK = ("--steps", 20, "--threads", 1, "--d-model", 16, "--heads", 2, "--layers", 2, "--dropout", 0.1)


class Compare(app.AppTest):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        sys.path.append(str(pathlib.Path(COMPARE).parent))  # where lesson.py lies
        specification = importlib.util.spec_from_file_location("compare", COMPARE)
        cls.module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(cls.module)
        cls.exported = cls.folder / "model.ts"
        result = cls.run_app(cls, *QUICK, "--export", cls.exported)
        assert result.returncode == 0 and result.stdout.endswith(f"TorchScript: {cls.exported}\n"), result
        cls.example_folder = cls.folder / "kept"
        result = cls.run_app(cls, *QUICK, "--out", cls.example_folder)
        assert result.returncode == 0, result
        cls.example = cls.folder / "example.safetensors"
        shutil.copy(cls.example_folder / "example.safetensors", cls.example)

    def compare(self, *arguments):
        """Without a process of its own, which takes seconds to import torch."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            with unittest.mock.patch("sys.argv", [COMPARE, *map(str, arguments)]):
                try:
                    code = self.module.main()
                except SystemExit as exit:
                    code = exit.code
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    def model_folder(self, name, change=None, **config_changes):
        """A folder of weights with those of the exported model, after `change`."""
        folder = self.folder / name
        folder.mkdir()
        extra = {"config.json": ""}
        state = torch.jit.load(self.exported, _extra_files=extra).state_dict()
        if change:
            change(state)
        (folder / "config.json").write_text(json.dumps(json.loads(extra["config.json"]) | config_changes))
        safetensors.torch.save_file({key: value.detach() for key, value in state.items()}, folder / "model.safetensors")
        return folder

    def check_equal(self, result):
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        table = [line for line in result.stdout.splitlines() if line.startswith("float")]
        self.assertEqual([line.split()[:2] for line in table],
                         [["float32", "none"], ["float32", "padding"], ["float64", "none"], ["float64", "padding"]])
        self.assertIn("equal within the tolerances", result.stdout)

    def check_refused(self, message, *arguments):
        result = self.compare(*arguments)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertIn(message, result.stderr)

    def test_an_exported_model_equals_the_lesson(self):
        self.check_equal(self.compare(self.exported))
        self.check_equal(self.compare(self.exported, "--seed", 5))

    def test_every_task_s_model_equals_the_lesson(self):
        path = self.folder / "other.ts"
        for options in (("--task", "majority", "--min-length", 9, "--sequence-head", "first", "--norm", "post"),
                        ("--task", "parity", "--position", "sinusoidal", "--embedding-norm", "--attention-bias"),
                        ("--tie-head",)):
            result = self.run_app(*QUICK, *options, "--export", path)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.check_equal(self.compare(path))

    def test_nothing_but_torch_is_imported(self):
        code = ("import sys, runpy\n"
                "for name in ('safetensors', 'numpy', 'transformers', 'pandas'): sys.modules[name] = None\n"
                f"sys.argv = {[COMPARE, str(self.model_folder('bare')), str(self.exported)]}\n"
                f"sys.path.insert(0, {str(pathlib.Path(COMPARE).parent)!r})\n"
                "runpy.run_path(sys.argv[0], run_name='__main__')\n")
        self.check_equal(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True))

    def test_a_folder_of_weights_beside_the_exported_model(self):
        folder = self.model_folder("weights")
        self.check_equal(self.compare(folder, self.exported))
        self.check_refused(f"no such file: {folder / 'example.safetensors'}", folder)

    def test_a_folder_holds_what_the_program_computed(self):
        for task, more in (("sort", ["--tie-head"]), ("majority", [])):
            folder = self.folder / f"kept {task}"
            self.assertEqual(self.run_app(*QUICK, "--task", task, *more, "--out", folder).returncode, 0)
            self.check_equal(self.compare(folder))
            weights = safetensors.torch.load_file(folder / "model.safetensors")
            weights["encoder.layers.0.sub1.norm.bias"][0] += 1e-2
            safetensors.torch.save_file(weights, folder / "model.safetensors")
            self.assertEqual(self.compare(folder).returncode, 1)

    def test_one_broken_weight_is_seen(self):
        def change(state):
            state["encoder.layers.1.ff.net.3.bias"][3] += 1e-3
        result = self.compare(self.model_folder("broken", change), self.exported)
        self.assertEqual((result.returncode, result.stderr), (1, ""))
        self.assertEqual(result.stdout.count("TOO LARGE"), 4)
        self.assertIn("DIFFERENT", result.stdout)

    def test_nan_is_no_agreement(self):
        def change(state):
            state["head.bias"][0] = torch.nan
        self.assertEqual(self.compare(self.model_folder("nan", change), self.exported).returncode, 1)

    def test_what_is_wrong_with_a_file_is_one_line(self):
        text = self.folder / "text.ts"
        text.write_text("not a program")
        self.check_refused("text.ts: not a TorchScript file", text)
        self.check_refused("no such file", self.folder / "missing.ts")
        for arguments in ((), (self.exported, "--seed", 2**64), (self.exported, "--seed", "0x1"),
                          (self.exported, "--bogus")):
            result = self.compare(*arguments)
            self.assertEqual((result.returncode, result.stdout, len(result.stderr.splitlines())), (2, "", 1))
        self.check_refused("is not a folder", self.exported, self.exported)
        other = torch.jit.script(torch.nn.Linear(2, 2))
        other.save(self.folder / "linear.ts")
        self.check_refused("holds no config.json", self.folder / "linear.ts")
        empty = self.folder / "empty"
        empty.mkdir()
        self.check_refused("no such file: " + str(empty / "config.json"), empty)
        self.check_refused("norm_eps differ", self.model_folder("eps", norm_eps=1e-3), self.exported)
        self.check_refused("the weights are not those of the config: ",
                           self.model_folder("missing", lambda state: state.pop("head.bias")), self.exported)
        for name, change, message in (
                ("string", {"d_model": "16"}, 'd_model is "16", not a whole number from 1'),
                ("none", {"num_heads": 0}, "num_heads is 0, not a whole number from 1"),
                ("true", {"num_layers": True}, "num_layers is true, not a whole number"),
                ("infinite", {"vocab_size": float("inf")}, "vocab_size is Infinity, not a whole number from 1"),
                ("odd", {"num_heads": 3}, "d_model 16 is not divisible by num_heads 3"),
                ("many", {"num_layers": 2**62}, "num_layers is 4611686018427387904; the weights are only"),
                ("huge", {"vocab_size": 2**62}, "the config is of no model: "),
                ("other", {"vocab_size": 2**40}, "the weights are not those of the config: "),
                ("word", {"activation": "swish"}, 'activation is "swish", not one of "gelu", "gelu_tanh", '),
                ("list", {"head": []}, 'head is [], not one of "none", "token"'),
                ("number", {"final_norm": 1}, "final_norm is 1, not one of null, false, true"),
                ("dropout", {"dropout": "much"}, "the config is of no model: "),
                ("eps", {"norm_eps": "small"}, "example.safetensors does not go with the model of ")):
            folder = self.model_folder(f"config {name}", **change)
            shutil.copy(self.example, folder)
            self.check_refused(message, folder)
        latin = self.model_folder("latin")
        (latin / "config.json").write_bytes('{"model_type": "prenörm"}'.encode("latin-1"))
        self.check_refused("config.json: holds no config.json that can be read", latin)
        (latin / "config.json").write_bytes(b"[" * 100000)
        self.check_refused("config.json: holds no config.json that can be read", latin)
        example = safetensors.torch.load_file(self.example)
        for name, change, message in (
                ("float64_padding", None, "example.safetensors: holds no 'float64_padding'"),
                ("ids", None, "holds no 'ids'"),
                ("ids", torch.full((8, 16), 99), "does not go with the model"),
                ("padding", torch.ones(3, dtype=torch.bool), "does not go with the model"),
                ("float32_none", torch.ones(2), "the output is [2]")):
            safetensors.torch.save_file({key: value for key, value in (example | {name: change}).items()
                                         if value is not None}, self.example_folder / "example.safetensors")
            self.check_refused(message, self.example_folder)
        cut = self.model_folder("cut")
        (cut / "model.safetensors").write_bytes((cut / "model.safetensors").read_bytes()[:-9])
        self.check_refused("model.safetensors: not a safetensors file", cut, self.exported)
        (cut / "model.safetensors").write_bytes(b"version https://git-lfs")
        self.check_refused("model.safetensors: not a safetensors file", cut, self.exported)

    def test_a_folder_s_name_may_be_no_text(self):
        path = pathlib.Path(os.fsdecode(os.fsencode(self.folder) + b"/\xe4\n"))
        self.model_folder("bytes").rename(path)
        shutil.copy(self.exported, path)
        for arguments in ((path, self.exported), (path / "model.ts",)):
            result = subprocess.run([sys.executable, COMPARE, *arguments], capture_output=True)
            self.assertEqual((result.returncode, result.stderr), (0, b""))
            self.assertIn(os.fsencode(path), result.stdout)
        self.check_refused("no such file: ", path)

    def test_train_finds_out_before_it_trains_that_a_file_cannot_be_written(self):
        for path, message in ((self.folder, "is a folder, not a file"),
                              (self.folder / "no" / "model.ts", f"there is no folder {self.folder / 'no'}"),
                              (self.exported / "model.ts", "there is no folder")):
            result = self.run_app("--export", path)
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertIn(message, result.stderr)

    def test_a_full_disk_leaves_the_old_file(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        folder = self.folder / "full"
        folder.mkdir()
        (folder / "model.ts").write_text("old")
        result = self.run_app(*QUICK, "--export", folder / "model.ts", preexec_fn=limit)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertRegex(result.stderr.splitlines()[-1], "^train: cannot write .*model.ts.*: File too large$")
        self.assertEqual([(path.name, path.read_text()) for path in folder.iterdir()], [("model.ts", "old")])


if __name__ == "__main__":
    app.main(Compare)
