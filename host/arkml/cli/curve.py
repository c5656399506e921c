"""The learning curve of a run as a picture."""

from __future__ import annotations

import io
from collections.abc import Sequence

Series = Sequence[tuple[int, float]]


def draw(title: str, training: Series, evaluation: Series) -> bytes:
    """Return a PNG: mean returns over rows, of training episodes and of evaluations."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for label, series, style in (
        ("training, mean of 100 episodes", training, "-"),
        ("evaluation, without noise", evaluation, "o-"),
    ):
        if series:
            steps, values = zip(*series, strict=True)
            axes.plot(steps, values, style, label=label, markersize=4)
    axes.set(title=title, xlabel="rows learned from", ylabel="mean return")
    axes.grid(alpha=0.3)
    if training or evaluation:
        axes.legend(loc="lower right")
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    return picture.getvalue()
