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
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        raise Wrong(f"{path}: not a safetensors file of such tensors as these ({error!r})") from None
    # Of tied tensors one is stored; the metadata says "other name": "stored name".
    return tensors | {name: tensors[kept] for name, kept in tied.items() if kept in tensors}


def read_script(path):
    """The exported model, its config and its weights."""
    extra = {"config.json": ""}
    try:
        script = torch.jit.load(str(path), map_location="cpu", _extra_files=extra)
    except (RuntimeError, ValueError) as error:
        raise Wrong(f"{path}: not a TorchScript file ({str(error).splitlines()[0]})") from None
    return script, model_config(path, extra["config.json"]), script.state_dict()


def model_config(path, text):
    try:
        config = json.loads(text)
    except ValueError:
        raise Wrong(f"{path}: holds no config.json that can be read") from None
    if not isinstance(config, dict) or config.get("model_type") != "prenorm":
        raise Wrong(f"{path}: not the config of a prenorm model")
    return config


def read_folder(folder):
    config, weights = folder / "config.json", folder / "model.safetensors"
    for path in (config, weights):
        if not path.is_file():
            raise Wrong(f"no such file: {path}")
    return model_config(config, config.read_text(encoding="utf-8")), read_safetensors(weights)


def lesson_model(config, weights):
    try:
        model = lesson.EncoderModel(config)
        model.load_state_dict(weights, strict=True)
    except KeyError as error:
        raise Wrong(f"the config has no {error}") from None
    except RuntimeError as error:
        raise Wrong("the weights are not those of the config: " + " ".join(str(error).split())) from None
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

    def output(dtype, padding):
        return example[f"{str(dtype).removeprefix('torch.')}_{'none' if padding is None else 'padding'}"]
    try:
        return example["ids"], example["padding"], [], output
    except KeyError as error:
        raise Wrong(f"{path}: holds no {error}") from None


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
        other = model_path / "example.safetensors"
        sides = written(other)
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
        sides = exported(script.eval(), config)
    model = lesson_model(config, weights)
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"{other} beside the lesson in eager Python with the weights of {model_path}:\n"
          f"{config['norm_placement']}-norm, {config['num_layers']} layers, d_model {config['d_model']}, "
          f"{count:,} parameters\n")
    with torch.no_grad():
        table = list(rows(model, *sides))
    print_table(table)
    equal = all(difference <= allowed for *_, difference, allowed in table)  # false where it is nan
    print("\nequal within the tolerances" if equal else "\nDIFFERENT")
    return 0 if equal else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, help="exported model.ts, or folder with weights")
    parser.add_argument("script", type=pathlib.Path, nargs="?", help="exported model to hold a folder's weights against")
    parser.add_argument("--seed", type=int, default=1, help="of the random tokens (default: 1)")
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    try:
        return compare(arguments.model, arguments.script)
    except (Wrong, OSError) as error:
        print(f"compare: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
