"""Exported TorchScript beside the C++ modules it came from and beside the lesson: script_exchange.py SCRIPT_EXPORT_PROGRAM"""

import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings
import zipfile

import torch
from torch import nn

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "apps"))
import lesson

warnings.filterwarnings("ignore", category=DeprecationWarning)  # TorchScript itself
torch.set_num_threads(1)
TOLERANCE = {torch.float: 1e-5, torch.double: 1e-12}


def lesson_of(config):
    """The lesson's module of a config.json, and how it is called with what the exported forward takes."""
    kind = config.pop("module", "EncoderModel")
    if kind == "EncoderModel":
        model = lesson.EncoderModel(config)

        def forward(ids, padding=None, segments=None):
            mask = None if padding is None else padding[:, None, None, :]
            real = padding if padding is None or padding.dtype == torch.bool else padding > -100
            if mask is not None and mask.is_floating_point():
                mask = mask.masked_fill(mask <= -100, -torch.inf)
            return model(ids, mask, segments, real)
        return model, forward
    if kind == "FeedForward":
        model = lesson.FeedForward(**config)
        return model, model
    if kind == "MultiHeadAttention":
        model = lesson.MultiHeadAttention(**config)
        shown = lambda x, mask=None: model(x, mask)[0]
    elif kind == "EncoderLayer":
        model = shown = lesson.EncoderLayer(config)
    else:
        layers, last = config["layers"], config["layers"][-1]
        bias = config.get("final_norm_bias", last.get("norm_bias", True))
        model = shown = lesson.Encoder(last | {"num_layers": 0, "final_norm": config["final_norm"], "norm_bias": bias})
        model.layers = nn.ModuleList(map(lesson.EncoderLayer, layers))
    return model, lambda x, mask=None: shown(x, mask.unsqueeze(1) if mask is not None and mask.dim() == 3 else mask)


class Case:
    def __init__(self, path):
        self.path = path
        extra = {"config.json": ""}
        self.script = torch.jit.load(path, _extra_files=extra)
        self.config = json.loads(extra["config.json"])
        self.tensors = torch.load(path.with_suffix(".pt"), weights_only=False)
        self.state = {key.removeprefix("state."): value for key, value in self.tensors.items() if key[:6] == "state."}
        self.dtype = next(iter(self.state.values())).dtype
        self.segments = self.config.get("num_segments", 0) > 0
        self.masked = self.config.get("module") != "FeedForward"

    def calls(self):
        """(name, arguments, the C++ output) of each run; the mask is not among the arguments where there is none."""
        for key, expected in self.tensors.items():
            if not key.startswith("output "):
                continue
            name = key.removeprefix("output ")
            size = name.split("/")[0]
            arguments = [self.tensors["input " + size]]
            mask = self.tensors.get("mask " + name)
            if mask is not None or self.segments:
                arguments.append(mask)
            if self.segments:
                arguments.append(self.tensors["segments " + size])
            yield name, arguments, expected


def each_case(test):
    """Runs a test on every exported file."""
    @functools.wraps(test)
    def run(self):
        for path in self.paths:
            case = Case(path)
            with self.subTest(config=case.config, dtype=case.dtype), torch.no_grad():
                test(self, case)
    return run


def first(output):
    return output[0] if isinstance(output, tuple) else output


