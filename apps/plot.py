#!/usr/bin/env python3
"""Draws what training runs wrote down in metrics.jsonl: loss, accuracy, learning rate and gradient norm by step.

    plot.py runs/sort                          writes runs/sort/metrics.png
    plot.py runs/pre runs/post --out both.png  two runs in one picture, a colour each

Thin lines are single training steps, thick ones their running mean, dots evaluations. Needs only matplotlib.
"""

import argparse
import json
import math
import os
import pathlib
import sys
import warnings

try:
    import matplotlib
    import numpy
    from matplotlib.figure import Figure  # without pyplot: no window, no display
except ImportError:
    sys.exit("plot: matplotlib is missing: pip install matplotlib")

warnings.filterwarnings("ignore")  # of numbers too large to draw, which is an error

PANELS = (  # title, key of a training step, key of an evaluation, factor
    ("loss (nats)", "loss", "evaluation_loss", 1),
    ("accuracy (%)", "accuracy", "evaluation_accuracy", 100),
    ("learning rate", "learning_rate", None, 1),
    ("gradient norm", "gradient_norm", None, 1))


class Wrong(Exception):
    """What is wrong, in one line."""


def metrics_path(run):
    if not run.exists():
        raise Wrong(f"no such folder or file: {run}")
    path = run / "metrics.jsonl" if run.is_dir() else run
    if not path.is_file():
        raise Wrong(f"{run} holds no metrics.jsonl")
    return path


def read_metrics(path):
    """The objects of the lines. The last may be torn, if its end of line is missing: its run goes on or was killed."""
    entries = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                entries.append(metrics_of(line))
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            if number < len(lines):
                raise Wrong(f"{path}:{number}: not a line of metrics: {error}") from None
    if not entries:
        raise Wrong(f"{path}: holds no lines")
    return entries


def metrics_of(line):
    entry = json.loads(line)
    if not isinstance(entry, dict) or "step" not in entry:
        raise ValueError("no object with a step")
    keys = ["step"] + [key for _, *keys, _ in PANELS for key in keys if key in entry]
    # null stands for a number that is none, and leaves a gap as infinity does.
    return {key: math.nan if entry[key] is None or math.isinf(entry[key]) else float(entry[key]) for key in keys}


def series(entries, key, factor):
    """The steps of the lines that have the key, and its values."""
    found = [entry for entry in entries if key in entry]
    return [entry["step"] for entry in found], [factor * entry[key] for entry in found]


def running_mean(values, count):
    """The mean of each value and the up to `count - 1` before it. Gaps are left out, and stay."""
    values, window = numpy.array(values, dtype=float), numpy.ones(min(count, len(values)))
    known = ~numpy.isnan(values)
    if not known.any():
        return values
    total = numpy.convolve(numpy.where(known, values, 0), window)[:len(values)]
    number = numpy.convolve(known, window)[:len(values)]
    return numpy.where(known, total / numpy.maximum(number, 1), math.nan)


def run_names(paths):
    """Of each run's path the shortest end that tells it from the others."""
    whole = [path.resolve() for path in paths]
    parts = [(path.parent if path.name == "metrics.jsonl" else path).parts for path in whole]
    names = []
    for own in parts:
        others = [other for other in parts if other != own]
        count = next((n for n in range(1, len(own)) if all(own[-n:] != other[-n:] for other in others)), len(own))
        name = str(pathlib.PurePath(*own[-count:]))
        names.append(os.fsencode(name).decode(errors="replace"))  # names of folders are bytes
    return names


def figure_of(runs, smooth):
    """The picture of runs, each the entries of a metrics.jsonl by its name: [(name, entries), ...]."""
    figure = Figure(figsize=(12, 8), layout="constrained")
    palette = matplotlib.colormaps["tab10"] if len(runs) <= 10 else matplotlib.colormaps["turbo"].resampled(len(runs))
    for axes, (title, key, evaluation_key, factor) in zip(figure.subplots(2, 2, sharex=True).flat, PANELS):
        thick = []
        for number, (_, entries) in enumerate(runs):
            color = palette(number)
            steps, values = series(entries, key, factor)
            if key != "learning_rate":
                axes.plot(steps, values, color=color, linewidth=0.6, alpha=0.4)
                values = running_mean(values, smooth)
            thick += axes.plot(steps, values, color=color, linewidth=1.8)
            if evaluation_key:
                axes.plot(*series(entries, evaluation_key, factor), "o--", color=color, linewidth=1, markersize=4)
        norms = [entry[key] for _, entries in runs for entry in entries if not math.isnan(entry.get(key, math.nan))]
        if key == "gradient_norm" and norms and 0 < 10 * min(norms) < max(norms):
            axes.set_yscale("log")
        axes.set(title=title, xlabel="step")
        axes.tick_params(labelbottom=True)
        axes.grid(alpha=0.3)
    if len(runs) > 1:
        legend = figure.legend(thick, [name for name, _ in runs], loc="outside upper center", ncols=min(4, len(runs)))
        for text in legend.get_texts():
            text.set_parse_math(False)  # a name's $ is no formula
    return figure


def write(figure, path):
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        figure.savefig(temporary, format=path.suffix[1:].lower(), dpi=120)
        temporary.replace(path)
    except (OSError, ValueError, ArithmeticError) as error:  # of a format that there is not, of numbers too large
        raise Wrong(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None
    finally:
        if temporary.exists():
            temporary.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.error = lambda message: parser.exit(2, f"plot: {message}\n")
    parser.add_argument("runs", type=pathlib.Path, nargs="+", metavar="RUN",
                        help="folder of a run, or its metrics.jsonl")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="default: metrics.png beside the first run's")
    parser.add_argument("--smooth", type=int, default=25, metavar="N", help="steps in the running mean (default: 25)")
    arguments = parser.parse_args()
    if arguments.smooth < 1:
        parser.error(f"--smooth is {arguments.smooth}, less than 1")
    try:
        paths = [metrics_path(run) for run in arguments.runs]
        runs = list(zip(run_names(paths), map(read_metrics, paths)))
        out = arguments.out or paths[0].with_name("metrics.png")
        if not out.name or out.is_dir():
            raise Wrong(f"--out {out} is a folder, not a file")
        write(figure_of(runs, arguments.smooth), out)
        print(out, flush=True)
    except (Wrong, OSError) as error:
        print("plot:", *str(error).splitlines(), file=sys.stderr)  # one line, whatever names hold
        return 1
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="surrogateescape")  # names of files are bytes
    sys.exit(main())
