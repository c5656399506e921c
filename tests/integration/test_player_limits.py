"""Players whose trainers send too much, or what no trainer sends."""

import os
import random
import struct
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from tests.integration.command_line import GUESTS, arkml
from tests.integration.test_environment import INITIAL, RUNNING, scripted
from tests.integration.test_llapi_environment import free_port

from arkml import Host
from arkml.envs.core.world import Pace
from arkml.envs.llapi import handshake
from arkml.envs.llapi.communicator_objects.agent_action_pb2 import AgentActionProto
from arkml.envs.llapi.communicator_objects.command_pb2 import RESET, STEP
from arkml.envs.llapi.communicator_objects.header_pb2 import HeaderProto
from arkml.envs.llapi.communicator_objects.unity_input_pb2 import UnityInputProto
from arkml.envs.llapi.communicator_objects.unity_message_pb2 import UnityMessageProto
from arkml.envs.llapi.exception import UnityEnvironmentException
from arkml.envs.llapi.guest_channels import (
    ENGINE,
    MOST_BYTES,
    MOST_MESSAGES,
    PARAMETERS,
    GuestChannels,
    messages_of,
)
from arkml.envs.llapi.player import PlayerSettings, play
from arkml.envs.llapi.side_channel.side_channel_manager import frame
from arkml.errors import ArkmlError, UsageError
from arkml.limits import PLAYER_AREAS

MESSAGES = int(os.environ.get("ARKML_PLAYER_MESSAGES", "150"))
"""Number of hostile messages; `ARKML_PLAYER_MESSAGES=2000` sends those of docs/reliability.md."""
METHOD = "/communicator_objects.UnityToExternalProto/Exchange"
NAME = "script?team=0"
NAN = float("nan")
AGENT = [[(1, RUNNING if turn else INITIAL, 0)] for turn in range(60)]
LISTENING = """
  (func (export "ark_alloc") (param i32 i32) (result i32) (i32.const 4096))
  (func (export "ark_free") (param i32 i32 i32))
  (func (export "arkml_side_channel") (param i32 i32) (result i32) (i32.const 0))
"""
GUEST = scripted(*AGENT, exports=LISTENING)


class Trainer(grpc.GenericRpcHandler):
    """A trainer that answers the bytes of `script`, one after another, and then closes."""

    def __init__(self):
        self.script = []
        self.heard = []

    def service(self, details):
        assert details.method == METHOD
        return grpc.unary_unary_rpc_method_handler(self._answer)

    def _answer(self, request, _context):
        self.heard.append(request)
        stopping = UnityMessageProto.FromString(request).header.status != 200
        if stopping or not self.script:
            return UnityMessageProto(header=HeaderProto(status=400)).SerializeToString()
        return self.script.pop(0)


