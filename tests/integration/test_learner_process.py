"""The socket of a learner: nothing is lost that it sent, however it ends."""

import asyncio
import os

import pytest
import uvloop

from arkml.server.learner_process import LearnerProcess

LAST_WORDS = """
import socket
from arkml.hive.protocol.wire import pack
link = socket.socket(fileno=3)
link.recv(1)  # and leaves the rest unread
link.sendall(pack("hello", pid=1) + pack("fatal", error="these are my last words"))
"""
MUCH = """
import socket
from arkml.hive.protocol.wire import pack
link = socket.socket(fileno=3)
for number in range(2_000):
    link.sendall(pack("metrics", points=[["x" * 2_000, number, 1.0]]))
link.recv(1)
"""


async def started(tmp_path, program):
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    try:
        return await LearnerProcess.start(["-c", program], tmp_path / "log", lock)
    finally:
        os.close(lock)


async def received(learner):
    found = []
    while (messages := await learner.receive()) is not None:
        found += messages
    return found


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request):
    def run(main):
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(main)

    return run


def test_the_last_words_of_a_learner_survive_a_message_that_cannot_be_sent(run, tmp_path):
    async def main():
        learner = await started(tmp_path, LAST_WORDS)
        learner.send("names", names=["speed"])
        assert await learner.wait(300)
        for _ in range(3):  # the first one that fails ends the connection
            learner.send("names", names=["x" * 100_000])
        found = await received(learner)
        return found, learner.send("names", names=[]), await learner.end()

    found, is_sent, status = run(main())
    assert [one["kind"] for one in found] == ["hello", "fatal"]
    assert found[1]["error"] == "these are my last words"
    assert not is_sent
    assert status == 0


def test_messages_that_nothing_reads_wait_in_the_learner(run, tmp_path):
    async def main():
        learner = await started(tmp_path, MUCH)
        assert not await learner.wait(0.5)
        numbers = []
        while len(numbers) < 2_000:
            numbers += [one["points"][0][1] for one in await learner.receive()]
        learner.send("stop")
        assert await learner.wait(300)
        return numbers, await received(learner), await learner.end()

    numbers, rest, status = run(main())
    assert numbers == list(range(2_000))
    assert (rest, status) == ([], 0)
