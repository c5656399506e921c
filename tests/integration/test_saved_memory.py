"""Copies of memories: which pages they have, and that they are the memory to the byte."""

import ctypes
import mmap
import random
from contextlib import suppress

import numpy as np
import pytest
from tests.integration.guest_text import GUESTS

from arkml import Host
from arkml.errors import ArkmlError
from arkml.guests.guest import calls_of
from arkml.runtime import native, saved_memory
from arkml.runtime.memory import PAGE
from arkml.runtime.saved_memory import MemoryCopies, PackedMemory, SavedMemories, SavedMemory
from arkml.runtime.wasi.linking import WasiGrant

SYSTEM_PAGE = mmap.PAGESIZE
NEED_A_GAME = {"c_cart", "c_plugin"}
LOADABLE = [path for path in sorted(GUESTS.glob("*.wasm")) if path.stem not in NEED_A_GAME]


@pytest.fixture(params=["native", "pure"])
def library(request, monkeypatch):
    """Run the test with the native library and without it."""
    if request.param == "pure":
        monkeypatch.setattr(native, "LIBRARY", None)
    elif native.LIBRARY is None:
        pytest.skip(native.MISSING)
    return request.param


def memory(pages=4):
    """Return a memory that nothing has touched, its address, and its bytes."""
    room = mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    view = (ctypes.c_char * len(room)).from_buffer(room)
    return view, ctypes.addressof(view), len(room)


def packed_of(content, page=SYSTEM_PAGE):
    """A memory as a file has it that was written where pages have that size."""
    pages = np.frombuffer(content, np.uint8).reshape(-1, page)
    held = pages.any(axis=1)
    return PackedMemory(len(content), page, held.tobytes(), pages[held].tobytes())


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("seed", range(20))
def test_a_copy_is_the_memory_wherever_it_was_written(seed):
    draw = random.Random(seed)
    places, views = [], []
    for _ in range(3):
        view, base, size = memory(draw.randint(1, 40))
        for _ in range(draw.randint(0, 5)):
            start = draw.randrange(size)
            data = draw.randbytes(draw.randint(1, 3 * SYSTEM_PAGE))[: size - start]
            ctypes.memmove(base + start, data, len(data))
        for _ in range(draw.randint(0, 3)):
            view[draw.randrange(size)]  # read only
        places.append((base, size))
        views.append(view)
    copies = MemoryCopies(places)
    made = copies.made()
    before = [view.raw for view in views]

    assert list(map(bytes, made)) == before
    assert [each.nbytes for each in made] == copies.sizes
    assert [bytes(SavedMemory.of(place, lambda _: None)) for place in places] == before
    for (base, size), copy in zip(places, made, strict=True):
        start = draw.randrange(size)
        ctypes.memset(base + start, 0xFF, min(2 * PAGE, size - start))
        again = SavedMemory.unpacked(packed_of(bytes(copy)))
        assert bytes(again) == bytes(copy)
        draw.choice([copy, again]).load(base)
    assert [view.raw for view in views] == before
    for base, size in places:
        ctypes.memset(base, 0xFF, size)
    for copies in (made, SavedMemories.of(list(made))):
        copies.load([base for base, _ in places])
        assert [view.raw for view in views] == before


def test_a_copy_has_the_pages_that_hold_something(library):
    view, base, size = memory()
    view[3 * SYSTEM_PAGE] = b"x"
    sizes = []
    for copy in (*MemoryCopies([(base, size)]).made(), SavedMemory.of((base, size), sizes.append)):
        held_pages(library, copy, size)
    assert sizes == [copy.nbytes]


@pytest.mark.parametrize("pages", [1, 8])
def test_a_page_that_holds_zeros_is_not_in_a_copy(pages):
    view, base, size = memory(pages)
    ctypes.memset(base, 0, size)
    view[SYSTEM_PAGE] = b"x"
    most = size // SYSTEM_PAGE + SYSTEM_PAGE

    assert native.LIBRARY is None or MemoryCopies([(base, size)]).sizes == [most]


def held_pages(library, copy, size):
    if library == "native":
        assert copy.nbytes < 4 * SYSTEM_PAGE  # of 64
    assert SavedMemory.unpacked(packed_of(bytes(copy))).nbytes == SYSTEM_PAGE + size // SYSTEM_PAGE


@pytest.mark.parametrize("page", [4_096, 8_192, 65_536])
@pytest.mark.parametrize("system", [4_096, 16_384, 65_536])
def test_a_copy_of_another_system_has_the_same_bytes(page, system, monkeypatch):
    content = bytearray(4 * PAGE)
    content[5] = content[3 * page] = content[-1] = 7
    monkeypatch.setattr(saved_memory, "_SYSTEM_PAGE", page)
    packed = SavedMemory.unpacked(packed_of(bytes(content), page)).packed()
    monkeypatch.setattr(saved_memory, "_SYSTEM_PAGE", system)
    again = SavedMemory.unpacked(packed)

    assert bytes(again) == content
    assert again.packed().page == system
    assert len(again.packed().content) <= 3 * max(page, system)


@pytest.mark.usefixtures("library")
def test_nothing_is_copied_of_no_memory():
    none = MemoryCopies([]).made()
    assert list(none) == list(SavedMemories.of([])) == []
    none.load([])
    for copy in (*MemoryCopies([(0, 0)]).made(), SavedMemory.of((0, 0), lambda _: None)):
        assert bytes(copy) == b""
        copy.load(0)


@pytest.mark.parametrize("path", LOADABLE, ids=lambda path: path.stem)
def test_pages_that_a_guest_has_not_touched_are_zeros(path):
    """They would not be in a copy, and a data segment may not lie in one."""
    with Host(wasi=WasiGrant()) as host:
        guest = host.load(path)
        with suppress(ArkmlError):
            guest.update()
        base, size = calls_of(guest).instance.memory_place
        (copy,) = MemoryCopies([(base, size)]).made()

        assert bytes(copy) == (ctypes.string_at(base, size) if size else b"")
