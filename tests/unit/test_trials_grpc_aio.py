"""Threads of gRPC end with the process, no finalizer waits for them, and failures say what came."""

import asyncio
import contextlib
import os
import socket

import grpc
import pytest
from tests import prefork

from arkml.base import grpc_ports
from arkml.trials.grpc_aio import new_server
from arkml.trials.grpc_streams import failure

DROPPED = """
import asyncio, gc, threading
from arkml.trials.grpc_aio import insecure_channel, new_server

async def use():
    return insecure_channel("127.0.0.1:1", []), new_server([])

used = asyncio.run(use())
threads = set(threading.enumerate())
del used
gc.collect()
print(len(threads), threads == set(threading.enumerate()))
"""


def test_a_channel_and_a_server_that_are_dropped_end_no_thread():
    done = prefork.run("-c", DROPPED, env=dict(os.environ))

    assert (done.returncode, done.stdout) == (0, "2 True\n"), done.stderr


@pytest.mark.parametrize(
    ("code", "details", "said"),
    [
        ("UNAVAILABLE", "no route", "failed: UNAVAILABLE: no route"),
        (
            "INTERNAL",
            "Internal error from Core",
            "ended its stream while more was being sent to it",
        ),
    ],
)
def test_a_failure_says_what_the_other_end_did(code, details, said):
    none = grpc.aio.Metadata()

    assert failure(grpc.aio.AioRpcError(grpc.StatusCode[code], none, none, details)) == said


async def test_idle_connections_leave_descriptors_to_the_rest_of_a_server(monkeypatch):
    monkeypatch.setattr(grpc_ports, "share_for_connections", lambda: 3)
    server = new_server([])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    with contextlib.ExitStack() as stack:
        opened = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(12)
        ]
        first = [await asyncio.to_thread(one.recv, 1) for one in opened]

    await server.stop(None)
    assert [len(one) for one in first].count(1) == 3, "the others are closed without a word"
