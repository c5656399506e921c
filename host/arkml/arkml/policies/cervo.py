"""The Cervo container: eight bytes before a model, which name its format."""

from __future__ import annotations

from enum import IntEnum

from arkml.errors import ModelRejected

MAGIC = b"CRVO"
_PREAMBLE = 4


class AssetKind(IntEnum):
    """
    The format of the model in a Cervo container, given by a number in the container's eighth byte.
    """

    ONNX = 1
    NNEF = 2


def is_cervo(data: bytes) -> bool:
    """Return whether bytes begin as a Cervo container does, which no ONNX file can."""
    return data[: len(MAGIC)] == MAGIC


def unpack(data: bytes) -> tuple[AssetKind, bytes]:
    """
    Return the format and the bytes of the model in a container. Raises ModelRejected.

    The model is not examined.
    """
    if len(data) < len(MAGIC) + _PREAMBLE:
        raise ModelRejected(
            f"too few bytes available for a Cervo container: expected 8 but got {len(data)}"
        )
    if not is_cervo(data):
        raise ModelRejected(f"unexpected magic: expected b'CRVO' but found {data[:4]!r}")
    try:
        kind = AssetKind(data[7])  # Cervo writes zeros before it and ignores them when it reads
    except ValueError:
        raise ModelRejected(f"unexpected Cervo asset kind {data[7]}: 1 is ONNX, 2 NNEF") from None
    if len(data) == len(MAGIC) + _PREAMBLE:
        raise ModelRejected("the Cervo container is empty")
    return kind, data[len(MAGIC) + _PREAMBLE :]


def pack_onnx(onnx: bytes) -> bytes:
    """Return a Cervo container with an ONNX model, which is not examined."""
    return MAGIC + int(AssetKind.ONNX).to_bytes(_PREAMBLE, "big") + onnx
