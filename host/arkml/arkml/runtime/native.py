"""
The native library: `host/arkml/native/arkml_native.c`, compiled when the package is built.

The library has the two functions that run on the stacks of guests, the loop that runs many guests
on several threads, the steps by which a guest is made, and functions that copy many memories. Where
the library is missing, `LIBRARY` is None, `MISSING` says why, and Python does the same work on one
thread. `ARKML_PURE=1` in the environment leaves it out on purpose.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from ctypes import c_bool, c_double, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from enum import IntEnum
from pathlib import Path
from typing import Any

BUILD = 13
"""Number of the structures and functions below, as ARKML_BUILD in the library."""
NAME = {"win32": "arkml_native.dll", "darwin": "libarkml_native.dylib"}.get(
    sys.platform, "libarkml_native.so"
)
PURE = "ARKML_PURE"
"""Environment variable: not empty and not 0 to run without the library."""

ANSWER, CHARGE, GO_ON = 1, 2, 4  # flags of `run`
NOT_RUN, ENDED, SUBMITTED, AT_FRAME_END, OTHER = range(5)  # outcomes
DONE, LEFT_NEWS, SUSPENDED, SPENT = range(4)  # of `call`
BY_BLOCK = 1  # a flag of steps: the offset of the control block is added to the number

_log = logging.getLogger("arkml")


class Round(ctypes.Structure):
    """The struct `arkml_round` of the native library: one round of calls of many guests."""

    _fields_ = (
        ("poll", c_void_p),
        ("futures", c_void_p),
        ("begin", c_void_p),
        ("delete", c_void_p),
        ("calls", c_void_p),
        ("reasons", c_void_p),
        ("memories", c_void_p),
        ("used", c_void_p),
        ("began", c_void_p),
        ("answer", c_int64),
        ("long_stretch", c_double),
        ("slice", c_double),
        ("alert", c_double),
        ("threads", c_uint32),
        ("is_measured", c_uint32),
        ("outcomes", c_void_p),
        ("counts", c_uint64 * 5),
        ("seconds", c_double),
        ("elsewhere", c_double),
        ("wall", c_double),
        ("is_late", c_uint32),
        ("took_part", c_uint32),
        ("runs", c_uint32),
        ("alone", c_double * 2),
        ("together", c_double * 2),
        ("phase", c_uint32),
        ("tried", c_uint32),
        ("helps", c_uint32),
        ("left", c_uint32),
        ("doubled", c_uint32),
    )


class Column(ctypes.Structure):
    """
    The struct `column` of the native library: rows of a batch, with a module's memory address.
    """

    _fields_ = (("rows", c_void_p), ("place", c_void_p), ("size", c_size_t))


class RowRuns(ctypes.Structure):
    """
    The struct `arkml_rows` of the native library: runs of a compiled model on the rows of a batch.
    """

    _fields_ = (
        ("call", c_void_p),
        ("taken", c_void_p),
        ("context", c_void_p),
        ("function", c_void_p),
        ("count", c_size_t),
        ("inputs", c_size_t),
        ("outputs", c_size_t),
        ("columns", c_void_p),
        ("trap", c_void_p),
        ("error", c_void_p),
    )


class SubmitAnswer(ctypes.Structure):
    """The struct `arkml_answer` of the native library: how to answer the submits of one session."""

    _fields_ = (
        ("record", c_uint64),
        ("count_at", c_uint64),
        ("metadata", c_uint64),
        ("count", c_uint64),
        ("rows", c_void_p),
        ("bound", c_void_p),
        ("is_of_guest", c_uint64),
    )


class Single(ctypes.Structure):
    """The struct `arkml_single` of the native library: a guest that is called again and again."""

    _fields_ = (
        ("round", c_void_p),
        ("place", c_int64),
        ("record", c_uint64),
        ("errors", c_uint64),
        ("noted", c_uint64),
        ("answers", c_void_p),
        ("answer_count", c_uint64),
        ("room", c_double),
        ("models", c_double),
        ("policies", c_double),
        ("began", c_double),
        ("models_then", c_double),
        ("policies_then", c_double),
        ("stretch", c_double),
        ("is_of_model", c_uint32),
    )


class StepKind(IntEnum):
    """Kinds of steps in the making of a guest, as the library numbers them."""

    LIMIT = 0
    SET_DEADLINE = 1
    TURNS = 2
    PREPARED = 3
    LINKED = 4
    EXPORT = 5
    FIND = 6
    DEFINE = 7
    SET_GLOBAL = 8
    SET_ELEMENT = 9
    GROW = 10


class BuildStep(ctypes.Structure):
    """The struct `step` of the native library: one step in making the instances of a guest."""

    _fields_ = (
        ("kind", c_uint32),
        ("flags", c_uint32),
        ("source", c_uint32),
        ("slot", c_uint32),
        ("object", c_void_p),
        ("module", c_void_p),
        ("space", c_void_p),
        ("space_size", c_size_t),
        ("name", c_void_p),
        ("name_size", c_size_t),
        ("numbers", c_int64 * 5),
        ("value", c_uint8 * 32),
    )


class BuildSteps(ctypes.Structure):
    """
    The struct `arkml_steps` of the native library: all steps that make the instances of a guest.
    """

    _fields_ = (
        ("limit", c_void_p),
        ("set_deadline", c_void_p),
        ("call_at_deadline", c_void_p),
        ("prepared", c_void_p),
        ("linked", c_void_p),
        ("poll", c_void_p),
        ("delete_future", c_void_p),
        ("export_of", c_void_p),
        ("find", c_void_p),
        ("define", c_void_p),
        ("set_global", c_void_p),
        ("set_element", c_void_p),
        ("grow", c_void_p),
        ("steps", c_void_p),
        ("count", c_size_t),
    )


class Library:
    """The functions of the native library at `path`. Raises OSError for an unusable library."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        try:
            build, size = library.arkml_build, library.arkml_round_size
        except AttributeError:
            raise OSError(f"{path} is no library of arkml") from None
        size.restype = c_size_t
        if build() != BUILD or size() != ctypes.sizeof(Round):
            raise OSError(f"{path} is of build {build()}, this version of arkml needs {BUILD}")
        self._library = library
        self.suspend = _address(library.arkml_suspend)
        """Address of a wasmtime_func_async_callback_t."""
        self.end_turn = _address(library.arkml_end_turn)
        """Address of the callback of epoch deadlines."""
        self.run: Any = library.arkml_run
        """(address of a `Round`, address of places, count, flags) → all have run."""
        self.run.argtypes = [c_void_p, c_void_p, c_size_t, c_uint32]
        self.run.restype = c_bool
        self.call: Any = library.arkml_call
        """(address of a `Single`, of the arguments of a call) → DONE, LEFT_NEWS, ..."""
        self.call.argtypes = [c_void_p, c_void_p]
        self.call.restype = c_uint32
        self.take_steps: Any = library.arkml_take_steps
        """(address of `BuildSteps`, store, context, control block, room) → failed step, or 0."""
        self.take_steps.argtypes = [c_void_p, c_void_p, c_void_p, c_uint64, c_void_p]
        self.take_steps.restype = c_size_t
        self.delete: Any = library.arkml_delete
        """(address of delete, of places, count, address of futures)."""
        self.delete.argtypes = [c_void_p, c_void_p, c_size_t, c_void_p]
        self.delete.restype = None
        self.read_globals: Any = library.arkml_read_globals
        """(address of global_get, of contexts, of globals, count, bytes of a value, of values)."""
        self.read_globals.argtypes = [*(c_void_p,) * 3, c_size_t, c_size_t, c_void_p]
        self.read_globals.restype = None
        self.write_globals: Any = library.arkml_write_globals
        """(address of global_set, and the rest as `read_globals`) → address of an error, or 0."""
        self.write_globals.argtypes = self.read_globals.argtypes
        self.write_globals.restype = c_void_p
        self.memory_pages: Any = library.arkml_memory_pages
        """(address of memory_size, of contexts, of memories, count, address of u64s)."""
        self.memory_pages.argtypes = [c_void_p, c_void_p, c_void_p, c_size_t, c_void_p]
        self.memory_pages.restype = None
        self.gather: Any = library.arkml_gather
        """(address of addresses, count, bytes of each, address of all bytes)."""
        self.gather.argtypes = [c_void_p, c_size_t, c_size_t, c_void_p]
        self.gather.restype = None
        self.scatter: Any = library.arkml_scatter
        """(address of addresses, count, bytes of each, address of all bytes)."""
        self.scatter.argtypes = [c_void_p, c_size_t, c_size_t, c_void_p]
        self.scatter.restype = None
        self.find_pages: Any = library.arkml_find_pages
        """(address of memories, count, bytes of a page of the system)."""
        self.save_pages: Any = library.arkml_save_pages
        self.load_pages: Any = library.arkml_load_pages
        for function in (self.find_pages, self.save_pages, self.load_pages):
            function.argtypes = [c_void_p, c_size_t, c_size_t]
            function.restype = None
        self.run_rows: Any = ctypes.PYFUNCTYPE(c_bool, c_void_p)(("arkml_run_rows", library))
        """(address of `RowRuns`) → all have run. It keeps the GIL."""
        self.draw_rows: Any = ctypes.PYFUNCTYPE(
            c_bool, c_void_p, c_void_p, c_void_p, ctypes.c_int32
        )(("arkml_draw_rows", library))
        """(address of `RowRuns`, of streams, of steps, pink) → all have run. It keeps the GIL."""
        self.end_workers: Any = library.arkml_end_workers
        self.end_workers.restype = None
        self.after_fork: Any = library.arkml_after_fork
        self.after_fork.restype = None
        library.arkml_set_turn_offset.argtypes = [c_int64]
        library.arkml_workers.restype = c_uint32

    def set_turn_offset(self, offset: int) -> None:
        """Set how many bytes after the field DEADLINE a control block has the field TURN."""
        self._library.arkml_set_turn_offset(offset)

    def workers(self) -> tuple[int, bool]:
        """Return the number of worker threads, and whether the system has refused one."""
        is_refused = c_uint32()
        alive: int = self._library.arkml_workers(ctypes.byref(is_refused))
        return alive, bool(is_refused.value)


def _address(function: Any) -> int:
    return ctypes.cast(function, c_void_p).value or 0


def _load() -> tuple[Library | None, str]:
    """Return the library, or None and a sentence that says why there is none."""
    if os.environ.get(PURE, "0") not in {"", "0"}:
        return None, f"{PURE} is set"
    path = Path(__file__).with_name(NAME)
    if not path.exists():
        return None, f"{NAME} was not built: no C compiler was found when arkml was installed"
    try:
        return Library(path), ""
    except OSError as error:
        return None, str(error)


LIBRARY, MISSING = _load()
if MISSING:
    _log.info("guests run on one thread, in Python: %s", MISSING)
