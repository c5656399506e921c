"""
A trainer that steps a player over gRPC, by any package, for `players`.

    python -m tests.benchmarks.stepping_player PACKAGE EXECUTABLE PORT GAME AGENTS STEPS
"""

from __future__ import annotations

import importlib
import logging
import sys

from tests.benchmarks.actions import ours
from tests.benchmarks.companion import serve
from tests.benchmarks.measuring import mean_microseconds


def main(package: str, executable: str, port: str, game: str, agents: str, steps: str) -> None:
    logging.disable(logging.WARNING)  # the original logs on stdout
    environment = importlib.import_module(f"{package}.environment")
    acting = importlib.import_module(f"{package}.base_env").ActionTuple
    env = environment.UnityEnvironment(executable, base_port=int(port))
    env.reset()
    (name,) = env.behavior_specs
    following = ours(game, int(agents))

    def step() -> None:
        deciding, _ = env.get_steps(name)
        env.set_actions(name, acting(continuous=next(following)[: len(deciding)]))
        env.step()

    serve(lambda: mean_microseconds(step, int(steps)))
    env.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
