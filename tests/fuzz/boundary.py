"""Random import calls on random memory: every import, and pushes and submits beside a decoder."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from tests.conformance.differential_guest import LIMITS, DifferentialGuest
from tests.conformance.random_steps import FIRST_PAGES
from tests.conformance.scripted_guest import PAGE, ScriptedGuest, module, step

from arkml import Host
from arkml.abi.catalog import APIS
from arkml.abi.codes import ErrorCode
from arkml.abi.layout import slots
from arkml.abi.schema import Function, Outcome
from arkml.errors import GuestError

Case = tuple[int, int, list[tuple[int, list[int]]]]
"""A seed of the memory, a number of steps beside the decoder, and calls of any imports."""

_IMPORTS: list[tuple[str, Function]] = [
    (f"{api.module}.{api.symbol(function)}", function) for api in APIS for function in api.functions
]
_MOST_SLOTS = max(len(slots(function)) for _, function in _IMPORTS)
_PAGES = 6
_SCRIPT = 4 * PAGE
_ITEM = 72  # bytes of the largest item of a slice
_NUMBERS: SearchStrategy[int] = st.one_of(
    st.sampled_from([0, 0, 1, 1, 2, 4, 8, 64, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1]),
    st.sampled_from([0x100, 0x2000, PAGE - 4, _PAGES * PAGE - 1, _PAGES * PAGE]),
    st.integers(0, _SCRIPT),
)

CASES: SearchStrategy[Case] = st.tuples(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 50, 300]),
    st.lists(
        st.tuples(
            st.integers(0, len(_IMPORTS) - 1),
            st.lists(_NUMBERS, min_size=_MOST_SLOTS, max_size=_MOST_SLOTS),
        ),
        max_size=12,
    ),
)


@contextmanager
def boundary() -> Iterator[Callable[[Case], None]]:
    """Yield the check of one case, each of which has a guest of its own."""
    with Host(limits=LIMITS) as host:
        compared = host.compile(module(FIRST_PAGES), name="compared")
        free = host.compile(module(_PAGES), name="free")

        def check(case: Case) -> None:
            seed, steps, calls = case
            if steps:
                _check_beside_decoder(DifferentialGuest(host, compared, random.Random(seed)), steps)
            if calls:
                with host.load(free) as guest:
                    chance = np.random.default_rng(seed)
                    guest.write_memory(0, chance.bytes(_SCRIPT))
                    for index, numbers in calls:
                        if not _check_call(ScriptedGuest(guest, script=_SCRIPT), index, numbers):
                            break

        yield check


def _check_beside_decoder(tested: DifferentialGuest, count: int) -> None:
    tested.random_steps.play(count)
    steps, codes = tested.random_steps.take()
    tested.check(codes, tested.run(*steps))
    tested.guest.close()


def _check_call(run: ScriptedGuest, index: int, numbers: list[int]) -> bool:
    """Make a call; return False if it has ended the guest, as it may."""
    name, function = _IMPORTS[index]
    arguments = numbers[: len(slots(function))]
    before = np.frombuffer(run.guest.read_memory(0, _SCRIPT), np.uint8)
    try:
        (code,) = run(step(name, *arguments))
    except GuestError:
        return False
    if function.outcome is not Outcome.VALUE:
        codes = {ErrorCode.SUCCESS, *function.errors}
        assert code in codes, f"{name}{arguments}: {code} is not of {sorted(codes)}"
    after = np.frombuffer(run.guest.read_memory(0, _SCRIPT), np.uint8)
    _check_written(name, arguments, np.flatnonzero(before != after))
    return True


def _check_written(name: str, arguments: list[int], changed: np.ndarray) -> None:
    """Raise AssertionError for a changed byte that no pointer and length of the call covers."""
    words = [number & 0xFFFF_FFFF for number in arguments]
    longest = _ITEM * max(words, default=0) + _ITEM
    allowed = np.zeros(len(changed), bool)
    for pointer in words:
        allowed |= (changed >= pointer) & (changed < pointer + longest)
    assert allowed.all(), f"{name}{arguments} wrote at {changed[~allowed][:8].tolist()}"
