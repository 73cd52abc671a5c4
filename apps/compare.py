#!/usr/bin/env python3
"""Holds a model's numbers against the lesson's: an eager Python model (lesson.py) gets the same weights, both run on the
same random tokens, with and without padding, and the largest differences are printed.

    compare.py model.ts           an exported model (train --export) beside the lesson with its weights
    compare.py FOLDER             what the C++ program wrote of its model (train --out: example.safetensors) beside the
                                  lesson with the weights of the folder (config.json, model.safetensors)
    compare.py FOLDER model.ts    an exported model beside the lesson with the weights of the folder

Exit code 1: a difference is above the tolerance, or something is wrong with a file. Needs only torch.
"""

import argparse
import json
import pathlib
import struct
import sys
import warnings

warnings.filterwarnings("ignore")  # of TorchScript, which is deprecated, and of a torch without numpy

import torch

import lesson

TOLERANCE = {torch.float: 1e-5, torch.double: 1e-12}  # times the largest value, or 1
DTYPES = {"F64": torch.double, "F32": torch.float, "F16": torch.half, "BF16": torch.bfloat16, "I64": torch.long,
          "BOOL": torch.bool}
BATCH, LENGTH = 8, 16
SIZES = {"vocab_size": 1, "d_model": 1, "num_heads": 1, "num_layers": 1, "d_ff": 0, "max_positions": 0,
         "num_segments": 0, "num_classes": 0}  # with the least that each may be
CHOICES = {"activation": tuple(lesson.ACTIVATIONS), "norm_placement": ("pre", "post"),
           "position": ("sinusoidal", "learned", "none"), "head": ("none", "token", "sequence_mean", "sequence_first"),
           "final_norm": (None, False, True), "attention_bias": (False, True), "feed_forward_bias": (False, True),
           "embedding_norm": (False, True)}
# What Python and torch throw at values in a file that nobody thought of.
NOT_AS_EXPECTED = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class Wrong(Exception):
    """What is wrong, in one line."""


def read_safetensors(path):
    """Name to tensor. The file: 8 bytes with the length of the header, the header (JSON), the tensors."""
    data = bytearray(path.read_bytes())
    if len(data) < 8 or struct.unpack_from("<Q", data)[0] > len(data) - 8:
        raise Wrong(f"{path}: not a safetensors file, or cut off")
    start = 8 + struct.unpack_from("<Q", data)[0]
    try:
        header = json.loads(data[8:start])
        tied = header.pop("__metadata__", {})
        tensors = {}
        for name, info in header.items():
            begin, end = (start + offset for offset in info["data_offsets"])
            elements = torch.frombuffer(data[begin:end], dtype=DTYPES[info["dtype"]])
            tensors[name] = elements.view(info["shape"])
        # Of tied tensors one is stored; the metadata says "other name": "stored name".
        return tensors | {name: tensors[kept] for name, kept in tied.items() if kept in tensors}
    except NOT_AS_EXPECTED as error:
        raise Wrong(f"{path}: not a safetensors file of such tensors as these ({error!r})") from None


def read_script(path):
    """The exported model, its config and its weights."""
    extra = {"config.json": ""}
    try:
        with path.open("rb") as file:  # whose name may be no text
            script = torch.jit.load(file, map_location="cpu", _extra_files=extra)
    except (RuntimeError, ValueError) as error:
        raise Wrong(f"{path}: not a TorchScript file ({str(error).splitlines()[0]})") from None
    return script, model_config(path, extra["config.json"]), script.state_dict()


def model_config(path, text):
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        raise Wrong(f"{path}: holds no config.json that can be read") from None
    if not isinstance(config, dict) or config.get("model_type") != "prenorm":
        raise Wrong(f"{path}: not the config of a prenorm model")
    for name in SIZES | CHOICES:
        if name not in config:
            raise Wrong(f"{path}: the config has no {name!r}")
    for name, values in CHOICES.items():
        shown, choices = json.dumps(config[name]), [json.dumps(value) for value in values]
        if shown not in choices:
            raise Wrong(f"{path}: {name} is {shown}, not one of {', '.join(choices)}")
    for name, least in SIZES.items():
        if type(config[name]) is not int or not least <= config[name] < 2**63:
            raise Wrong(f"{path}: {name} is {json.dumps(config[name])}, not a whole number from {least}")
    if config["d_model"] % config["num_heads"]:
        raise Wrong(f"{path}: d_model {config['d_model']} is not divisible by num_heads {config['num_heads']}")
    return config


def read_folder(folder):
    config, weights = folder / "config.json", folder / "model.safetensors"
    for path in (config, weights):
        if not path.is_file():
            raise Wrong(f"no such file: {path}")
    return model_config(config, config.read_bytes()), read_safetensors(weights)


def lesson_model(config, weights):
    if config["num_layers"] > len(weights):
        raise Wrong(f"num_layers is {config['num_layers']}; the weights are only {len(weights)} tensors")
    try:
        with torch.device("meta"):  # takes no memory, whatever the config says; the weights take their places
            model = lesson.EncoderModel(config)
    except KeyError as error:
        raise Wrong(f"the config has no {error}") from None
    except NOT_AS_EXPECTED as error:
        raise Wrong(f"the config is of no model: {error}") from None
    try:
        model.load_state_dict(weights, strict=True, assign=True)
    except RuntimeError as error:
        raise Wrong(f"the weights are not those of the config: {error}") from None
    return model.eval()


