"""What a step costs in this process, and over the wire that Unity's players have."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks import stepping
from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import ROOT, Companion
from tests.benchmarks.measuring import Block, Spread, mean_microseconds
from tests.benchmarks.rows import AtLeast, Row, against

from arkml.envs.llapi.player_bundle import write_bundle

ORIGINALS = ROOT / ".venv-mlagents" / "bin" / "python"
OURS, THEIRS = "our UnityEnvironment and player", "the original and our player"
BOUNDS = {"pendulum": (20.0, 200.0), "cart-pole": (7.0, 30.0)}
STEPS = stepping.EPISODE + 1


def rows(bench: Bench, topic: str, game: str, agents: int) -> Iterator[Row]:
    bench.say(f"{game}: a player of {agents} agents")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        configured = [f"--configure-numbers={agents},{{seed}}"]
        player = write_bundle(folder, stepping.path(game), configured)

        def trainer(package: str, **options: str) -> Block:
            words = (package, player, _free_port(), game, agents, STEPS)
            return stack.enter_context(Companion("stepping_player", *words, **options)).measure

        here = stepping.low_level(stack, game, agents)
        blocks = {"LLAPI": lambda: mean_microseconds(here, STEPS)}
        blocks[OURS] = trainer("arkml.envs.llapi")
        if ORIGINALS.exists():
            blocks[THEIRS] = trainer("mlagents_envs", python=str(ORIGINALS))
        figures = bench.interleave(blocks, rounds=3 if bench.quick else 7)
    name = f"{game}: LLAPI, a step of {agents} agents"
    for competitor, bound in zip((OURS, THEIRS), BOUNDS[game], strict=True):
        if competitor in figures:
            yield against(
                topic, name, "µs", figures["LLAPI"], competitor, figures[competitor],
                AtLeast(bound),
            )  # fmt: skip
        else:
            ours = Spread.of(figures["LLAPI"])
            why = "the original is not there: make test-mlagents sets it up"
            yield Row(topic, name, "µs", ours, AtLeast(bound), competitor, why_not=why)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
