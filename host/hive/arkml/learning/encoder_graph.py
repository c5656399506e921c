"""Encoders of entities, grids and images as ONNX nodes, with an input for each part of a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.batches import Floats
from arkml.hive.protocol.parts import (
    PARTS,
    WHITE,
    RowField,
    fields_of,
    images_of,
    numbers_of,
    parts_as_text,
)
from arkml.learning.algorithm import Layer
from arkml.learning.encoders import (
    ABSENT,
    EntityEncoder,
    MapEncoder,
    Views,
    convolutions,
    heads_of,
    middles,
)
from arkml.learning.normalizer import CLIP, Scaling
from arkml.learning.place_choices import Chooser, chosen_of, columns_around
from arkml.learning.policy_graph import PolicyGraph, Shapes, layer_tensors
from arkml.learning.residual_encoder import WINDOW, ResidualEncoder
from arkml.learning.tensors import Tensors

_IMAGE_FIRST, _IMAGE_LAST = [0, 3, 1, 2], [0, 2, 3, 1]


def seen_row(
    graph: PolicyGraph, views: Views, encoders: Sequence[object], features: int
) -> tuple[str, Shapes]:
    """
    Add the input of networks to a graph: normalized features, or the encoders' outputs.

    Args:
        graph: The graph.
        views: The parts of a row.
        encoders: The encoders of these parts.
        features: The number of features of a row.

    Returns:
        The name of the networks' input, and the shapes of the graph's inputs by name:
        `observations`, or the fields of the parts, which the metadata names, too, and with several
        frames `frames_in`; then there is an output `frames_out` of the same width.

    """
    if not views.parts:
        return graph.normalized("observations"), {"observations": features}
    graph.note(PARTS, parts_as_text(views.parts))
    shapes: dict[str, int | tuple[int, ...]]
    shapes = {field.name: field.shape for field in fields_of(views.parts)}
    if views.past:
        shapes["frames_in"] = views.past
    return add_encoders(graph, views, encoders), shapes


def add_encoders(graph: PolicyGraph, views: Views, encoders: Sequence[object]) -> str:
    """
    Add nodes that compute `encoders.encoded`, with the weights of `encoder_tensors`.

    The graph's inputs are the fields of the parts by name, float32, [N, *shape], and, with several
    frames, `frames_in`: images of earlier rows. The output `frames_out` drops the oldest and adds
    the present ones. Returns the name of the output: float32, [N, encoded_width].
    """
    plain, images = {}, _images(graph, views)
    for field in views.plain:
        flat = graph.node("Flatten", [field.name], axis=1)
        plain[field.start] = _normalized(graph, field, flat)
    seen = [_joined(graph, list(plain.values()))] if plain else []
    beside = seen[0] if seen else ""
    for field, encoder in zip(views.encoded, encoders, strict=True):
        if isinstance(encoder, EntityEncoder):
            count = plain[field.start - 1]
            seen.append(_attended(graph, field, encoder, count, beside))
        else:
            seen.append(_mapped(graph, views, field, encoder, images.get(field.name, field.name)))
    return _joined(graph, seen)


def _images(graph: PolicyGraph, views: Views) -> dict[str, str]:
    """Add the images of all frames, their channels side by side; by the names of their fields."""
    fields = fields_of(images_of(views.parts))
    if not views.past:
        return {field.name: field.name for field in fields}
    sizes = [field.size for field in fields]
    before = graph.columns("frames_in", sizes * (views.frames - 1))
    now = [graph.node("Flatten", [field.name], axis=1) for field in fields]
    graph.node("Concat", [*before[len(fields) :], *now], "frames_out", axis=1)
    images = {}
    for number, field in enumerate(fields):
        shape = graph.integers(f"{_name(field)}_shape", [0, *field.shape])
        earlier = before[number :: len(fields)]
        frames = [graph.node("Reshape", [frame, shape]) for frame in earlier]
        images[field.name] = graph.node("Concat", [*frames, field.name], axis=3)
    return images


def encoder_tensors(views: Views, encoders: Sequence[object], scaling: Scaling) -> Tensors:
    """
    Return the weights that the nodes of `add_encoders` read, including the scaling of each field.
    """
    tensors: Tensors = {}
    for field in fields_of(numbers_of(views.parts)):
        per = field.size if field in views.plain else field.shape[-1]
        if not field.part.categories or field in views.plain:
            columns = slice(field.start, field.start + per)
            tensors[f"{_name(field)}_mean"] = scaling.mean[columns]
            tensors[f"{_name(field)}_inverse"] = scaling.inverse[columns]
    for field, encoder in zip(views.encoded, encoders, strict=True):
        name = _name(field)
        if isinstance(encoder, EntityEncoder):
            width = field.shape[1]
            tensors[f"{name}_seen_own"] = encoder.seen.weight[:width]
            tensors[f"{name}_seen_shared"] = encoder.seen.weight[width:]
            tensors[f"{name}_seen_bias"] = encoder.seen.bias
            for part in EntityEncoder._fields[1:]:
                tensors |= layer_tensors(f"{name}_{part}", getattr(encoder, part))
        elif isinstance(encoder, ResidualEncoder):
            for number, block in enumerate(encoder.blocks):
                for part, layer in zip(block._fields, block, strict=True):
                    tensors |= _convolution_tensors(f"{name}_{number}_{part}", layer, WINDOW)
            tensors |= layer_tensors(f"{name}_last", encoder.last)
        elif isinstance(encoder, MapEncoder):
            layers = zip(convolutions(views, field.part), encoder.convolutions, strict=True)
            for number, ((window, *_), layer) in enumerate(layers):
                tensors |= _convolution_tensors(f"{name}_{number}", layer, window)
            tensors |= layer_tensors(f"{name}_last", encoder.last)
    return tensors


def add_places(
    graph: PolicyGraph, views: Views, branches: Sequence[int], outputs: str, width: int
) -> str:
    """
    Add nodes that compute `place_choices.with_places`, with the weights of `place_tensors`.

    Args:
        graph: The graph, which has an input for each part.
        views: The parts of a row.
        branches: The number of choices of each branch.
        outputs: The name of the outputs of the actor: float32, [N, width].
        width: The number of these outputs.

    Returns:
        The name of the outputs with what is added: float32, [N, width].

    """
    for field in views.chosen:
        name, part = f"{_name(field)}_place", field.part
        maps = _cells(graph, field, field.name)
        for layer in ("inner", "outer"):
            maps = _convolved(graph, f"{name}_{layer}", maps, WINDOW, around=1)
            maps = graph.node("Relu", [maps])
        order = [0, 3, 2, 1] if chosen_of(part).are == "columns" else _IMAGE_LAST
        maps = graph.node("Transpose", [maps], perm=order)
        by_place = graph.integers(f"{name}_shape", [0, part.places, -1])
        logits = _linear(graph, graph.node("Reshape", [maps, by_place]), f"{name}_last")
        logits = graph.node("Flatten", [logits])
        before, behind = columns_around(part, branches, width)
        left, own, right = graph.columns(outputs, (before, part.places, behind))
        beside = [left, graph.node("Add", [own, logits]), right]
        outputs = _joined(graph, [one for one in beside if one])
    return outputs


def place_tensors(views: Views, choosers: Sequence[Chooser]) -> Tensors:
    """Return the weights that the nodes of `add_places` read."""
    tensors: Tensors = {}
    for field, chooser in zip(views.chosen, choosers, strict=True):
        name = f"{_name(field)}_place"
        for layer in ("inner", "outer"):
            tensors |= _convolution_tensors(f"{name}_{layer}", getattr(chooser, layer), WINDOW)
        tensors |= layer_tensors(f"{name}_last", chooser.last)
    return tensors


def _convolution_tensors(name: str, layer: Layer, window: int) -> Tensors:
    """Return the weights of a convolution as ONNX has them."""
    by_place = layer.weight.reshape(window, window, -1, len(layer.bias))
    return {f"{name}_weight": by_place.transpose(3, 2, 0, 1), f"{name}_bias": layer.bias}


def split_rows(views: Views, observations: Floats, past: Floats | None) -> dict[str, Floats]:
    """Return the inputs of a policy by name; for the arguments see `encoders.columns_of`."""
    if not views.parts:
        return {"observations": observations}
    fields = {
        field.name: observations[:, field.columns].reshape(-1, *field.shape)
        for field in fields_of(views.parts)
    }
    return fields if past is None else fields | {"frames_in": past}


def sample_past(views: Views, count: int) -> Floats | None:
    """
    Return random images of earlier rows for a test, None if policies see only the present row.
    """
    if not views.past:
        return None
    drawn = np.random.default_rng(4).integers(0, int(WHITE) + 1, (count, views.past))
    return drawn.astype(np.float32)


def sample_rows(views: Views, numbers: Floats) -> Floats:
    """
    Return test observations, float32, [n, F], whose values fit the kinds of their parts.

    Counts of entities go from none to all, and categories are in their bounds; images are drawn.
    numbers: float32, [n, numbers], the values of all other features.
    """
    width = sum(part.width for part in images_of(views.parts))
    drawn = np.random.default_rng(3).integers(0, int(WHITE) + 1, (len(numbers), width))
    parts: list[npt.NDArray[Any]] = []
    start = image = 0
    for field in fields_of(views.parts):
        if field.kind == "image":
            parts.append(drawn[:, image : image + field.size])
            image += field.size
            continue
        values: npt.NDArray[Any] = numbers[:, start : start + field.size]
        start += field.size
        if field.is_count:
            values = np.linspace(0, field.part.shape[0], len(numbers)).round()[:, None]
        elif field.part.categories:
            values = np.abs(values * 1e3).round() % field.part.categories
        parts.append(values)
    return np.concatenate(parts, 1, dtype=np.float32) if parts else numbers


def _name(field: RowField) -> str:
    """Return the beginning of the names of a field's weights."""
    return f"{'image' if field.kind == 'image' else 'from'}_{field.start}"


