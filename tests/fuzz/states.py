"""Files of states with other values inside, sealed again as a forger would."""

from __future__ import annotations

import copy
import hashlib
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import msgspec
from hypothesis import strategies as st
from tests.integration.snapshot_guest import MANY_SESSIONS, MODELS

from arkml import Fleet, Guest, GuestSnapshot, Host
from arkml.errors import GuestError, StateRefused
from arkml.limits import MIB

Case = list[tuple[int, Any]]
"""Numbers of values in the file, and what takes their places."""

_HEAD = b"arkml-state\n\x01"
_MOST = 64 * MIB
_ODD: list[Any] = [
    None, True, -1, 0, 1, 3, 5, 4_096, 2**31, 2**32, 2**33, 2**63, 0.5, "", "x", "i32", "x" * 2_000,
    b"", b"\0", b"\1" * 8, bytes(8), bytes(16), b"\xff" * 8, b"\xff" * 4_096, bytes(65_536),
    [], [None], [0, 0], {}, {"x": 0}, {0: 0},
]  # fmt: skip
CASES = st.lists(st.tuples(st.integers(0, 400), st.sampled_from(_ODD)), min_size=1, max_size=3)


@contextmanager
def states() -> Iterator[Callable[[Case], None]]:
    """Give the check: a state is refused in a sentence, or the guest that gets it takes calls."""
    with Host() as host:
        module = host.compile(MANY_SESSIONS)

        def check(case: Case) -> None:
            with suppress(StateRefused):
                state = GuestSnapshot.load(_forged(case), most_bytes=_MOST)
                with host.load(module) as guest, host.fleet(module, 2) as fleet:
                    _take(guest, state)
                    _take(fleet, state)

        yield check


def _take(subject: Guest | Fleet, state: GuestSnapshot) -> None:
    with suppress(StateRefused):
        subject.restore(state)
    with suppress(GuestError):
        subject.call("turn")
    with suppress(GuestError):
        subject.call("push", 1, 7, 1.0, 1)
        subject.call("submit", 1, 1, 1)
        subject.snapshot()


def _forged(case: Case) -> bytes:
    body = msgspec.msgpack.decode(_body())
    for number, value in case:
        places = list(_places(body))
        owner, key = places[number % len(places)]
        owner[key] = copy.deepcopy(value)
    content = zlib.compress(msgspec.msgpack.encode(body), 1)
    return _HEAD + hashlib.sha256(content).digest() + content


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Return each place in an object, as what holds it and its key there."""
    match value:
        case dict():
            keys: Any = list(value)
        case list():
            keys = range(min(len(value), 8))
        case _:
            return
    for key in keys:
        yield value, key
        yield from _places(value[key])


@cache
def _body() -> bytes:
    """Return the contents of a file that has something of everything."""
    with Host() as host, host.load(MANY_SESSIONS) as guest:
        for number in range(len(MODELS)):
            guest.call("open", number, number)
            guest.call("push", number, 5, 1.0, 2 if number == len(MODELS) - 1 else 1)
            guest.call("submit", number, 1, 2 if number == len(MODELS) - 1 else 1)
        guest.call("close", 0)
        return zlib.decompress(bytes(guest.snapshot())[len(_HEAD) + 32 :])