def inputs(config):
    """Random tokens, which of them are real, and the segment ids that the model takes beside."""
    length = min(LENGTH, config["max_positions"]) if config["position"] == "learned" else LENGTH
    ids = torch.randint(config["vocab_size"], (BATCH, length))
    real = torch.arange(length) < torch.randint(1, length + 1, (BATCH, 1))
    segments = [torch.randint(config["num_segments"], ids.shape)] if config["num_segments"] else []
    return ids, real, segments


def exported(script, config):
    """The tokens, which of them are real, the segment ids, and the exported model's output for a type and padding."""
    def output(dtype, padding):
        return script.to(dtype)(ids, padding, *segments)
    ids, real, segments = inputs(config)
    return ids, real, segments, output


def written(path):
    """The same of what the C++ program wrote."""
    if not path.is_file():
        raise Wrong(f"no such file: {path}")
    example = read_safetensors(path)

    def name_of(dtype, padding):
        return f"{str(dtype).removeprefix('torch.')}_{'none' if padding is None else 'padding'}"
    for name in ["ids", "padding"] + [name_of(dtype, padding) for dtype in TOLERANCE for padding in (None, True)]:
        if name not in example:
            raise Wrong(f"{path}: holds no {name!r}")
    return example["ids"], example["padding"], [], lambda dtype, padding: example[name_of(dtype, padding)]


def rows(model, ids, real, segments, output):
    """(type, mask, shape, largest value, largest difference, allowed difference) of each run."""
    for dtype, factor in TOLERANCE.items():
        model.to(dtype)
        for mask, padding in (("none", None), ("padding", real)):
            shown = None if padding is None else padding[:, None, None, :]
            expected = model(ids, shown, segments[0] if segments else None, padding)
            actual = output(dtype, padding)
            if actual.shape != expected.shape:
                raise Wrong(f"the output is {list(actual.shape)}, the lesson's {list(expected.shape)}")
            largest = expected.abs().max().item()
            difference = (actual - expected).abs().max().item()
            name = str(dtype).removeprefix("torch.")
            yield name, mask, list(actual.shape), largest, difference, factor * max(1.0, largest)


def print_table(table):
    print(f"{'type':<9}{'mask':<9}{'output':<14}{'largest value':>13}{'largest difference':>20}{'allowed':>10}")
    for dtype, mask, shape, largest, difference, allowed in table:
        verdict = "" if difference <= allowed else "  TOO LARGE"
        print(f"{dtype:<9}{mask:<9}{str(shape):<14}{largest:>13.4g}{difference:>20.1e}{allowed:>10.1e}{verdict}")


def compare(model_path, script_path):
    folder = model_path.is_dir()
    if not folder and script_path:
        raise Wrong(f"{model_path} is not a folder: a second file goes with a folder of weights only")
    if folder:
        config, weights = read_folder(model_path)
    if folder and not script_path:
        other, script = model_path / "example.safetensors", None
    else:
        other = script_path or model_path
        if not other.is_file():
            raise Wrong(f"no such file: {other}")
        script, script_config, script_weights = read_script(other)
        if not folder:
            config, weights = script_config, script_weights
        elif config != script_config:
            fields = [key for key in config | script_config if config.get(key) != script_config.get(key)]
            raise Wrong(f"{model_path} and {other} are different models: {', '.join(fields)} differ")
    model = lesson_model(config, weights)
    count = sum(parameter.numel() for parameter in model.parameters())
    try:
        with torch.no_grad():
            table = list(rows(model, *(exported(script.eval(), config) if script is not None else written(other))))
    except NOT_AS_EXPECTED as error:
        raise Wrong(f"{other} does not go with the model of {model_path}: {error}") from None
    print(f"{other} beside the lesson in eager Python with the weights of {model_path}:\n"
          f"{config['norm_placement']}-norm, {config['num_layers']} layers, d_model {config['d_model']}, "
          f"{count:,} parameters\n")
    print_table(table)
    equal = all(difference <= allowed for *_, difference, allowed in table)  # false where it is nan
    print("\nequal within the tolerances" if equal else "\nDIFFERENT")
    return 0 if equal else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.error = lambda message: parser.exit(2, f"compare: {message}\n")
    parser.add_argument("model", type=pathlib.Path, help="exported model.ts, or folder with weights")
    parser.add_argument("script", type=pathlib.Path, nargs="?", help="exported model to hold a folder's weights against")
    parser.add_argument("--seed", type=int, default=1, help="of the random tokens (default: 1)")
    arguments = parser.parse_args()
    if not 0 <= arguments.seed < 2**64:
        parser.error(f"--seed is {arguments.seed}, not from 0 to 2**64 - 1")
    torch.manual_seed(arguments.seed)
    try:
        return compare(arguments.model, arguments.script)
    except (Wrong, OSError) as error:
        print("compare:", *str(error).splitlines(), file=sys.stderr)  # one line, whatever names and messages hold
        return 1


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="surrogateescape")  # names of files are bytes
    sys.exit(main())
