"""The files of a training: policies in two formats, and the learning curve as a picture."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain, count
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from arkml.base.handler_errors import is_of_handler
from arkml.base.output_files import write_file
from arkml.errors import UsageError
from arkml.training.evaluation_traces import FOLDER
from arkml.training.pictures import as_png, can_draw, new_figure, note_empty
from arkml.training.results import Series

if TYPE_CHECKING:
    from arkml.training.outcome import OtherPolicy, RunOutcome
    from arkml.training.training_options import TrainingOptions

CURVE = "learning_curve.png"

_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_MOST_LETTERS = 60


def write_files(
    options: TrainingOptions,
    outcome: RunOutcome,
    stem: str,
    others: Mapping[str, OtherPolicy] = MappingProxyType({}),
) -> tuple[dict[str, Path], list[UsageError]]:
    """
    Write the policies and the learning curve of a training.

    The curve needs matplotlib.

    Args:
        options: The options of the training.
        outcome: The outcome of its run.
        stem: The name of the files: `walker.onnx` for "walker".
        others: The policies of other runs by their names: `walker.goblin.onnx` for "goblin".

    Returns:
        The paths by "onnx", "crvo", "last" and "curve", with the folder of traces by "traces", and
        by "run " with its name for each other run; and an error for each file that cannot be
        written.

    """
    written: dict[str, Path] = {}
    errors: list[UsageError] = []

    def write(name: str, path: Path, make: Callable[[], bytes]) -> None:
        try:
            write_file(path, make())
            written[name] = path
        except UsageError as error:
            errors.append(error)
        except Exception as error:  # the other files are written all the same
            if is_of_handler(error):
                raise
            text = f"{path} cannot be made: {type(error).__name__} {error}".rstrip()
            errors.append(UsageError(text))

    base = options.directory / stem
    for suffix in ("onnx", "crvo"):
        path = base.with_name(f"{base.name}.{suffix}")
        write(suffix, path, partial(packed, outcome.best, path))
    write("last", base.with_name(f"{base.name}.last.onnx"), lambda: outcome.last)
    taken = {"last"}
    for name, other in others.items():
        path = base.with_name(f"{base.name}.{_plain(name, taken)}.onnx")
        write(f"run {name}", path, partial(bytes, other.onnx))
    if can_draw():
        title = f"{outcome.info.name} ({options.name})"
        draw = partial(draw_curve, title, outcome.training, outcome.evaluations)
        write("curve", options.directory / CURVE, draw)
    if options.trace_every is not None and (traces := options.directory / FOLDER).is_dir():
        written["traces"] = traces
    return written, errors


def _plain(name: str, taken: set[str]) -> str:
    """Return a name that a guest gave as part of a file's name, other than those `taken`."""
    plain = _OTHER.sub("_", name)[:_MOST_LETTERS] or "run"
    ways = chain([plain], (f"{plain}_{number}" for number in count(2)))
    found = next(way for way in ways if way.lower() not in taken)
    taken.add(found.lower())
    return found


def packed(data: bytes, target: Path) -> bytes:
    """Return an ONNX file in the format of `target`: packed for `walker.crvo`, else unchanged."""
    if target.suffix != ".crvo":
        return data
    from arkml.policies.cervo import pack_onnx

    return pack_onnx(data)


def draw_curve(title: str, training: Series, evaluations: Series) -> bytes:
    """Return a PNG of mean returns over rows. Raises matplotlib's errors."""
    figure = new_figure(8, 4.5)
    axes = figure.add_subplot()
    for label, series, style in (
        ("training, mean of 100 episodes", training, "-"),
        ("evaluation, without noise", evaluations, "o-"),
    ):
        if series:
            steps, values = zip(*series, strict=True)
            axes.plot(steps, values, style, label=label, markersize=4)
    axes.set(title=title, xlabel="rows learned from", ylabel="mean return")
    axes.grid(alpha=0.3)
    if training or evaluations:
        axes.legend(loc="lower right")
    else:
        note_empty(axes)
    return as_png(figure)
