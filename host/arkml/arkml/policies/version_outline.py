"""
The bytes that all versions of a run's policy share: the parts of their files outside of weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_FLOAT = 1  # the number of that element type in ONNX


class VersionOutline:
    """
    The bytes of an ONNX file outside of its float weights, by which the next version is known.

    A file that differs from a vetted one in the content of float weights alone has the same nodes,
    names, sizes and costs, since vetting reads no number of them: it needs no vetting of its own.
    """

    __slots__ = ("_length", "_parts")

    def __init__(self, data: bytes, weights: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        edges = np.flatnonzero(np.diff(weights, prepend=True, append=True)).tolist()
        self._length = len(data)
        self._parts = [
            (start, data[start:stop]) for start, stop in zip(edges[::2], edges[1::2], strict=True)
        ]

    @classmethod
    def of(cls, data: bytes, model: Any) -> VersionOutline | None:
        """
        Return the outline of a file, from the `onnx.ModelProto` that onnxruntime gets of it.

        None if that is not the file itself, as where vetting has rewritten it.
        """
        if model.SerializeToString() != data:
            return None
        filled = type(model)()
        filled.CopyFrom(model)
        # Two fillings that differ in every bit show where the weights lie.
        low, high = (_filled(filled, byte) for byte in (b"\0", b"\xff"))
        return cls(data, low != high) if len(low) == len(high) == len(data) else None

    def fits(self, data: bytes) -> bool:
        """Return True for a file that differs in its weights alone, if at all."""
        return len(data) == self._length and all(
            data.startswith(part, start) for start, part in self._parts
        )


def _filled(model: Any, byte: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes of a model whose float weights have one byte again and again."""
    for weight in model.graph.initializer:
        if weight.data_type == _FLOAT and weight.raw_data:
            weight.raw_data = byte * len(weight.raw_data)
    return np.frombuffer(model.SerializeToString(), np.uint8)
