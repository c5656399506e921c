"""
Recognition of exceptions that a signal handler of the program raised in the middle of other code.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


def is_of_handler(error: BaseException) -> bool:
    """
    Return whether a signal handler raised an exception, judged by its traceback.

    A handler runs in the middle of any function of the main thread: if it raises, for example for a
    time limit of pytest, that function has not failed.
    """
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    place = error.__traceback__
    while place is not None:
        if place.tb_frame.f_code in handlers:
            return True
        place = place.tb_next
    return False


def when_done(future: Future[T], settle: Callable[[Future[T]], Any]) -> None:
    """
    Call `settle` with a future once it is done: now if it is, else on the thread that sets it.

    A future logs and drops exceptions of its callbacks, and so exceptions that a signal handler
    raises during a callback. If the future is already done, the caller gets them here.
    """
    if future.done():
        settle(future)
    else:
        future.add_done_callback(settle)


def _code_of(handler: object) -> object:
    """Return the code of a function, a bound method, a partial or another callable object."""
    while isinstance(handler, partial):
        handler = handler.func
    if not hasattr(handler, "__code__"):
        handler = getattr(handler, "__call__", None)  # noqa: B004  its code is asked for
    return getattr(handler, "__code__", None)
