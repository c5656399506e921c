"""Objects that are closed, and the warning about those that were not."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from types import TracebackType
from typing import NoReturn, Self


class Closing(ABC):
    """A context manager with a `close` that is safe to call again."""

    @abstractmethod
    def close(self) -> None:
        """Free what the object holds."""

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
    A warning, given once, that `name` was dropped without `close`.

    Objects that are closed together share one, so that a fleet of a thousand warns once.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._has_warned = False

    def warn(self, source: object) -> None:
        """Issue the ResourceWarning, the first time; `source` is the object that was dropped."""
        if not self._has_warned:
            self._has_warned = True
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
