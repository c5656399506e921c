"""Uploaded modules: which are taken, and which are kept."""

import asyncio
import hashlib
import os

import pytest

from arkml.errors import HiveRefused, ProtocolError
from arkml.server.modules import ModuleStore
from arkml.server.usage import DiskUse

EMPTY = b"\0asm\1\0\0\0"
LIMIT = 64


def module(number, size=LIMIT):
    """A module of some size, whose custom section holds a number."""
    content = number.to_bytes(size - len(EMPTY) - 2, "little")
    return EMPTY + bytes([0, len(content)]) + content


def sha256(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def used():
    return set()


@pytest.fixture
def store(tmp_path, used):
    folder = tmp_path / "modules"
    disk = DiskUse(folder, 0)
    return ModuleStore(folder, disk, max_bytes=LIMIT, most=2, is_used=used.__contains__)


def receive(store, data, *, named=None, declared=None, parts=3):
    """Upload a module in parts."""
    pieces = [data[i * len(data) // parts : (i + 1) * len(data) // parts] for i in range(parts)]
    messages = [
        {"type": "http.request", "body": piece, "more_body": piece is not pieces[-1]}
        for piece in pieces
    ]

    async def next_message():
        return messages.pop(0)

    return asyncio.run(store.receive(named or sha256(data), declared, next_message))


def test_a_module_of_the_largest_size_is_kept_byte_for_byte(store):
    data = module(1)
    first, again = receive(store, data), receive(store, data)

    assert store.path(sha256(data)).read_bytes() == data
    assert (first.sha256, first.size) == (sha256(data), LIMIT)
    assert (first.created, again.created) == (True, False)


@pytest.mark.parametrize("declared", [None, LIMIT + 1])
def test_a_module_that_is_one_byte_too_large_is_refused(store, declared):
    data = module(1, LIMIT + 1)

    with pytest.raises(HiveRefused, match="a module of 65 bytes: 64 at most") as refused:
        receive(store, data, declared=declared)
    assert refused.value.status == 413
    with pytest.raises(HiveRefused, match="upload it first"):
        store.path(sha256(data))


def test_a_body_that_claims_to_be_huge_is_not_read(store):
    with pytest.raises(HiveRefused, match="a module of 1000000 bytes"):
        asyncio.run(store.receive(sha256(b""), 1_000_000, None))


def test_a_module_of_another_hash_is_refused(store):
    with pytest.raises(HiveRefused, match=f"has the SHA-256 {sha256(module(1))}") as refused:
        receive(store, module(1), named=sha256(module(2)))
    assert refused.value.status == 422


@pytest.mark.parametrize("data", [b"", b"\0asm", b"(module)", EMPTY[:4] + b"\x0d\0\1\0", b"x" * 9])
def test_a_body_that_is_not_a_core_module_is_refused(store, data):
    with pytest.raises(HiveRefused, match="is not a WebAssembly module"):
        receive(store, data)


@pytest.mark.parametrize("name", ["", "x", "A" * 64, "../" + "0" * 61, "0" * 65])
def test_a_name_that_is_not_a_hash_is_refused(store, name):
    with pytest.raises(ProtocolError, match="64 digits of lower hex"):
        receive(store, module(1), named=name or "?")
    with pytest.raises(ProtocolError, match="64 digits of lower hex"):
        store.path(name)


def test_a_sender_that_goes_away_leaves_nothing(store):
    async def next_message():
        return {"type": "http.disconnect"}

    with pytest.raises(HiveRefused, match="went away"):
        asyncio.run(store.receive(sha256(module(1)), None, next_message))
    with pytest.raises(HiveRefused, match="upload it first"):
        store.path(sha256(module(1)))


def test_a_new_module_takes_the_place_of_the_one_that_was_unused_for_longest(store):
    first, second, third = map(module, range(3))
    for number, data in enumerate((first, second)):
        receive(store, data)
        os.utime(store.path(sha256(data)), (number, number))
    store.use(sha256(first))
    receive(store, third)

    assert store.path(sha256(first)).exists()
    assert store.path(sha256(third)).exists()
    with pytest.raises(HiveRefused, match="upload it first"):
        store.path(sha256(second))


def test_modules_in_use_stay_and_one_more_is_refused(store, used):
    for data in (module(1), module(2)):
        receive(store, data)
        used.add(sha256(data))

    with pytest.raises(HiveRefused, match="keeps 2 modules") as refused:
        receive(store, module(3))
    assert refused.value.status == 503
    assert receive(store, module(1)).created is False
