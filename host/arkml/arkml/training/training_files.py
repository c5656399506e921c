"""The files of a training: policies in two formats, and the learning curve as a picture."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from arkml.base.handler_errors import is_of_handler
from arkml.base.output_files import write_file
from arkml.errors import UsageError
from arkml.training.evaluation_traces import FOLDER
from arkml.training.pictures import as_png, can_draw, new_figure, note_empty
from arkml.training.results import Series

if TYPE_CHECKING:
    from arkml.training.outcome import RunOutcome
    from arkml.training.training_options import TrainingOptions

CURVE = "learning_curve.png"


def write_files(
    options: TrainingOptions, outcome: RunOutcome, stem: str
) -> tuple[dict[str, Path], list[UsageError]]:
    """
    Write the policies, such as `walker.onnx` for the `stem` "walker", and the learning curve.

    The curve needs matplotlib. Returns the paths by "onnx", "crvo", "last" and "curve", with the
    folder of traces by "traces", and an error for each file that cannot be written.
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
    if can_draw():
        title = f"{outcome.info.name} ({options.name})"
        draw = partial(draw_curve, title, outcome.training, outcome.evaluations)
        write("curve", options.directory / CURVE, draw)
    if options.trace_every is not None and (traces := options.directory / FOLDER).is_dir():
        written["traces"] = traces
    return written, errors


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
