"""
Outlines of policy versions: the bytes of their files that are not weights, equal in all versions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_FLOAT = 1  # the number of that element type in ONNX

Pieces = tuple[bytes | slice, ...]
"""A file in pieces: bytes of its own, and places of another file whose bytes it takes over."""


class VersionOutline:
    """
    The bytes of an ONNX file outside of its float weights, by which a next version is recognized.

    A file that differs from a vetted one only in the values of float weights has the same nodes,
    names, sizes and costs. Vetting does not read these values, so the file needs no vetting.
    """

    __slots__ = ("_length", "_places", "_rest", "weights")

    def __init__(self, data: bytes, weights: dict[str, slice]) -> None:
        self.weights = weights
        """The places of the float weights in the file, by name."""
        self._length = len(data)
        self._places = _gaps(list(weights.values()), len(data))
        self._rest = [data[place] for place in self._places]

    @classmethod
    def of(cls, data: bytes, model: Any) -> VersionOutline | None:
        """
        Return the outline of a file; `model` is the `onnx.ModelProto` that vetting made of it.

        Returns None if the model differs from the file, for example because vetting rewrote it.
        """
        if model.SerializeToString() != data:
            return None
        weights = _weights_of(model)
        return None if weights is None else cls(data, weights)

    def fits(self, data: bytes) -> bool:
        """Return whether a file differs from this one at most in its weights."""
        return len(data) == self._length and [data[place] for place in self._places] == self._rest

    def pieces_of(self, data: bytes, model: Any) -> Pieces | None:
        """
        Return the pieces that make up a part of the model, with float weights taken from `data`.

        `model` is the `onnx.ModelProto` of the part, such as the nodes that some outputs need.
        Returns None if one of its weights is stored differently in the file.
        """
        part, weights = model.SerializeToString(), _weights_of(model)
        if weights is None or not weights.keys() <= self.weights.keys():
            return None
        gaps = _gaps(list(weights.values()), len(part))
        pieces: list[bytes | slice] = [part[gaps[0]]]
        for name, gap in zip(weights, gaps[1:], strict=True):
            pieces += self.weights[name], part[gap]
        made = tuple(pieces)
        return made if joined(made, data) == part else None


def joined(pieces: Pieces, data: bytes) -> bytes:
    """Return the file made of pieces: of constant bytes, and of slices of the file `data`."""
    return b"".join([data[one] if isinstance(one, slice) else one for one in pieces])


def _weights_of(model: Any) -> dict[str, slice] | None:
    """
    Return the places of the float weights in the bytes of a model, by name, in their order there.

    None if they do not lie side by side with bytes between them, each once.
    """
    filled = type(model)()
    filled.CopyFrom(model)
    weights = [one for one in filled.graph.initializer if one.data_type == _FLOAT and one.raw_data]
    # Two fillings that differ in every bit show where the weights lie.
    low, high = (_filled(filled, weights, byte) for byte in (b"\0", b"\xff"))
    if len(low) != len(high):
        return None
    edges = np.flatnonzero(np.diff(low != high, prepend=False, append=False)).tolist()
    places = [slice(*edge) for edge in zip(edges[::2], edges[1::2], strict=True)]
    if [place.stop - place.start for place in places] != [len(one.raw_data) for one in weights]:
        return None
    found = dict(zip([one.name for one in weights], places, strict=True))
    return found if len(found) == len(places) else None


def _filled(model: Any, weights: list[Any], byte: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes of a model whose weights have one byte again and again."""
    for weight in weights:
        weight.raw_data = byte * len(weight.raw_data)
    return np.frombuffer(model.SerializeToString(), np.uint8)


def _gaps(places: list[slice], length: int) -> list[slice]:
    """Return the places before, between and behind some, which are in order."""
    starts, stops = [0, *(place.stop for place in places)], [place.start for place in places]
    return [slice(*edge) for edge in zip(starts, [*stops, length], strict=True)]
