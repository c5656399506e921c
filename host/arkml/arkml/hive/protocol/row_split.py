"""Rows with images in two columns: numbers, and the bytes of the images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.batches import Floats
from arkml.errors import ProtocolError
from arkml.hive.protocol.parts import WHITE, Part

Bytes = npt.NDArray[np.uint8]


class RowSplit:
    """
    The two columns in which rows with images are sent and stored.

    Values of images take a byte each, all other features are float32. Both columns have their parts
    in the order of the row. An image of 84 x 84 x 3 takes 21 KB instead of 85 on its way to a
    learner, in its log and in its memory.

    Attributes:
        features: Number of features of a row.
        numbers: Number of features that are not values of images.
        images: Number of features that are values of images.

    Raises:
        ProtocolError: The parts have other features than a row.

    """

    def __init__(self, features: int, parts: Sequence[Part] = ()) -> None:
        self._numbers: list[tuple[slice, slice]] = []  # in a row, and in the column
        self._images: list[tuple[slice, slice]] = []
        self.numbers = self.images = 0
        start, self.features = 0, features
        for part in parts:
            of_row = slice(start, start := start + part.width)
            if part.kind == "image":
                self._images.append((of_row, slice(self.images, self.images + part.width)))
                self.images += part.width
            else:
                self._numbers.append((of_row, slice(self.numbers, self.numbers + part.width)))
                self.numbers += part.width
        if parts and start != features:
            raise ProtocolError(f"the parts of a row have {start} features, and it has {features}")
        if not self.images:
            self.numbers = features
            self._numbers = [(slice(features), slice(features))]

    def write(self, rows: Floats, numbers: Floats, images: Bytes) -> int:
        """
        Write rows into two columns; return the number of image values clipped to 0 to 255.

        Args:
            rows: Finite, float32, [n, features].
            numbers: Receives the numbers: float32, [n, numbers].
            images: Receives the values of images, rounded: uint8, [n, images].

        """
        for of_row, of_column in self._numbers:
            numbers[:, of_column] = rows[:, of_row]
        outside = 0
        for of_row, of_column in self._images:
            values = rows[:, of_row]
            if len(values) and (values.min() < 0.0 or values.max() > WHITE):
                outside += int(((values < 0.0) | (values > WHITE)).sum())
                values = values.clip(0.0, WHITE)
            np.copyto(images[:, of_column], np.rint(values), casting="unsafe")
        return outside

    def numbers_of(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """
        Return the features of rows that are not images: [n, numbers].

        rows: of any type, [n, features].
        """
        return _joined(rows, self._numbers)

    def images_of(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """
        Return the values of the images in rows, unrounded: [n, images].

        rows: of any type, [n, features].
        """
        return _joined(rows, self._images)

    def split(self, rows: Floats) -> tuple[Floats, Bytes, int]:
        """
        Return the two columns of rows, and the number of image values clipped to 0 to 255.

        rows: float32, [n, features].
        """
        numbers = np.empty((len(rows), self.numbers), np.float32)
        images = np.empty((len(rows), self.images), np.uint8)
        return numbers, images, self.write(rows, numbers, images)


def _joined(rows: npt.NDArray[Any], places: Sequence[tuple[slice, slice]]) -> npt.NDArray[Any]:
    columns = [rows[:, of_row] for of_row, _ in places]
    return columns[0] if len(columns) == 1 else np.concatenate([rows[:, :0], *columns], axis=1)
