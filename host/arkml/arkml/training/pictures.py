"""Pictures of trainings as PNG files, which need matplotlib."""

from __future__ import annotations

import io
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NO_PICTURE = (
    "none: pip install matplotlib draws it, and without it"
    " arkml report --data DIRECTORY -o FILE.html writes a page of curves"
)
"""Shown in place of a picture where nothing can draw it."""


def can_draw() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def note_empty(axes: Axes) -> None:
    """Write a note into a picture that has no curve, with the reason."""
    why = "no mean return was reported"
    axes.text(0.5, 0.5, why, ha="center", va="center", transform=axes.transAxes)


def as_png(figure: Figure) -> bytes:
    """Return a figure as a PNG file."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    return picture.getvalue()
