"""What a step costs in this process, and over the wire that Unity's players have."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import ROOT, Companion
from tests.benchmarks.measuring import Block, Spread, microseconds
from tests.benchmarks.rows import AtLeast, Row, against

from arkml.envs.llapi.player_bundle import write_bundle

ORIGINALS = ROOT / ".venv-mlagents" / "bin" / "python"
OURS, THEIRS = "our UnityEnvironment and player", "the original and our player"


def rows(
    bench: Bench, topic: str, guest: Path, agents: int, step: Callable[[], object]
) -> Iterator[Row]:
    """`step` is one of `agents` agents of the guest behind the same API, in this process."""
    bench.say(f"a player of {agents} agents")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        player = write_bundle(folder, guest, [f"--configure-numbers={agents},{{seed}}"])

        def trainer(package: str, **options: str) -> Block:
            words = (package, player, _free_port(), bench.block_seconds)
            return stack.enter_context(Companion("stepping_player", *words, **options)).measure

        blocks = {
            "LLAPI": lambda: microseconds(step, bench.block_seconds),
            OURS: trainer("arkml.envs.llapi"),
        }
        if ORIGINALS.exists():
            blocks[THEIRS] = trainer("mlagents_envs", python=str(ORIGINALS))
        figures = bench.interleave(blocks)
    name = f"LLAPI, a step of {agents} agents"
    for competitor, bound in ((OURS, 50.0), (THEIRS, 200.0)):
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
