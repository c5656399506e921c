"""Guests of the arcade, built natively with a host of a few lines."""

from __future__ import annotations

import ctypes
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tools.arcade import compiler

HOST = Path(__file__).with_name("native_host.c")
SOURCES = compiler.ROOT / "build" / "arcade" / "sources"
_EXPORTS = "{ global: native_*; local: *; };"
_FLAGS = (
    *compiler.NUMBERS, "-shared", "-fPIC", "-w", "-ffunction-sections", "-fdata-sections",
    "-Wl,--gc-sections", "-Wl,--unresolved-symbols=ignore-all",  # what draws
)  # fmt: skip
_RUNNING, _TERMINAL, _INTERRUPTED, _INITIAL = range(4)  # as in ark_types.h


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a submit, in the order in which they were pushed."""

    observations: NDArray[np.float32]
    rewards: NDArray[np.float32]
    started: NDArray[np.bool_]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    scores: NDArray[np.float32]


class NativeGame:
    """A game of the arcade as a library of this machine."""

    def __init__(self, name: str, features: int, folder: Path) -> None:
        self._features = features
        self._library = _compiled(name, folder)

    def reset(self, copies: int, seed: int) -> None:
        self._library.native_reset(copies, seed)

    def frame(self, answers: NDArray[np.float32]) -> Rows:
        """Push and submit the rows of all agents; `answers` are for those that act."""
        library = self._library
        count = library.native_frame(ctypes.c_void_p(answers.ctypes.data))
        states = self._array("native_states", np.uint8, count)
        return Rows(
            self._array("native_features", np.float32, count * self._features).reshape(count, -1),
            self._array("native_rewards", np.float32, count),
            states == _INITIAL,
            states == _TERMINAL,
            states == _INTERRUPTED,
            self._array("native_metrics", np.float32, library.native_metric_count()),
        )

    def loop(self, answers: NDArray[np.float32]) -> None:
        """Step all copies, without rows."""
        self._library.native_loop(ctypes.c_void_p(answers.ctypes.data))

    def _array(self, function, dtype, count):
        place = getattr(self._library, function)
        place.restype = ctypes.c_void_p
        size = count * np.dtype(dtype).itemsize
        return np.frombuffer(ctypes.string_at(place(), size) if size else b"", dtype)


def _compiled(name: str, folder: Path) -> ctypes.CDLL:
    exports, path = folder / "exports", folder / f"{name}.so"
    exports.write_text(_EXPORTS)
    command = [
        "clang", *_FLAGS, f"-Wl,--version-script={exports}", f'-DSOURCE="{name}.c"',
        *compiler.include_flags(compiler.GAMES / f"{name}.c", SOURCES), "-o", str(path), str(HOST),
        "-lm",
    ]  # fmt: skip
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(path), mode=os.RTLD_LAZY)
