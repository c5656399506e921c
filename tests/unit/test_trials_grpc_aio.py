"""Threads of gRPC end with the process, and no finalizer waits for them."""

import os

from tests import prefork

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