class Script(unittest.TestCase):
    program = ""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        subprocess.run([cls.program, folder.name], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        cls.paths = sorted(pathlib.Path(folder.name).glob("*.ts"))
        assert len(cls.paths) == 50, cls.paths

    def check(self, got, want, tolerance):
        self.assertEqual((got.shape, got.dtype), (want.shape, want.dtype))
        self.assertLessEqual((got - want).abs().max().item(), tolerance * max(1.0, want.abs().max().item()))

    @each_case
    def test_state_dicts_have_the_same_keys_in_the_same_order_and_the_same_values(self, case):
        state = case.script.state_dict()
        self.assertEqual(list(state), list(case.state))
        for key, value in state.items():
            self.assertTrue(torch.equal(value, case.state[key]))
            self.assertEqual(value.dtype, case.dtype)
        self.assertEqual([name for name, _ in case.script.named_parameters()], list(case.state))
        self.assertTrue(all(parameter.requires_grad for parameter in case.script.parameters()))

    @each_case
    def test_the_file_starts_in_eval_mode_and_gives_the_numbers_of_cpp(self, case):
        self.assertFalse(any(module.training for module in case.script.modules()))
        for name, arguments, expected in case.calls():
            with self.subTest(run=name):
                got = first(case.script(*arguments))
                self.check(got, expected, TOLERANCE[case.dtype])
                self.assertTrue(torch.isfinite(got).all())
                if len(arguments) == 1 and case.masked:
                    self.assertTrue(torch.equal(first(case.script(arguments[0], None)), got))

    @each_case
    def test_masks_matter(self, case):
        unmasked = {name: output for name, _, output in case.calls() if name.endswith("/none")}
        for name, _, output in case.calls():
            if not name.endswith("/none") and not name.startswith("one/"):
                self.assertGreater((output - unmasked[name.split("/")[0] + "/none"]).abs().max(), 1e-3, name)

    @each_case
    def test_the_lesson_built_from_the_config_inside_gives_the_same_numbers(self, case):
        model, forward = lesson_of(case.config)
        model.to(case.dtype).eval().load_state_dict(case.script.state_dict(), strict=True)
        for name, arguments, expected in case.calls():
            with self.subTest(run=name):
                if len(arguments) > 1 and arguments[1] is not None and arguments[1].is_floating_point():
                    arguments[1] = arguments[1].to(case.dtype)
                self.check(first(case.script(*arguments)), forward(*arguments), TOLERANCE[case.dtype])

    @each_case
    def test_training_mode_drops_what_the_lesson_drops(self, case):
        """The same seed gives the same numbers: every place and every rate. (C++ has a dropout of its own.)"""
        case.script.train()
        self.assertTrue(all(module.training for module in case.script.modules()))
        model, forward = lesson_of(case.config)
        model.to(case.dtype).train().load_state_dict(case.script.state_dict(), strict=True)
        for name, arguments, _ in case.calls():
            with self.subTest(run=name):
                if len(arguments) > 1 and arguments[1] is not None and arguments[1].is_floating_point():
                    arguments[1] = arguments[1].to(case.dtype)
                torch.manual_seed(7)
                expected = forward(*arguments)
                torch.manual_seed(7)
                self.check(first(case.script(*arguments)), expected, TOLERANCE[case.dtype])
        case.script.eval()
        for name, arguments, expected in case.calls():
            self.check(first(case.script(*arguments)), expected, TOLERANCE[case.dtype])
            break

    @each_case
    def test_gradients_flow(self, case):
        _, arguments, _ = next(case.calls())
        with torch.enable_grad():
            first(case.script.train()(*arguments)).sum().backward()
        for name, parameter in case.script.named_parameters():
            self.assertIsNotNone(parameter.grad, name)

    @each_case
    def test_frozen_and_in_other_types(self, case):
        frozen = torch.jit.freeze(case.script)
        doubled = case.script.double()
        for name, arguments, expected in case.calls():
            with self.subTest(run=name):
                self.check(first(frozen(*arguments)), expected, TOLERANCE[case.dtype])
                double = [a.double() if a is not None and a.is_floating_point() else a for a in arguments]
                self.check(first(doubled(*double)), expected.double(), TOLERANCE[case.dtype])
        for dtype in (torch.bfloat16, torch.half):
            lower = case.script.to(dtype)
            for name, arguments, expected in case.calls():
                if not name.startswith("small/"):
                    continue
                with self.subTest(run=name, dtype=dtype):
                    low = [a.to(dtype) if a is not None and a.is_floating_point() else a for a in arguments]
                    self.check(first(lower(*low)).to(case.dtype), expected, 0.2)

    @each_case
    def test_code_is_readable_and_names_no_device(self, case):
        with zipfile.ZipFile(case.path) as archive:
            code = "\n".join(archive.read(name).decode() for name in archive.namelist() if name.endswith(".py"))
        for device in ("cpu", "cuda", "torch.device("):
            self.assertNotIn(device, code)
        self.assertIn("def forward(self", code)
        self.assertNotIn("torch_mangle", code)
        self.assertNotIn(str(pathlib.Path(__file__).resolve().parents[2]), code)

    @each_case
    def test_every_device_works(self, case):
        """On `meta`, which has no elements, a tensor of another device in the middle would be an error."""
        script = torch.jit.load(case.path, map_location="meta")
        for name, arguments, expected in case.calls():
            with self.subTest(run=name):
                got = first(script(*(a if a is None else a.to("meta") for a in arguments)))
                self.assertEqual((got.device.type, got.shape), ("meta", expected.shape))

    @each_case
    def test_a_layer_reads_like_the_lesson(self, case):
        if case.config.get("module") == "EncoderLayer":
            self.assertIn("(self).attention_sublayer(x, mask, )", case.script.code)
            self.assertIn("(self).feed_forward_sublayer(", case.script.code)

    @unittest.skipUnless(torch.cuda.is_available(), "no CUDA device")
    @each_case
    def test_cuda(self, case):
        case.script.cuda()
        for name, arguments, expected in case.calls():
            with self.subTest(run=name):
                got = first(case.script(*(a if a is None else a.cuda() for a in arguments)))
                self.check(got.cpu(), expected, 1e-4 if case.dtype == torch.float else 1e-10)


if __name__ == "__main__":
    Script.program = sys.argv.pop(1)
    unittest.main()
