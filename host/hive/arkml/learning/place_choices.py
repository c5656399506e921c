"""
Choices that are places of a grid: each gets a logit of its own by what is around it.

All places share their weights, so what was learned at one holds at all others. That is added to
what the actor says of each choice by all that it sees. Arrays are those of numpy or of JAX, with
which the same is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from arkml.hive.protocol.parts import Part, PlaceChoices
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Layer
from arkml.learning.encoders import Form, Views, seen_cells
from arkml.learning.maps import Arrays
from arkml.learning.networks import HIDDEN_GAIN
from arkml.learning.residual_encoder import WINDOW

_FILTERS = {"small": 8, "large": 32, "impala": 32}
_LOGIT_GAIN = 0.01  # the first policy is the same everywhere


class Chooser(NamedTuple):
    """
    Two convolutions over a grid, each with a ReLU, and the layer of a place's logit.

    inner: [window * window * channels, filters]. outer: [window * window * filters, filters].
    last: [filters, 1] for cells, [width * filters, 1] for rows, [height * filters, 1] for columns.
    """

    inner: Layer
    outer: Layer
    last: Layer


def make_choosers(random: np.random.Generator, settings: Settings) -> list[Chooser]:
    """Return the choosers of a run, in the order of `Views.chosen`; none without such choices."""
    return [Chooser(*(form.made(random) for form in forms)) for forms in _all_forms(settings)]


def count_chooser_numbers(settings: Settings) -> int:
    """Return how many numbers the choosers of a run have."""
    return sum(form.numbers for forms in _all_forms(settings) for form in forms)


def with_places(
    arrays: Arrays,
    views: Views,
    branches: Sequence[int],
    choosers: Sequence[Chooser],
    features: Any,
    outputs: Any,
) -> Any:
    """
    Return the outputs of an actor with what speaks for each place added to its logits.

    Args:
        arrays: The library of the arrays.
        views: The parts of a row.
        branches: The number of choices of each branch.
        choosers: The result of `make_choosers`, trained or not.
        features: Normalized, without those of images: float32, [n, F].
        outputs: The outputs of the actor, the logits last: float32, [n, outputs].

    """
    for field, chooser in zip(views.chosen, choosers, strict=True):
        values = features[:, field.columns].reshape(-1, *field.shape)
        logits = arrays.by_few(partial(_logits, arrays, field.part, chooser), values)
        around = columns_around(field.part, branches, outputs.shape[1])
        outputs = outputs + arrays.xp.pad(logits, ((0, 0), around))
    return outputs


def columns_around(part: Part, branches: Sequence[int], outputs: int) -> tuple[int, int]:
    """Return how many of the outputs of an actor are before the logits of places, and behind."""
    choices = chosen_of(part)
    before = outputs - sum(branches[choices.branch :]) + choices.first
    return before, outputs - before - part.places


def chosen_of(part: Part) -> PlaceChoices:
    """Return the choices that are places of a part, which has some."""
    assert isinstance(part.choices, PlaceChoices)
    return part.choices


def _all_forms(settings: Settings) -> Iterator[tuple[Form, Form, Form]]:
    """Yield the layers of each chooser."""
    filters, cells = _FILTERS[settings.encoder], WINDOW * WINDOW
    for field in Views.of(settings).chosen:
        height, width, *_ = field.shape
        of_place = height * width // field.part.places
        yield (
            Form(cells * field.part.channels, filters, HIDDEN_GAIN),
            Form(cells * filters, filters, HIDDEN_GAIN),
            Form(of_place * filters, 1, _LOGIT_GAIN),
        )


def _logits(arrays: Arrays, part: Part, chooser: Chooser, values: Any) -> Any:
    """Return the logits of all places: float32, [n, places]. values: [n, height, width, ...]."""
    xp = arrays.xp
    maps = seen_cells(xp, part, values)
    for layer in (chooser.inner, chooser.outer):
        around = ((0, 0), (1, 1), (1, 1), (0, 0))
        maps = arrays.convolve(xp.pad(maps, around), layer.weight, WINDOW, 1) + layer.bias
        maps = xp.maximum(maps, 0.0)
    if chosen_of(part).are == "columns":
        maps = xp.moveaxis(maps, 1, 2)
    by_place = maps.reshape(len(maps), part.places, -1)
    return (by_place @ chooser.last.weight + chooser.last.bias)[..., 0]
