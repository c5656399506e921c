"""Objects that hold what has to be given back, and the warning when it was not."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from types import TracebackType
from typing import NoReturn, Self


class Closing(ABC):
    """Has a `close` that is safe to call again, and calls it at the end of a `with` block."""

    @abstractmethod
    def close(self) -> None:
        """Give back what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Unclosed:
    """
    Warns once that `name` was dropped without `close`.

    Objects that are closed together share one, so that a fleet of a thousand gives one warning.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._is_told = False

    def warn(self, source: object) -> None:
        """Give the ResourceWarning, unless it was given before; `source` is what was dropped."""
        if not self._is_told:
            self._is_told = True
            warnings.warn(f"unclosed {self.name}", ResourceWarning, stacklevel=2, source=source)


class Unique:
    """
    An object that cannot be copied or pickled: it holds memory that no second object may free.

    Raises TypeError, as `pickle` and `copy` do for locks and files.
    """

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled: make another one where it is"
            " needed, of the path or the bytes of its module"
        )
