"""What connections to the ports of gRPC may do: be silent for a while, and make so many calls."""

import asyncio
import socket
import struct

import pytest
from tests.trials_sdk_parts import SETTINGS

from arkml.base import grpc_ports
from arkml.envs.llapi.rpc_communicator import RpcCommunicator
from arkml.trials import Context, Server


@pytest.fixture(autouse=True)
def short_handshake(monkeypatch):
    monkeypatch.setattr(grpc_ports, "HANDSHAKE_MS", 200)


async def end_of_silence(port):
    """Connect without sending anything, and wait until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await reader.read()
    writer.close()


async def test_a_silent_connection_to_a_server_of_trials_is_closed():
    async with Server() as server:
        await end_of_silence((await server.listen("127.0.0.1", 0))[0])


async def test_a_connection_to_a_server_of_trials_may_make_so_many_calls_at_once():
    async with Server() as server:
        port, *_ = await server.listen("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5))
        head = await reader.readexactly(9)
        settings = await reader.readexactly(int.from_bytes(head[:3]))
        writer.close()

    assert dict(struct.iter_unpack(">HI", settings))[3] == 10_000  # SETTINGS_MAX_CONCURRENT_STREAMS


async def test_a_silent_connection_to_a_context_is_closed():
    async with Context("me", SETTINGS) as context:
        context.register_actor(lambda _: None, "any", ["player"])
        serving = asyncio.create_task(context.serve_all_registered())
        await asyncio.sleep(0)
        await end_of_silence(context.served_port)
    await serving


def test_a_silent_connection_to_an_environment_of_mlagents_is_closed():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    line = RpcCommunicator(0, port, 5)
    asyncio.run(end_of_silence(port))
    line.close()
