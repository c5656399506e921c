"""Observations that arrive as pictures, in one or more concatenated PNG files."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from arkml.envs.llapi.exception import UnityObservationException

PNG_HEADER = b"\x89PNG\r\n\x1a\n"

_CHUNK = 12  # bytes of a chunk beside its content: length, type and checksum


def process_pixels(
    image_bytes: bytes,
    expected_channels: int,
    mappings: Sequence[int] | None = None,
    *,
    size: tuple[int, ...] | None = None,
) -> NDArray[np.float32]:
    """
    Decode PNG files to an array, scaled to 0..1: float32, [channels, height, width].

    Args:
        image_bytes: The PNG files.
        expected_channels: Number of output channels without `mappings`. One channel is the mean of
            the first file; several are the first channels of all files.
        mappings: For each channel of the files, the output channel that it is averaged into, -1 to
            drop it.
        size: Height and width that each file must have, None for any. Files of another size are not
            decompressed, because that may take a thousand times their bytes.

    Raises:
        UnityObservationException: The bytes are not PNG, have another size, or more files than
            channels, or the mappings do not fit.

    """
    files = list(islice(_files(image_bytes), max(0, expected_channels) + 1))
    if len(files) > expected_channels:
        raise UnityObservationException(
            f"A compressed observation has more files than its {expected_channels} channels."
        )
    images = [_pixels(file, size) for file in files]
    if mappings:
        return _mapped(_joined(images), list(mappings))
    if expected_channels == 1:
        gray: NDArray[np.float32] = images[0].mean(axis=0, keepdims=True)
        return gray
    return _joined(images)[:expected_channels]


def _files(data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        end = start + len(PNG_HEADER)
        if data[start:end] != PNG_HEADER:
            raise UnityObservationException(
                f"A compressed observation has no PNG at byte {start} of {len(data)}."
            )
        kind = b""
        while kind != b"IEND":
            if len(data) - end < _CHUNK:
                raise UnityObservationException(
                    f"A compressed observation of {len(data)} bytes is cut off."
                )
            size, kind = struct.unpack_from(">I4s", data, end)
            end += _CHUNK + size
        yield data[start:end]
        start = end
    if not data:
        raise UnityObservationException("A compressed observation has no bytes.")


def _pixels(file: bytes, size: tuple[int, ...] | None) -> NDArray[np.float32]:
    # Imported here, since Pillow is needed for pictures only.
    from PIL import Image

    try:
        with Image.open(io.BytesIO(file), formats=("PNG",)) as image:
            if size is not None and (image.height, image.width) != size:
                raise UnityObservationException(
                    "Decompressed observation did not have the expected shape - "
                    f"a file has {image.height} rows of {image.width} and expected {list(size)}"
                )
            plain = image if image.mode in ("L", "RGB", "RGBA") else image.convert("RGB")
            pixels = np.atleast_3d(np.asarray(plain, dtype=np.float32))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UnityObservationException(
            f"A compressed observation is not a PNG that can be read: {error}"
        ) from error
    return np.moveaxis(pixels / np.float32(255.0), -1, 0)


def _joined(images: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    sizes = [image.shape[1:] for image in images]
    if len(set(sizes)) > 1:
        raise UnityObservationException(
            f"The pictures of a compressed observation have different sizes: {sizes}"
        )
    return np.concatenate(images, axis=0)


def _mapped(channels: NDArray[np.float32], mappings: list[int]) -> NDArray[np.float32]:
    if len(mappings) != len(channels):
        raise UnityObservationException(
            "Compressed observation and its mapping had different number of channels - "
            f"observation had {len(channels)} channels "
            f"but its mapping had {len(mappings)} channels"
        )
    wanted = {mapping for mapping in mappings if mapping > -1}
    if not wanted or len(wanted) != max(mappings) + 1:
        raise UnityObservationException(
            f"Invalid Compressed Channel Mapping: the mapping {mappings} "
            "does not have the correct format."
        )
    # Output channels must be numbered without a gap, which also bounds the largest number.
    sources = np.asarray(mappings)
    return np.stack([channels[sources == target].mean(axis=0) for target in range(len(wanted))])
