"""
A trainer that steps a player over gRPC, by any package, for `players`.

    python -m tests.benchmarks.stepping_player PACKAGE EXECUTABLE PORT SECONDS
"""

from __future__ import annotations

import importlib
import logging
import sys

import numpy as np
from tests.benchmarks.companion import serve
from tests.benchmarks.measuring import microseconds


def main(package: str, executable: str, port: str, seconds: str) -> None:
    logging.disable(logging.WARNING)  # the original logs on stdout
    environment = importlib.import_module(f"{package}.environment")
    actions = importlib.import_module(f"{package}.base_env").ActionTuple
    env = environment.UnityEnvironment(executable, base_port=int(port))
    env.reset()
    (name,) = env.behavior_specs

    def step() -> None:
        deciding, _ = env.get_steps(name)
        env.set_actions(name, actions(continuous=np.zeros((len(deciding), 1), np.float32)))
        env.step()

    serve(lambda: microseconds(step, float(seconds)))
    env.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
