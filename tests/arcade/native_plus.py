"""Guests of the arcade in C++, built natively."""

import ctypes
import subprocess
from pathlib import Path

import numpy as np
from tools.arcade import compiler
from tools.arcade.__main__ import BUILT

from arkml import GuestEnv


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


def ends_beside_native(game, folder, steps):
    """Play a guest and its native build by random actions; they stay equal. Return the ends."""
    chance, ends = np.random.default_rng(0), 0
    with GuestEnv(game, configure=(1, 3)) as environment:
        (decision,) = environment.reset().decisions
        behavior = decision.behavior
        width, branches = behavior.num_actions, behavior.spec.actions.branches
        native = Native(game.stem, folder, 3, behavior.num_features)
        features = native.step(None)
        for number in range(steps):
            assert decision.observations[0].tobytes() == features.tobytes(), number
            if decision.ended[0]:
                ends += 1
                (decision,) = environment.step(np.zeros((0, width), np.float32)).decisions
                features = native.step(None)
                continue
            action = (
                chance.integers(0, branches[0], (1, width))
                if branches
                else chance.uniform(-1, 1, (1, width))
            ).astype(np.float32)
            (decision,) = environment.step(action).decisions
            features = native.step(action)
            reward = decision.rewards[0]
            assert np.isfinite(reward), number
            assert reward.tobytes() == np.float32(native.reward.value).tobytes(), number
            assert native.terminated == bool(decision.terminated[0]), number
    native.close()
    return ends
