"""Random messages of a trainer to a player."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from tests.fuzz.corpus import seeds_of
from tests.fuzz.mutations import mutated

from arkml import Host
from arkml.envs.llapi.communicator_objects.agent_action_pb2 import AgentActionProto
from arkml.envs.llapi.communicator_objects.command_pb2 import QUIT, RESET, STEP
from arkml.envs.llapi.communicator_objects.unity_input_pb2 import UnityInputProto
from arkml.envs.llapi.communicator_objects.unity_output_pb2 import UnityOutputProto
from arkml.envs.llapi.communicator_objects.unity_rl_input_pb2 import UnityRLInputProto
from arkml.envs.llapi.player import _converse
from arkml.envs.llapi.player_areas import Areas
from arkml.errors import ArkmlError

_GUEST = Path(__file__).parents[2] / "fixtures" / "guests" / "c_pendulum.wasm"
_NAME, _AGENTS = "pendulum?team=0", 3
_NUMBERS = [0.0, 1.0, -1.0, 3e38, float("nan"), float("inf"), 1e-45]


class ScriptedTrainer:
    """The line of a player to a trainer that sends `messages`, one after another, and closes."""

    def __init__(self, messages: Sequence[UnityInputProto]) -> None:
        self.outputs: list[UnityOutputProto] = []
        self._messages = iter(messages)

    def exchange(self, output: UnityOutputProto) -> UnityInputProto | None:
        self.outputs.append(output)
        return next(self._messages, None)

    def stop(self, reason: str) -> None:
        assert reason


def _actions(counts: tuple[int, int, int], number: float, name: str) -> dict[str, Any]:
    agents, continuous, discrete = counts
    proto = AgentActionProto(
        continuous_actions=[number] * continuous, discrete_actions=[7] * discrete
    )
    return {name: UnityRLInputProto.ListAgentActionProto(value=[proto] * agents)}


def _request(command: Any, actions: dict[str, Any], block: bytes) -> bytes:
    request = UnityRLInputProto(command=command, agent_actions=actions, side_channel=block)
    return bytes(UnityInputProto(rl_input=request).SerializeToString())


_COUNTS = st.tuples(
    st.sampled_from([_AGENTS] * 4 + [0, 1, 9]), st.sampled_from([1, 1, 1, 0, 2, 500]),
    st.sampled_from([0, 0, 0, 1]),
)  # fmt: skip
_BLOCKS = st.one_of(st.just(b""), st.just(b""), mutated(seeds_of("side_channels")))
_REQUESTS: SearchStrategy[bytes] = st.builds(
    _request,
    st.sampled_from([STEP] * 5 + [RESET, RESET, QUIT]),
    st.one_of(
        st.builds(
            _actions, _COUNTS, st.sampled_from(_NUMBERS), st.sampled_from([_NAME] * 5 + ["x", ""])
        ),
        st.just({}),
    ),
    _BLOCKS,
)
CASES: SearchStrategy[list[bytes]] = st.lists(
    st.one_of(_REQUESTS, _REQUESTS, _REQUESTS, mutated(seeds_of("player"))), max_size=6
)
"""Messages of a trainer, serialized."""


@contextmanager
def player() -> Iterator[Callable[[list[bytes]], None]]:
    """Yield the check of a conversation, which ends well or with one of our errors."""
    with Host() as host:
        yield lambda case: _check(host, case)


def _check(host: Host, case: list[bytes]) -> None:
    messages = []
    for data in case:
        try:
            messages.append(UnityInputProto.FromString(data))
        except DecodeError:
            continue
    trainer: Any = ScriptedTrainer(messages)
    with Areas(host, _GUEST, 1, 3, {"configure": (_AGENTS, "{seed}")}) as areas:
        try:
            played = _converse(trainer, areas, 1)
        except ArkmlError as error:
            assert str(error)  # noqa: PT017 any of our errors may come, and each says something
        else:
            assert played.resets + played.steps <= len(messages)
