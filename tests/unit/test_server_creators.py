"""Starts that are repeated by their Idempotency-Key."""

import asyncio
import gc
import time
import weakref
from contextvars import ContextVar

import pytest

from arkml.errors import HiveError, HiveRefused
from arkml.hive.protocol.runs import RunRequest
from arkml.hive.protocol.settings import Settings
from arkml.server.creators import Creator, Creators

REQUEST = RunRequest("run", "game", Settings(3, 2))
OTHER = RunRequest("other", "game", Settings(3, 2))
OWNER = "a token"
KEY = "a-key"


class Starts:
    """A hive that creates runs named by their number, once `gate` is set."""

    def __init__(self):
        self.creators = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error = None

    async def create(self, _, creator):
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.creators.append(creator)
        return str(len(self.creators)), True


async def test_a_repeated_request_gets_the_run_of_the_first_one():
    starts, creators = Starts(), Creators()
    first = await creators.start(KEY, OWNER, REQUEST, starts.create)
    second = await creators.start(KEY, OWNER, REQUEST, starts.create)
    other = await creators.start("another", OWNER, REQUEST, starts.create)

    assert first == second == ("1", True)
    assert other == ("2", True)


async def test_requests_without_a_key_are_never_the_same():
    starts, creators = Starts(), Creators()
    found = [await creators.start("", OWNER, REQUEST, starts.create) for _ in range(2)]

    assert found == [("1", True), ("2", True)]
    assert starts.creators == [None, None]


async def test_two_requests_at_once_create_one_run_also_if_the_first_one_is_cancelled():
    starts, creators = Starts(), Creators()
    starts.gate.clear()
    both = [
        asyncio.create_task(creators.start(KEY, OWNER, REQUEST, starts.create)) for _ in range(2)
    ]
    await asyncio.sleep(0)
    both[0].cancel()
    await asyncio.sleep(0)
    starts.gate.set()

    assert await both[1] == ("1", True)
    assert len(starts.creators) == 1


async def test_a_key_of_another_request_is_refused():
    starts, creators = Starts(), Creators()
    await creators.start(KEY, OWNER, REQUEST, starts.create)

    with pytest.raises(HiveRefused, match="was used for another run") as refused:
        await creators.start(KEY, OWNER, OTHER, starts.create)
    assert refused.value.status == 422
    assert len(starts.creators) == 1


async def test_a_key_of_another_token_is_refused():
    starts, creators = Starts(), Creators()
    await creators.start(KEY, OWNER, REQUEST, starts.create)

    with pytest.raises(HiveRefused, match="was used for another run"):
        await creators.start(KEY, "another token", REQUEST, starts.create)


@pytest.mark.parametrize("key", ["x" * 129, "é", "a\tb"])
async def test_a_key_that_is_not_one_is_refused(key):
    with pytest.raises(HiveRefused, match="128 letters of ASCII") as refused:
        await Creators().start(key, OWNER, REQUEST, Starts().create)
    assert refused.value.status == 422


async def test_a_refusal_is_not_kept():
    starts, creators = Starts(), Creators()
    starts.error = HiveRefused("there is no room", 429)
    with pytest.raises(HiveRefused, match="no room"):
        await creators.start(KEY, OWNER, REQUEST, starts.create)
    starts.error = None

    assert await creators.start(KEY, OWNER, REQUEST, starts.create) == ("1", True)


async def test_a_key_does_not_keep_what_created_its_run():
    class Subject:
        pass

    about, creators, kept = ContextVar("about"), Creators(), []

    async def create(_, __):
        about.set(subject := Subject())
        kept.append(weakref.ref(subject))
        return "r1", True

    await creators.start(KEY, OWNER, REQUEST, create)
    await asyncio.sleep(0)
    gc.collect()

    assert [each() for each in kept] == [None]
    assert await creators.start(KEY, OWNER, REQUEST, create) == ("r1", True)


async def test_a_run_that_was_there_before_is_found_by_its_key():
    starts, creators = Starts(), Creators()
    await Creators().start(KEY, OWNER, REQUEST, starts.create)
    kept = Creator.from_json(starts.creators[0].as_json())
    creators.add(kept, "of before", time.time_ns())

    assert await creators.start(KEY, OWNER, REQUEST, starts.create) == ("of before", True)
    with pytest.raises(HiveRefused, match="another run"):
        await creators.start(KEY, OWNER, OTHER, starts.create)


async def test_old_keys_and_surplus_ones_are_forgotten():
    starts, creators = Starts(), Creators(seconds=60, most=2)
    old = Creator("old", "0")
    creators.add(old, "of yesterday", time.time_ns() - 61 * 10**9)
    found = [
        await creators.start(key, OWNER, REQUEST, starts.create) for key in ("old", "b", "c", "old")
    ]

    assert found == [("1", True), ("2", True), ("3", True), ("4", True)]


@pytest.mark.parametrize("values", [{}, {"key": "a"}, {"key": 1, "sha256": ""}, {"a": "b"}])
def test_a_document_without_a_creator_is_not_one(values):
    with pytest.raises(HiveError, match="by which request"):
        Creator.from_json(values)


def test_a_run_without_a_key_has_no_creator():
    assert Creator.from_json(None) is None
