"""Guests of the arcade in C++, built natively."""

import ctypes
import subprocess
from pathlib import Path

import numpy as np
from tools.arcade import compiler
from tools.arcade.__main__ import BUILT


class Native:
    """A game as a library of this machine."""

    def __init__(self, name, folder, seed, features):
        path = folder / f"{name}.so"
        source = compiler.GAMES / f"{name}.cpp"
        host = Path(__file__).with_suffix(".cpp")
        folders = compiler.include_flags(source, BUILT / "sources")
        flags = [
            "-std=c++17", *compiler.NUMBERS, "-w", "-shared", "-fPIC", f'-DSOURCE="{name}.cpp"',
        ]  # fmt: skip
        subprocess.run(["clang++", *flags, *folders, "-o", path, host], check=True)
        self._library = ctypes.CDLL(str(path))
        self._library.native_game.restype = ctypes.c_void_p
        self._library.native_step.restype = ctypes.c_bool
        self._game = ctypes.c_void_p(self._library.native_game(seed))
        self._features = np.zeros(features, np.float32)
        self.reward = ctypes.c_float()
        self.terminated = False

    def step(self, action):
        """Take a step, or start an episode without an action; return the observation."""
        self.terminated = self._library.native_step(
            self._game,
            None if action is None else ctypes.c_void_p(action.ctypes.data),
            ctypes.c_void_p(self._features.ctypes.data),
            ctypes.byref(self.reward),
        )
        return self._features.copy()

    def close(self):
        self._library.native_free(self._game)
