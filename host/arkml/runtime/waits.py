"""What a suspended guest waits for before it is resumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wait:
    """
    The guest goes on when `ready(timeout)` says True.

    `ready` blocks for at most `timeout` seconds. `answer()` is then what the call returns that the
    guest is suspended in, if that is not settled already. `is_spin` says that the guest did not
    ask to wait: it polls in a loop.
    """

    ready: Callable[[float], bool]
    answer: Callable[[], int] | None = None
    is_spin: bool = False
