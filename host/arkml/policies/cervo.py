"""The Cervo container: eight bytes that say what the rest of the file is."""

from __future__ import annotations

from enum import IntEnum

from arkml.errors import ModelRejected

MAGIC = b"CRVO"
_PREAMBLE = 4


class AssetKind(IntEnum):
    """What a container holds, by the number in its eighth byte."""

    ONNX = 1
    NNEF = 2


def is_cervo(data: bytes) -> bool:
    """Whether the bytes start like a container. An ONNX file cannot: `C` opens no field of it."""
    return data[: len(MAGIC)] == MAGIC


def unpack(data: bytes) -> tuple[AssetKind, bytes]:
    """Returns what the container holds and the payload; the payload itself is not looked at."""
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
    """Returns a container of an ONNX model, which is not looked at."""
    return MAGIC + int(AssetKind.ONNX).to_bytes(_PREAMBLE, "big") + onnx
