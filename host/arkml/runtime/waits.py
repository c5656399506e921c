"""What a suspended guest waits for before it is resumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wait:
    """
    The guest goes on when `ready(timeout)` says True.

    `ready` blocks for at most `timeout` seconds. `answer()` is then what the call that the guest
    is suspended in returns, if that is not settled already; `after` is called last.
    """

    ready: Callable[[float], bool]
    answer: Callable[[], int] | None = None
    after: Callable[[], None] | None = None
