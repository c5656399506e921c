"""
Encoders of entities, grids and images: what networks see of rows that have such parts.

A part becomes some numbers, beside the features of all vectors. Actor, critic and memory take the
same ones. Arrays are those of numpy or of JAX, with which the same is computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from arkml.batches import Floats
from arkml.hive.protocol.parts import WHITE, Part, RowField, fields_of, images_of, numbers_of
from arkml.hive.protocol.row_split import RowSplit
from arkml.hive.protocol.settings import EncoderSize, Settings
from arkml.learning.algorithm import Layer
from arkml.learning.maps import Arrays
from arkml.learning.networks import HIDDEN_GAIN, orthogonal_network
from arkml.learning.residual_encoder import (
    WINDOW,
    ResidualEncoder,
    block_filters,
    blocks_seen,
    halved,
    residual_encoder,
)

_HEADS = 4  # of attention, or as many as share its numbers evenly

ABSENT = -1e9
"""Score of an entity that is not there: its share of attention is exactly 0 in float32."""

_SCORE_GAIN = 1.0
_ADDED_GAIN = 0.1  # what is added to an entity or a map at first, beside itself
_PASSED_GAIN = 1.0  # of a convolution without a ReLU


class Form(NamedTuple):
    """The numbers of inputs and outputs of a layer, and the scale of its weights."""

    inputs: int
    outputs: int
    gain: float

    @property
    def numbers(self) -> int:
        """How many numbers the layer has."""
        return (self.inputs + 1) * self.outputs

    def made(self, random: np.random.Generator) -> Layer:
        """Return the layer before it is trained."""
        return orthogonal_network(random, [self.inputs, self.outputs], self.gain)[0]


class Convolution(NamedTuple):
    """A layer of a small network over cells: its window and its step are squares."""

    window: int
    step: int
    filters: int

    def over(self, *sides: int) -> tuple[int, ...]:
        """Return the sides of what it makes of a map of these sides."""
        return tuple((side - self.window) // self.step + 1 for side in sides)


_CELLS = {
    "small": (Convolution(3, 1, 16),),
    "large": (Convolution(3, 1, 32), Convolution(3, 1, 64)),
}
_PIXELS = {  # those of Mnih et al. 2013 and 2015
    "small": (Convolution(8, 4, 16), Convolution(4, 2, 32)),
    "large": (Convolution(8, 4, 32), Convolution(4, 2, 64), Convolution(3, 1, 64)),
}


class Views(NamedTuple):
    """
    What encoders see: the parts of a row, the size of their networks, and images at once.

    It is an argument of compiled functions that decides what they compute.
    """

    parts: tuple[Part, ...] = ()
    size: EncoderSize = "small"
    frames: int = 1

    @classmethod
    def of(cls, settings: Settings) -> Views:
        """Return the views of a run."""
        return cls(settings.parts, settings.encoder, settings.frames)

    @property
    def fields(self) -> list[RowField]:
        """All fields, each with its place in its column: those of images have one of their own."""
        return [*fields_of(numbers_of(self.parts)), *fields_of(images_of(self.parts))]

    @property
    def plain(self) -> list[RowField]:
        """The fields that are seen as they are: vectors, and the numbers of entities."""
        return [field for field in self.fields if field.kind == "vector"]

    @property
    def encoded(self) -> list[RowField]:
        """The fields that have an encoder, those of images last."""
        return [field for field in self.fields if field.kind != "vector"]

    @property
    def chosen(self) -> list[RowField]:
        """The grids whose places are choices."""
        return [field for field in self.fields if field.part.choices]

    @property
    def past(self) -> int:
        """The values of the images that are seen beside those of a row, and came before."""
        return (self.frames - 1) * sum(part.size for part in images_of(self.parts))


PLAIN = Views()
"""Rows of plain numbers."""


class EntityEncoder(NamedTuple):
    """
    Attention among entities, and the mean of those that are there.

    Attributes:
        seen: The layer, with a ReLU, by which an entity is seen, beside the plain features of its
            row: [features + plain, width].
        asks, answers, gives: The layers of attention: [width, width] each.
        taken: The layer of what attention adds: [width, width].
        inner, outer: The layers, with a ReLU between them, of what is added then.

    """

    seen: Layer
    asks: Layer
    answers: Layer
    gives: Layer
    taken: Layer
    inner: Layer
    outer: Layer


class MapEncoder(NamedTuple):
    """Convolutions over a grid or an image, each with a ReLU, and a layer of all their outputs."""

    convolutions: list[Layer]
    last: Layer


def make_encoders(random: np.random.Generator, settings: Settings) -> list[Any]:
    """Return the encoders of a run, in the order of `Views.encoded`; none for plain rows."""
    made: list[Any] = []
    for field, forms in _all_forms(settings):
        layers = [form.made(random) for form in forms]
        if field.part.kind == "entities":
            made.append(EntityEncoder(*layers))
        elif settings.encoder == "impala":
            made.append(residual_encoder(layers))
        else:
            made.append(MapEncoder(layers[:-1], layers[-1]))
    return made


def count_numbers(settings: Settings) -> int:
    """Return how many numbers the encoders of a run have."""
    return sum(form.numbers for _, forms in _all_forms(settings) for form in forms)


def encoded_width(settings: Settings) -> int:
    """Return the number of inputs of actor, critic and memory."""
    if not settings.parts:
        return settings.features
    views = Views.of(settings)
    plain = sum(field.size for field in views.plain)
    return plain + sum(forms[-1].outputs for _, forms in _all_forms(settings))


def columns_of(
    views: Views, observations: Floats, past: Floats | None = None
) -> tuple[Floats, Floats]:
    """
    Return the columns that `encoded` takes, float32.

    Args:
        views: The parts of a row.
        observations: float32, [n, F].
        past: The images of the `frames` - 1 rows before, the oldest first: float32, [n, past].
            None where a row is seen alone.

    """
    split = RowSplit(observations.shape[1], views.parts)
    numbers, images = split.numbers_of(observations), split.images_of(observations)
    return numbers, images if past is None else np.concatenate([past, images], axis=1)


def encoded(
    arrays: Arrays, views: Views, encoders: Sequence[Any], features: Any, images: Any
) -> Any:
    """
    Return what networks see of rows: float32, [n, encoded_width].

    Args:
        arrays: The library of the arrays.
        views: The parts of a row.
        encoders: The result of `make_encoders`, trained or not.
        features: Normalized, without those of images: float32, [n, F].
        images: From 0 to 255, of all frames, the oldest first: of any type, [n, frames * B].

    """
    if not views.parts:
        return features
    xp = arrays.xp
    plain = [features[:, field.columns] for field in views.plain]
    beside = xp.concatenate(plain, -1) if plain else features[:, :0]
    seen = [beside]
    for field, encoder in zip(views.encoded, encoders, strict=True):
        if field.kind == "image":
            values = _side_by_side(xp, images.reshape(len(images), views.frames, -1), field)
        else:
            values = features[:, field.columns].reshape(-1, *field.shape)
        if field.part.kind == "entities":
            count = features[:, field.start - 1]
            seen.append(_attended(xp, encoder, values, count, beside))
        else:
            seen.append(_mapped(arrays, views, field.part, encoder, values))
    return xp.concatenate(seen, -1)


def stacked(xp: Any, images: Any, frames: Any) -> Any:
    """
    Return the images that rows see, the oldest first: uint8, [n, frames * B].

    Args:
        xp: numpy, or jax.numpy.
        images: The images of rows, each once: uint8, [m, B].
        frames: The places of these that each row sees, -1 for black ones: [n, frames].

    """
    seen = images[xp.maximum(frames, 0)]
    if frames.shape[1] > 1:
        seen = xp.where((frames < 0)[..., None], xp.uint8(0), seen)
    return seen.reshape(len(frames), -1)


def _side_by_side(xp: Any, images: Any, field: RowField) -> Any:
    """Return an image of all frames as one, whose channels are those of all of them."""
    height, width, channels = field.shape
    values = images[:, :, field.columns].reshape(len(images), -1, height, width, channels)
    return xp.moveaxis(values, 1, 3).reshape(len(images), height, width, -1)


def convolutions(views: Views, part: Part) -> list[Convolution]:
    """Return the convolutions over a part, whose windows fit into what they are over."""
    height, width = part.shape[:2]
    fitted = []
    for window, step, filters in (_PIXELS if part.kind == "image" else _CELLS)[views.size]:
        side = min(window, height, width)
        one = Convolution(side, min(step, side), filters)
        height, width = one.over(height, width)
        fitted.append(one)
    return fitted


def _all_forms(settings: Settings) -> Iterator[tuple[RowField, list[Form]]]:
    views = Views.of(settings)
    plain = sum(field.size for field in views.plain)
    for field in views.encoded:
        yield field, _forms(views, field, plain, settings.hidden)


def _forms(views: Views, field: RowField, plain: int, hidden: int) -> list[Form]:
    """Return the layers of the encoder of a field, beside so many plain features."""
    if field.part.kind == "entities":
        gains = (_SCORE_GAIN, _SCORE_GAIN, _SCORE_GAIN, _ADDED_GAIN, HIDDEN_GAIN, _ADDED_GAIN)
        # Most of the time of an update goes into these, once for each entity.
        width = hidden if views.size == "large" else max(1, hidden // 2)
        first = Form(field.shape[1] + plain, width, HIDDEN_GAIN)
        return [first, *(Form(width, width, gain) for gain in gains)]
    forms, channels = [], field.part.channels
    if field.kind == "image":
        channels *= views.frames
    height, width = field.shape[:2]
    if views.size == "impala":
        for filters in block_filters(height, width):
            forms.append(Form(WINDOW * WINDOW * channels, filters, _PASSED_GAIN))
            forms += [
                Form(WINDOW * WINDOW * filters, filters, gain)
                for gain in (HIDDEN_GAIN, _ADDED_GAIN) * 2
            ]
            height, width = halved(height, width)
            channels = filters
        return [*forms, Form(height * width * channels, hidden, HIDDEN_GAIN)]
    for one in convolutions(views, field.part):
        forms.append(Form(one.window * one.window * channels, one.filters, HIDDEN_GAIN))
        height, width = one.over(height, width)
        channels = one.filters
    return [*forms, Form(height * width * channels, hidden, HIDDEN_GAIN)]


def _attended(xp: Any, encoder: EntityEncoder, entities: Any, count: Any, beside: Any) -> Any:
    """
    Return what is seen of entities, [n, width].

    Args:
        xp: numpy, or jax.numpy.
        encoder: The encoder.
        entities: Normalized, [n, most, features].
        count: How many are there, as a share of the most: [n].
        beside: The plain features, [n, plain].

    """
    rows, most, width = entities.shape
    is_there = middles(most) < count[:, None]
    own, shared = encoder.seen.weight[:width], encoder.seen.weight[width:]
    seen = xp.maximum(entities @ own + (beside @ shared + encoder.seen.bias)[:, None], 0.0)
    asks, answers, gives = (
        _linear(layer, seen).reshape(rows, most, heads_of(encoder), -1).transpose(0, 2, 1, 3)
        for layer in (encoder.asks, encoder.answers, encoder.gives)
    )
    scores = asks @ answers.transpose(0, 1, 3, 2) * np.float32(asks.shape[-1] ** -0.5)
    scores = xp.where(is_there[:, None, None, :], scores, np.float32(ABSENT))
    shares = xp.exp(scores - scores.max(-1, keepdims=True))
    shares = shares / shares.sum(-1, keepdims=True)
    found = (shares @ gives).transpose(0, 2, 1, 3).reshape(rows, most, -1)
    seen = seen + _linear(encoder.taken, found)
    seen = seen + _linear(encoder.outer, xp.maximum(_linear(encoder.inner, seen), 0.0))
    there = is_there[:, :, None].astype(np.float32)
    return (seen * there).sum(1) / xp.maximum(there.sum(1), 1.0)


def heads_of(encoder: EntityEncoder) -> int:
    """Return the number of heads of the attention of an encoder."""
    return math.gcd(_HEADS, len(encoder.asks.bias))


def middles(most: int) -> Floats:
    """Return for each entity what is between the shares of the most without it and with it."""
    return (np.arange(most, dtype=np.float32) + np.float32(0.5)) / np.float32(most)


def _mapped(arrays: Arrays, views: Views, part: Part, encoder: Any, values: Any) -> Any:
    """Return what is seen of a grid or an image, [n, hidden]. values: [n, height, width, ...]."""
    xp = arrays.xp
    values = seen_cells(xp, part, values)
    if isinstance(encoder, ResidualEncoder):
        seen = arrays.by_few(lambda few: blocks_seen(arrays, encoder, few), values)
    else:
        for (window, step, _), layer in zip(
            convolutions(views, part), encoder.convolutions, strict=True
        ):
            values = arrays.convolve(values, layer.weight, window, step) + layer.bias
            values = xp.maximum(values, 0.0)
        seen = values.reshape(len(values), -1)
    return xp.maximum(_linear(encoder.last, seen), 0.0)


def seen_cells(xp: Any, part: Part, values: Any) -> Any:
    """
    Return the channels of cells or pixels, one for each category: [n, height, width, channels].

    Args:
        xp: numpy, or jax.numpy.
        part: A grid or an image.
        values: Of a grid normalized, of an image from 0 to 255: [n, height, width, ...].

    """
    if part.categories:
        numbers = xp.arange(part.categories, dtype=np.float32)
        cells = xp.round(values * np.float32(part.categories - 1))
        return (cells[..., None] == numbers).astype(values.dtype)
    if part.kind == "image":
        return xp.clip(values.astype(np.float32) * np.float32(1.0 / WHITE), 0.0, 1.0)
    return values


def _linear(layer: Layer, inputs: Floats) -> Any:
    return inputs @ layer.weight + layer.bias