@contextmanager
def serving():
    """A trainer, and the port that it serves on."""
    trainer, port = Trainer(), free_port()
    options = [("grpc.so_reuseport", 0), ("grpc.max_send_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(2), handlers=[trainer], options=options)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield trainer, port
    finally:
        server.stop(None).wait()


@pytest.fixture(scope="module")
def trained():
    with serving() as served, Host() as host:
        yield (
            served,
            lambda **settings: play(
                host, GUEST, PlayerSettings(served[1], patience=20, **settings)
            ),
        )


def answer(message):
    """The bytes of a message of a trainer."""
    whole = UnityMessageProto(header=HeaderProto(status=200), unity_input=message)
    return whole.SerializeToString()


def greeting(*, areas=1, seed=0, version=handshake.API_VERSION):
    made = handshake.greeting(seed, areas)
    made.communication_version = version
    return answer(UnityInputProto(rl_initialization_input=made))


def command(kind, channels=b"", **actions):
    message = UnityInputProto()
    message.rl_input.command = kind
    message.rl_input.side_channel = channels
    for name, some in actions.items():
        message.rl_input.agent_actions[name].value.extend(some)
    return message


def reason(trainer):
    """The text with which the player stopped."""
    return UnityMessageProto.FromString(trainer.heard[-1]).header.message


@pytest.mark.parametrize("areas", [PLAYER_AREAS + 1, 100_000_000, 2**31 - 1])
def test_more_areas_than_a_player_has_are_refused_at_once(trained, areas):
    (trainer, _), player = trained
    trainer.script = [greeting(areas=areas)]
    with pytest.raises(UsageError, match=f"{areas:,} areas are over the limit of 1,024"):
        player()

    assert f"{areas:,} areas are over the limit" in reason(trainer)


def test_the_option_for_areas_has_the_same_limit():
    found = arkml("player", GUESTS / "c_pendulum.wasm", "--num-areas=100000000")

    assert found.status == 2
    assert "--num-areas 100000000: it takes a whole number from 1 to 1024" in found.err


def test_a_message_over_the_limit_of_a_trainer_ends_the_player_with_a_sentence(trained):
    (trainer, _), player = trained
    long = command(RESET, b"x" * handshake.TRAINER_BYTES)
    trainer.script = [greeting(), answer(long)]
    with pytest.raises(ArkmlError, match="A trainer sends at most 16,777,216 bytes at once"):
        player()


def test_a_version_of_thousands_of_digits_is_refused(trained):
    (trainer, _), player = trained
    trainer.script = [greeting(version="1" * 10_000 + ".5.0")]
    with pytest.raises(UnityEnvironmentException, match=r"Python API: 1{40}, Unity API"):
        player()


def test_a_name_of_a_megabyte_is_not_repeated_in_the_error(trained):
    (trainer, _), player = trained
    names = {"\x1b[2J" + "x" * 1_000_000: [AgentActionProto()]}
    trainer.script = [greeting(), answer(command(RESET)), answer(command(STEP, **names))]
    with pytest.raises(ArkmlError, match="which is unknown") as refused:
        player()

    assert len(str(refused.value)) < 300
    assert "\x1b" not in str(refused.value)


def test_a_step_brings_a_limited_number_of_messages(trained, caplog):
    (trainer, _), player = trained
    many = b"".join(frame(PARAMETERS, b"") for _ in range(MOST_MESSAGES + 1))
    trainer.script = [greeting(areas=3), answer(command(RESET, many)), answer(command(STEP))]
    played = player()

    assert (played.resets, played.steps) == (1, 1)
    assert caplog.text.count("more than 1,000 messages at once") == 1


def test_a_block_of_messages_is_limited_in_bytes():
    block = frame(PARAMETERS, b"x" * MOST_BYTES)
    with pytest.raises(UnityEnvironmentException, match="bytes at once, the limit is 4,194,304"):
        messages_of(block)


def test_messages_that_wait_for_a_reset_are_limited(caplog):
    delivered = []
    channels = GuestChannels(lambda message: bool(delivered.append(message)), Pace())
    for _ in range(100):
        channels.take([(uuid.UUID(int=7), bytes(1 << 20))])
    channels.attend(anew=True)
    for _ in range(100):
        channels.take([(uuid.UUID(int=7), b"")] * 1000)
    channels.attend(anew=True)

    assert len(delivered) == 16 + 10_000
    assert caplog.text.count("too many wait for a reset") == 1


# Hostile messages.


def of_noise(chance):
    """Bytes that are no message, or one of another kind."""
    return chance.randbytes(chance.choice([0, 1, 5, 100, 5000]))


def of_damage(chance):
    """A good message with some bytes changed, or cut off."""
    data = bytearray(answer(of_step(chance)))
    for _ in range(chance.randint(1, 4)):
        if data:
            data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data[: chance.randint(0, len(data))] if chance.random() < 0.3 else data)


def of_block(chance):
    """Messages of side channels, most of them wrong in some way."""
    block = b""
    for _ in range(chance.choice([0, 1, 2, 30])):
        channel = chance.choice([ENGINE, PARAMETERS, uuid.UUID(int=chance.getrandbits(128))])
        content = chance.choice([
            chance.randbytes(chance.choice([0, 3, 4, 8, 40])),
            struct.pack("<if", chance.randint(-1, 6), chance.choice([1.0, -1.0, 1e38, NAN])),
            struct.pack("<i", chance.choice([0, 3, -1, 2**31 - 1])) + b"key",
        ])  # fmt: skip
        block += frame(channel, content)
    return block[: chance.randint(0, len(block))] if chance.random() < 0.3 else block


def of_step(chance):
    """A step or reset, in which a part is wrong now and then."""

    def mostly(usual, *others):
        return usual if chance.random() < 0.98 else chance.choice(others)

    numbers = [0.0, 1.0, -3e38, mostly(2.0, NAN, float("inf"))]
    actions = [
        AgentActionProto(
            continuous_actions=chance.choices(numbers, k=mostly(1, 0, 2, 500)),
            discrete_actions=[2**31 - 1] * mostly(0, 1),
        )
        for _ in range(mostly(1, 0, 2, 300))
    ]
    name = mostly(NAME, "", "script", "\0\x1b[2J", "x" * 100_000)
    kind = chance.choices([STEP, RESET, 2, 77, -1], [80, 15, 1, 3, 3])[0]
    return command(kind, of_block(chance), **({name: actions} if chance.random() < 0.8 else {}))


def of_greeting(chance):
    if chance.random() < 0.9:
        return greeting(areas=chance.choice([0, 1, 1, -1, -(2**31)]))
    return greeting(
        areas=chance.choice([2, 2**31 - 1]),
        seed=chance.choice([0, 7, -1, -(2**31), 2**31 - 1]),
        version=chance.choice(["", "0.5", "1" * 5000, "x", "\u0663.\u0661"]),
    )


def conversation(chance):
    """A trainer's answers, of which any may be hostile."""
    first = of_greeting(chance) if chance.random() < 0.95 else of_noise(chance)
    rest = []
    for _ in range(40):
        kind = chance.choices([of_step, of_damage, of_noise], [30, 1, 1])[0]
        made = kind(chance)
        rest.append(made if isinstance(made, bytes) else answer(made))
    return [first, answer(command(RESET)), *rest]


def resident():
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_hostile_messages_are_answered_or_end_the_player_with_a_sentence(trained):
    (trainer, _), player = trained
    chance, sent, ends, sizes = random.Random(17), 0, [], []
    while sent < MESSAGES:
        trainer.script, trainer.heard = conversation(chance), []
        planned = len(trainer.script)
        try:
            player()
        except ArkmlError as error:
            ends.append(str(error))
        sent += planned - len(trainer.script)
        sizes.append(resident())

    assert len(ends) >= MESSAGES // 30
    assert all(0 < len(text) < 1000 and "\x1b" not in text for text in ends)
    assert sizes[-1] - sizes[len(sizes) // 3] < 32 << 20
