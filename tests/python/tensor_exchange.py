"""Files of Python's torch and safetensors against ours: tensor_exchange.py TOOL, the built tensor_file_tool."""

import argparse
import collections
import datetime
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import warnings
import zipfile

import numpy
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file, save_model

TOOL = sys.argv.pop(1)
DTYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "F8_E5M2": torch.float8_e5m2, "F8_E4M3": torch.float8_e4m3fn,
    "F8_E8M0": torch.float8_e8m0fnu, "F8_E4M3FNUZ": torch.float8_e4m3fnuz, "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "I16": torch.int16, "U16": torch.uint16, "F16": torch.float16, "BF16": torch.bfloat16, "I32": torch.int32,
    "U32": torch.uint32, "F32": torch.float32, "C64": torch.complex64, "F64": torch.float64, "I64": torch.int64,
    "U64": torch.uint64,
}


def random_tensor(dtype, shape):
    width = torch.empty((), dtype=dtype).element_size()
    values = torch.randint(0, 2 if dtype == torch.bool else 256, (*shape, width), dtype=torch.uint8)
    return values.view(dtype).reshape(shape)


def run(*arguments):
    return subprocess.run([TOOL, *arguments], capture_output=True, text=True)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4)])
        self.mask = torch.ones(3)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.norm(self.first(x) * self.mask.sum())


class Attributes(dict):
    """A dict with attributes, as configurations are."""


class Subclass(torch.Tensor):
    pass


class Runs:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


class TensorFileTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def lines(self, path, kind, *entry):
        done = run("list", path, *entry)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], f"kind {kind}")
        return lines[1:]

    def copied(self, path, name="copy.safetensors"):
        done = run("copy", path, self.path(name))
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.path(name)

    def error(self, path, *entry):
        done = run("list", path, *entry)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertTrue(done.stderr.startswith(path + ": "), done.stderr)
        return done.stderr[len(path) + 2:].strip()

    def assert_same(self, actual, expected):
        self.assertEqual(list(actual), list(expected))
        for name, tensor in expected.items():
            self.assertEqual(actual[name].dtype, tensor.dtype, name)
            self.assertEqual(actual[name].shape, tensor.shape, name)
            bits = [t.contiguous().reshape(-1).view(torch.uint8) for t in (actual[name], tensor)]
            self.assertTrue(torch.equal(*bits), name)

    def assert_holds(self, path, expected):
        """Our reading of the file, written again as safetensors, holds these tensors."""
        self.assert_same(dict(sorted(load_file(self.copied(path)).items())), dict(sorted(expected.items())))

    def every_kind(self):
        tensors = {f"{name}.weight": random_tensor(dtype, (3, 5)) for name, dtype in DTYPES.items()}
        tensors |= {f"{name}.scalar": random_tensor(dtype, ()) for name, dtype in DTYPES.items()}
        return tensors | {"empty": torch.zeros(0, 768), "quote \" slash \\ tab \t delete \x7f é 語": torch.ones(1)}

    def test_safetensors_bytes_are_equal(self):
        for metadata in (None, {"format": "pt"}):
            tensors = self.every_kind()
            save_file(tensors, self.path("python.safetensors"), metadata)
            copy = self.copied(self.path("python.safetensors"))
            with open(copy, "rb") as ours, open(self.path("python.safetensors"), "rb") as theirs:
                self.assertEqual(ours.read(), theirs.read())
        listed = self.lines(copy, "safetensors")
        self.assertEqual(listed[0], "metadata format pt")
        with safe_open(copy, "pt") as file:
            self.assertEqual(len(listed) - 1, len(file.keys()))

    def test_tied_tensors_are_stored_as_save_model_does(self):
        model = torch.nn.ModuleDict({"head": torch.nn.Linear(3, 4), "embed": torch.nn.Embedding(4, 3)})
        model["head"].weight = model["embed"].weight
        save_model(model, self.path("python.safetensors"))
        torch.save(model.state_dict(), self.path("tied.pt"))
        with open(self.copied(self.path("tied.pt")), "rb") as ours, open(self.path("python.safetensors"), "rb") as theirs:
            self.assertEqual(ours.read(), theirs.read())
        loaded = torch.load(self.copied(self.path("tied.pt"), "ours.pt"))
        self.assertEqual(loaded["head.weight"].data_ptr(), loaded["embed.weight"].data_ptr())
        self.assert_same(loaded, model.state_dict())

    def test_what_we_write_opens_with_the_defaults_of_torch_load(self):
        tensors = self.every_kind()
        save_file(tensors, self.path("python.safetensors"))
        copy = self.copied(self.path("python.safetensors"), "ours.pt")
        loaded = torch.load(copy)
        self.assertIs(type(loaded), dict)
        self.assert_same(dict(sorted(loaded.items())), dict(sorted(tensors.items())))
        self.assert_same(torch.load(copy, mmap=True), loaded)
        for tensor in loaded.values():
            self.assertTrue(tensor.is_contiguous())
            self.assertFalse(tensor.requires_grad)
        self.assert_holds(copy, tensors)

    def test_state_dicts_as_people_save_them(self):
        state = Net().state_dict()
        optimizer = torch.optim.AdamW(Net().parameters())
        around = {"epoch": 3, "loss": numpy.float64(0.5), "optimizer": optimizer.state_dict(), "args": {"lr": 1e-3},
                  "rng": torch.get_rng_state(), "bytes": b"123", "best": None, "names": ["a", (1, 2), {3}]}
        cases = {
            "ordered": (state, []),
            "dict": (dict(state), []),
            "parameters": ({k: torch.nn.Parameter(v) for k, v in state.items() if v.is_floating_point()}, []),
            "beside": (dict(state) | {"epoch": 3}, ["epoch"]),
            "deep": ({"model": {"state_dict": state, "version": 1}, "epoch": 1}, ["epoch", "model.version"]),
        }
        for key in ("model", "state_dict", "model_state_dict"):
            cases[key] = (around | {key: state}, list(around))
        for name, (saved, skipped) in cases.items():
            for protocol in (2, 3, 4, 5):
                with self.subTest(name, protocol=protocol):
                    path = self.path(f"{name}.pt")
                    torch.save(saved, path, pickle_protocol=protocol)
                    listed = self.lines(path, "state_dict")
                    self.assertEqual([s[8:] for s in listed if s.startswith("skipped")], skipped)
                    expected = {k: v for k, v in state.items() if name != "parameters" or v.is_floating_point()}
                    self.assertEqual([t.split()[1] for t in listed if t.startswith("tensor")], list(expected))
                    self.assert_holds(path, expected)

    def test_every_dtype_of_torch_save(self):
        torch.save(self.every_kind(), self.path("a.pt"))
        self.assert_holds(self.path("a.pt"), self.every_kind_again())

    def every_kind_again(self):
        torch.manual_seed(0)
        return self.every_kind()

    def test_views_and_shared_storages(self):
        base = torch.arange(60, dtype=torch.float32).reshape(3, 4, 5)
        views = {"base": base, "t": base[0].t(), "permuted": base.permute(2, 0, 1), "strided": base[:, 1::2, ::3],
                 "row": base[1], "expanded": base[0, 0].expand(7, 5), "window": base.view(-1).as_strided((5, 4), (2, 1)),
                 "channels": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last), "none": base[:0],
                 "last": base[2, 3, 4], "large": torch.rand(700, 900).t()}
        torch.save(views, self.path("a.pt"))
        self.assert_holds(self.path("a.pt"), views)

    def test_byte_order(self):
        tensors = {"a": torch.rand(3), "c": torch.rand(2, dtype=torch.complex64), "b": torch.tensor([1, 0], dtype=torch.bool)}
        swapped = {"a": tensors["a"].numpy().byteswap(), "c": tensors["c"].numpy().byteswap(), "b": tensors["b"].numpy()}
        torch.save({k: torch.from_numpy(v) for k, v in swapped.items()}, self.path("little.pt"))
        with zipfile.ZipFile(self.path("little.pt")) as little, zipfile.ZipFile(self.path("big.pt"), "w") as big:
            for name in little.namelist():
                big.writestr(name, "big" if name.endswith("byteorder") else little.read(name))
        self.assert_holds(self.path("big.pt"), tensors)

    def test_saved_on_a_gpu(self):
        state = Net().state_dict()
        torch.save(state, self.path("cpu.pt"))
        with zipfile.ZipFile(self.path("cpu.pt")) as cpu, zipfile.ZipFile(self.path("gpu.pt"), "w") as gpu:
            for name in cpu.namelist():
                gpu.writestr(name, cpu.read(name).replace(b"X\3\0\0\0cpu", b"X\6\0\0\0cuda:0"))
        with self.assertRaisesRegex(RuntimeError, "CUDA"):
            if torch.cuda.is_available():
                raise RuntimeError("CUDA is here")
            torch.load(self.path("gpu.pt"))
        self.assert_holds(self.path("gpu.pt"), state)

    def test_zip_of_64_bits(self):
        state = Net().state_dict()
        torch.save(state, self.path("small.pt"))
        with unittest.mock.patch("zipfile.ZIP64_LIMIT", 1), zipfile.ZipFile(self.path("small.pt")) as small:
            with zipfile.ZipFile(self.path("wide.pt"), "w") as wide:
                for name in small.namelist():
                    wide.writestr(name, small.read(name))
        self.assert_holds(self.path("wide.pt"), state)

    def test_compressed_records_are_refused_by_name(self):
        torch.save({"a": torch.ones(1000)}, self.path("small.pt"))
        with zipfile.ZipFile(self.path("small.pt")) as small:
            with zipfile.ZipFile(self.path("packed.pt"), "w", zipfile.ZIP_DEFLATED) as packed:
                for name in small.namelist():
                    packed.writestr(name, small.read(name))
        self.assertIn('record "small/data/0" is compressed', self.error(self.path("packed.pt")))

    def test_torchscript(self):
        for train in (True, False):
            net = Net().train(train)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.jit.script(net).save(self.path("net.ts"))
                state = torch.jit.load(self.path("net.ts")).state_dict()
            self.assertEqual(list(state), list(net.state_dict()))
            self.assert_holds(self.path("net.ts"), state)
            self.assertIn("skipped mask", self.lines(self.path("net.ts"), "torchscript"))

    def test_wrong_files_are_told_apart(self):
        net = Net()
        kinds = {"legacy (non-zip) PyTorch pickle": "legacy.pt", "whole pickled module": "module.pt",
                 "Python pickle": "plain.pkl"}
        torch.save(net.state_dict(), self.path("legacy.pt"), _use_new_zipfile_serialization=False)
        torch.save(net, self.path("module.pt"))
        with open(self.path("plain.pkl"), "wb") as file:
            pickle.dump({"a": 1}, file)
        for kind, name in kinds.items():
            self.assertIn(kind, self.error(self.path(name)))
        for value, message in (([torch.ones(1)], "holds no state dict"), (torch.ones(1), "a single tensor"),
                               ({"net": net.first}, "whole pickled module"), ({"a": os.system}, 'refuses "posix.system"'),
                               ({"a": torch.zeros(1, dtype=torch.complex128)}, "torch.ComplexDoubleStorage"),
                               ({"a": torch.eye(2).to_sparse()}, 'refuses "torch._utils._rebuild_sparse_tensor"'),
                               ({"a": torch.ones(1, dtype=torch.complex64).conj()}, "conjugated")):
            torch.save(value, self.path("a.pt"))
            self.assertIn(message, self.error(self.path("a.pt")))
        torch.save({"a": torch.ones(1000)}, self.path("a.pt"))
        os.truncate(self.path("a.pt"), 2000)
        self.assertRegex(self.error(self.path("a.pt")), "truncated: at least 4[0-9]{3} bytes are expected, the file has 2000")

    def test_objects_beside_a_state_dict_are_left_out(self):
        state, path = Net().state_dict(), self.path("a.pt")
        marker = self.path("executed")
        for rest in ({"args": argparse.Namespace(lr=1e-3), "epoch": 3}, {"rng": numpy.random.get_state()},
                     {"hyper": {"root": pathlib.Path("x")}, "when": datetime.date(2020, 1, 1)}, {"net": torch.nn.Linear(2, 2)},
                     {"fields": [Attributes], "rest": Attributes(a=1), "queue": collections.deque([1])},
                     {"run": Runs(f"touch {marker}")}):
            for protocol in (2, 3, 4, 5):
                torch.save({"state_dict": state} | rest, path, pickle_protocol=protocol)
                self.assert_holds(path, state)
                self.assertEqual(self.lines(path, "state_dict")[:len(rest)], [f"skipped {name}" for name in rest])
        self.assertFalse(os.path.exists(marker))
        for value, name in ((argparse.Namespace(), "argparse.Namespace"), (Runs("true"), "posix.system"),
                            (torch.ones(2).as_subclass(Subclass), "Subclass")):
            torch.save({"model": {"w": torch.ones(1), "extra": value}}, path)
            self.assertRegex(self.error(path), f'refuses "(__main__[.])?{name}" under "model.extra"')
        torch.save({"epoch": 3, "net": torch.nn.Linear(2, 2)}, path)
        self.assertIn('whole pickled module or object under "net" (class "torch.nn.modules.linear.Linear")', self.error(path))

    def test_the_state_dict_is_found_by_its_tensors(self):
        net, path = Net(), self.path("a.pt")
        state = net.state_dict()
        for parameter in net.parameters():
            parameter.grad = torch.ones_like(parameter)
        adam = torch.optim.Adam(net.parameters())
        adam.step()
        for saved in ({"module": state, "ds_version": "0.14"}, {"weight": state, "epoch": 3}, {"net": state},
                      {"net": state, "optimizer": adam.state_dict(), "rng": torch.get_rng_state(), "best": torch.tensor(0.5)},
                      {"net": state, "scores": {"best": torch.tensor(0.5)}, "classes": torch.ones(3)},
                      {"net": {"scale": torch.tensor(2.0)}, "epoch": 1}, {"checkpoint": {"state": {"net": state}}}, {"model": state, "model_ema": state},
                      {"state_dict": state, "callbacks": {"Stop": {"weights": torch.ones(3)}}}):
            torch.save(saved, path)
            self.assert_holds(path, saved["net"] if len(saved.get("net", ())) == 1 else state)
        other = {"w": torch.ones(2)}
        for saved, names in (({"params_ema": state, "params": other}, '"params_ema", "params"'),
                             ({"teacher": other, "student": state, "epoch": 1}, '"teacher", "student"'),
                             ({"x": {"g": state, "d": other}}, '"x.g", "x.d"'),
                             ({"model": state, "state_dict": other}, '"model", "state_dict"')):
            torch.save(saved, path)
            self.assertIn(f"holds several state dicts, {names}: name the one to read (LoadOptions::entry, params --entry)",
                          self.error(path))
            for name in names.replace('"', "").split(", "):
                expected = other if (saved | saved.get("x", {})).get(name.split(".")[-1]) is other else state
                listed = [line.split()[1] for line in self.lines(path, "state_dict", name) if line.startswith("tensor")]
                self.assertEqual(listed, list(expected))
        self.assertIn('holds no entry "z"; its keys are "model", "state_dict"', self.error(path, "z"))
        save_file(other, self.path("b.safetensors"))
        self.assertIn('has no entry "w"', self.error(self.path("b.safetensors"), "w"))
        torch.save(dict(state) | {"extra": {"w": torch.ones(1)}}, path)
        self.assert_holds(path, state)

    def test_state_dicts_of_cpp_programs(self):
        # torch::pickle_save writes what this does: types stand beside lists and dicts.
        state = dict(Net().state_dict())
        for saved in (state, {"model": state}, {"net": state, "scores": {"best": torch.tensor(0.5)}}):
            with open(self.path("a.pt"), "wb") as file:
                file.write(torch._C._pickle_save(saved))
            self.assert_holds(self.path("a.pt"), state)
        with open(self.path("a.pt"), "wb") as file:
            file.write(torch._C._pickle_save([torch.ones(2)]))
        self.assertIn("holds no state dict but another Python value", self.error(self.path("a.pt")))

    def test_frozen_torchscript_has_constants(self):
        net = Net().eval()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.freeze(torch.jit.script(net)).save(self.path("frozen.ts"))
            torch.jit.freeze(torch.jit.script(net), preserved_attrs=["training"]).save(self.path("mode.ts"))
            torch.jit.trace(net.first, torch.ones(2, 3)).save(self.path("traced.ts"))
        lines = self.lines(self.path("frozen.ts"), "frozen_torchscript")
        self.assertEqual(lines[0].rsplit(" ", 3)[0], "tensor CONSTANTS.c0")
        self.assertEqual(self.lines(self.path("mode.ts"), "frozen_torchscript"), lines)
        stored = load_file(self.copied(self.path("frozen.ts")))
        self.assertTrue(any(torch.equal(value, net.first.weight) for value in stored.values()))
        self.lines(self.path("traced.ts"), "torchscript")

    def test_shards_of_both_kinds(self):
        tensors = {"a": torch.rand(2), "b": torch.rand(3)}
        for suffix, save in (("safetensors", save_file), ("bin", torch.save)):
            names = {k: f"part-{k}.{suffix}" for k in tensors}
            for key, name in names.items():
                save({key: tensors[key]}, self.path(name))
            stem = {"safetensors": "model", "bin": "pytorch_model"}[suffix]
            with open(self.path(f"{stem}.{suffix}.index.json"), "w") as file:
                json.dump({"metadata": {"total_size": 20}, "weight_map": names}, file, indent=2)
            self.assert_holds(self.path(f"{stem}.{suffix}.index.json"), tensors)
            self.assertIn("metadata total_size 20", self.lines(self.folder, "safetensors"))


if __name__ == "__main__":
    unittest.main()
