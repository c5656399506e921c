"""Outlines of modules: a cache on disk, beside the machine code, of facts about each module."""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from dataclasses import dataclass
from functools import cache

from arkml.runtime import module
from arkml.runtime.compilation import artifacts
from arkml.runtime.module.binary import Binary, ExternKind
from arkml.runtime.module.description import ModuleInfo, describe
from arkml.runtime.module.normalize import CodePlaces, MemoryPlan, Normalized, StatePlan

_MOST_BYTES = 1 << 20  # of an entry: a module that declares more is read again
_MOST_LISTED = 10_000  # imports and exports, which take long to pickle
_DAMAGES = (AttributeError, EOFError, ImportError, TypeError, ValueError, pickle.UnpicklingError)


@dataclass(frozen=True, slots=True)
class Outline:
    """
    The facts about a module that a host needs beside its bytes and its machine code.

    `binary` has tables, memories and the size of bodies, and nothing else. `code` is the SHA-256 of
    the rewritten module.
    """

    binary: Binary
    info: ModuleInfo
    memory: MemoryPlan | None
    has_objects: bool
    places: CodePlaces
    code: str
    state: StatePlan


def outlined(normalized: Normalized) -> Outline:
    """Return the outline of a normalized module."""
    binary = normalized.binary
    bare = Binary(b"", tables=binary.tables, memories=binary.memories, bodies=binary.bodies)
    code = hashlib.sha256(normalized.wasm).hexdigest()
    places = CodePlaces(
        normalized.shift,
        {e.index: e.name for e in reversed(binary.exports) if e.kind is ExternKind.FUNCTION},
    )
    return Outline(
        bare,
        describe(binary),
        normalized.memory,
        binary.has_objects,
        places,
        code,
        normalized.state,
    )


def load_outline(digest: str) -> Outline | None:
    """Return the cached outline of the module with this SHA-256, or None."""
    content = artifacts.load(_entry_name(digest))
    if content is None:
        return None
    try:
        # Authenticated as machine code is, and trusted no further than that.
        found = pickle.loads(content)
    except _DAMAGES:
        return None
    return found if type(found) is Outline else None


def save_outline(digest: str, outline: Outline) -> None:
    """Store the outline of the module with this SHA-256, if that is possible."""
    if len(outline.info.imports) + len(outline.info.exports) > _MOST_LISTED:
        return
    content = pickle.dumps(outline, pickle.HIGHEST_PROTOCOL)
    if len(content) <= _MOST_BYTES:
        artifacts.save(_entry_name(digest), content)


def _entry_name(digest: str) -> str:
    return hashlib.sha256(f"outline\n{_reader()}\n{digest}".encode()).hexdigest()


@cache
def _reader() -> str:
    """Return a text that identifies this version of the code that reads modules."""
    sources = [
        f"{entry.name} {(found := entry.stat()).st_size} {found.st_mtime_ns}"
        for folder in module.__path__
        for entry in os.scandir(folder)
        if entry.name.endswith(".py")
    ]
    return "\n".join([sys.version, *sorted(sources)])
