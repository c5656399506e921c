"""What a suspended guest waits for before it is resumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wait:
    """
    The guest goes on when `ready(timeout)` says True.

    `ready` blocks for at most `timeout` seconds. `answer()` is then what the call returns that the
    guest is suspended in, if that is not settled already. `spun_since` is set where the guest did
    not ask to wait but polls in a loop: the time of `perf_counter` since which this counts as its
    own.
    """

    ready: Callable[[float], bool]
    answer: Callable[[], int] | None = None
    spun_since: float | None = None
