"""The port for Prometheus of a server of trials."""

import asyncio

import pytest

from arkml.trials.server.durations import MOST_CONNECTIONS, MeasuredLog, serve_metrics

QUESTION = b"GET /metrics HTTP/1.1\r\n\r\n"


class NoLog:
    failure = ""


@pytest.fixture
async def port():
    async with await serve_metrics(MeasuredLog(NoLog()), "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def answer(port):
    """The answer to a question on a connection of its own, empty if it is closed at once."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(QUESTION)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_idle_connections_beyond_a_number_are_closed(port):
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MOST_CONNECTIONS)]
    refused = await answer(port)
    reader, writer = idle[0]
    writer.write(QUESTION)
    first = await reader.read()
    after = await answer(port)
    for _, writer in idle:
        writer.close()

    assert refused == b""
    assert first.startswith(b"HTTP/1.1 200 OK")
    assert after.startswith(b"HTTP/1.1 200 OK")
