"""Objects with a `close`, and the warning about objects that were not closed."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from types import TracebackType
from typing import NoReturn, Self

from arkml.errors import ArkmlError


class Closing(ABC):
    """
    A context manager with an idempotent `close`.

    An error that leaves its block is not replaced by one of `close`, such as GuestBusy for a view
    of memory that the traceback of the error keeps: this becomes a note of the error.
    """

    @abstractmethod
    def close(self) -> None:
        """Release resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except ArkmlError as refusal:
            if error is None:
                raise
            error.add_note(f"and it was not closed: {refusal}")


class Unclosed:
    """
    A warning, given once, that `name` was dropped without `close`.

    Objects that are closed together share one, so that a fleet of a thousand guests, for example,
    warns once.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._has_warned = False

    def warn(self, source: object) -> None:
        """Issue the ResourceWarning on the first call; `source` is the dropped object."""
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(f"unclosed {self.name}", ResourceWarning, stacklevel=2, source=source)


class Unique:
    """
    An object that cannot be copied or pickled, because only one object may free its memory.

    Raises TypeError, as `pickle` and `copy` do for locks and files.
    """

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled: make another one where it is"
            " needed, of the path or the bytes of its module"
        )