def _normalized(graph: PolicyGraph, field: RowField, values: str) -> str:
    """Add the normalization of the last dimension of values."""
    name, (low, high) = _name(field), (-CLIP, CLIP)
    if field.kind == "image":
        scaled = graph.node("Mul", [values, graph.constant("of_white", 1.0 / WHITE)])
        low, high = 0.0, 1.0
    else:
        shifted = graph.node("Sub", [values, graph.weight(f"{name}_mean")])
        scaled = graph.node("Mul", [shifted, graph.weight(f"{name}_inverse")])
    bounds = [graph.constant(f"low_{low:g}", low), graph.constant(f"high_{high:g}", high)]
    return graph.node("Clip", [scaled, *bounds])


def _joined(graph: PolicyGraph, sources: Sequence[str]) -> str:
    return sources[0] if len(sources) == 1 else graph.node("Concat", sources, axis=1)


def _linear(graph: PolicyGraph, source: str, name: str) -> str:
    """Add a linear layer of the last dimension, whatever the others are."""
    product = graph.node("MatMul", [source, graph.weight(f"{name}_weight")])
    return graph.node("Add", [product, graph.weight(f"{name}_bias")])


def _attended(
    graph: PolicyGraph, field: RowField, encoder: EntityEncoder, count: str, beside: str
) -> str:
    """
    Add nodes that encode entities: float32, [N, width].

    Args:
        graph: The graph.
        field: The entities.
        encoder: Their encoder.
        count: The name of their number as a share of the most: float32, [N, 1].
        beside: The name of the plain features: float32, [N, plain].

    """
    name, (most, _) = _name(field), field.shape
    hidden, heads = len(encoder.asks.bias), heads_of(encoder)
    one = graph.integers("second", [1])
    own = graph.node(
        "MatMul", [_normalized(graph, field, field.name), graph.weight(f"{name}_seen_own")]
    )
    shared = graph.node(
        "Gemm", [beside, graph.weight(f"{name}_seen_shared"), graph.weight(f"{name}_seen_bias")]
    )
    shared = graph.node("Unsqueeze", [shared, one])
    seen = graph.node("Relu", [graph.node("Add", [own, shared])])
    is_there = graph.node("Less", [graph.constant(f"{name}_middles", middles(most)), count])
    by_head = graph.integers(f"{name}_by_head", [0, most, heads, hidden // heads])
    asks, answers, gives = (
        graph.node(
            "Transpose",
            [graph.node("Reshape", [_linear(graph, seen, f"{name}_{part}"), by_head])],
            perm=order,
        )
        for part, order in (
            ("asks", [0, 2, 1, 3]),
            ("answers", [0, 2, 3, 1]),
            ("gives", [0, 2, 1, 3]),
        )
    )
    scale = graph.constant(f"{name}_scale", (hidden // heads) ** -0.5)
    scores = graph.node("Mul", [graph.node("MatMul", [asks, answers]), scale])
    to_all = graph.node("Unsqueeze", [is_there, graph.integers("second_and_third", [1, 2])])
    scores = graph.node("Where", [to_all, scores, graph.constant("absent", ABSENT)])
    found = graph.node("MatMul", [graph.node("Softmax", [scores], axis=-1), gives])
    found = graph.node("Transpose", [found], perm=[0, 2, 1, 3])
    found = graph.node("Reshape", [found, graph.integers(f"{name}_joined", [0, most, hidden])])
    seen = graph.node("Add", [seen, _linear(graph, found, f"{name}_taken")])
    inner = graph.node("Relu", [_linear(graph, seen, f"{name}_inner")])
    seen = graph.node("Add", [seen, _linear(graph, inner, f"{name}_outer")])
    there = graph.node("Cast", [is_there], to=1)
    there = graph.node("Unsqueeze", [there, graph.integers("third", [2])])
    total = graph.node("ReduceSum", [graph.node("Mul", [seen, there]), one], keepdims=0)
    number = graph.node("ReduceSum", [there, one], keepdims=0)
    return graph.node("Div", [total, graph.node("Max", [number, graph.constant("one", 1.0)])])


def _mapped(graph: PolicyGraph, views: Views, field: RowField, encoder: object, values: str) -> str:
    """Add nodes that encode a grid or an image, named `values`: float32, [N, hidden]."""
    name, part = _name(field), field.part
    values = _cells(graph, field, values)
    if isinstance(encoder, ResidualEncoder):
        values = _blocks_seen(graph, name, encoder, values)
    else:
        for number, (window, step, _) in enumerate(convolutions(views, part)):
            values = _convolved(graph, f"{name}_{number}", values, window, step=step)
            values = graph.node("Relu", [values])
    values = graph.node("Transpose", [values], perm=_IMAGE_LAST)
    return graph.node("Relu", [graph.linear(graph.node("Flatten", [values]), f"{name}_last")])


def _cells(graph: PolicyGraph, field: RowField, values: str) -> str:
    """Add nodes that compute `encoders.seen_cells`, normalized, with the channels first."""
    categories = field.part.categories
    if categories:
        name = f"{_name(field)}_numbers"
        numbers = graph.constant(name, np.arange(categories, dtype=np.float32))
        cells = graph.node("Round", [values])
        cells = graph.node("Unsqueeze", [cells, graph.integers("fourth", [3])])
        values = graph.node("Cast", [graph.node("Equal", [cells, numbers])], to=1)
    else:
        values = _normalized(graph, field, values)
    return graph.node("Transpose", [values], perm=_IMAGE_FIRST)


def _blocks_seen(graph: PolicyGraph, name: str, encoder: ResidualEncoder, maps: str) -> str:
    """Add nodes that compute `residual_encoder.blocks_seen`, with the channels first."""
    for number in range(len(encoder.blocks)):
        first = f"{name}_{number}"
        maps = _convolved(graph, f"{first}_entry", maps, WINDOW, around=1)
        maps = graph.node(
            "MaxPool", [maps], kernel_shape=[WINDOW] * 2, strides=[2] * 2, pads=[1] * 4
        )
        for unit in ("", "next_"):
            added = maps
            for part in ("inner", "outer"):
                added = graph.node("Relu", [added])
                added = _convolved(graph, f"{first}_{unit}{part}", added, WINDOW, around=1)
            maps = graph.node("Add", [maps, added])
    return graph.node("Relu", [maps])


def _convolved(
    graph: PolicyGraph, name: str, maps: str, window: int, *, step: int = 1, around: int = 0
) -> str:
    """
    Add a convolution, by the weights of `_convolution_tensors`.

    Args:
        graph: The graph.
        name: The name of the weights.
        maps: The name of the maps, with the channels first.
        window: The sides of the window that a number sees.
        step: The step from one to the next.
        around: How many zeros there are around the maps.

    """
    weights = [graph.weight(f"{name}_{kind}") for kind in ("weight", "bias")]
    return graph.node(
        "Conv",
        [maps, *weights],
        kernel_shape=[window] * 2,
        strides=[step] * 2,
        pads=[around] * 4,
    )
