"""Random answers to a client of a hive."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from tests.fuzz.mutations import mutated

from arkml.errors import HiveRefused, HiveUnreachable, ProtocolError
from arkml.hive.address import Address
from arkml.hive.protocol.runs import RunList
from arkml.hive.transport import HiveTransport

_MOST = 1 << 16
_BODY = b'{"runs": []}'
_HEADS = [
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 503 Busy\r\n", b"HTTP/1.1 102 Processing\r\n\r\n" * 9,
    b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 99999 ?\r\n", b"HTTP/1.1 304 Same\r\n", b"SSH-2.0\r\n",
]  # fmt: skip
_FIELDS = [
    b"content-type: application/json\r\n", b"content-type: text/plain; charset=punycode\r\n",
    b"content-encoding: gzip\r\n", b"content-encoding: gzip, gzip, br\r\n",
    b"content-length: 12\r\n", b"content-length: 99999999999999999999\r\n",
    b"content-length: -1\r\n", b"transfer-encoding: chunked\r\n", b"x-many: a\r\n" * 9_000,
    b"x-large: " + b"a" * 200_000 + b"\r\n", b"\xff: \0\r\n", b"location: /\r\n",
]  # fmt: skip
_BODIES = [
    _BODY, b"", bytes(2 * _MOST), gzip.compress(bytes(1 << 22)), b"[" * 30_000,
    b"c\r\n" + _BODY + b"\r\n0\r\n\r\n", b"1;" + b"x" * 200_000, b"0\r\n" + b"x: a\r\n" * 30_000,
    b'{"error": "' + b"\xc3\xa9" * 9_000 + b'"}', b'{"runs": [{}]}', b'{"runs": 1e999}',
]  # fmt: skip

CASES: SearchStrategy[bytes] = st.one_of(
    st.builds(
        lambda head, fields, body: head + b"".join(fields) + b"\r\n" + body,
        st.sampled_from(_HEADS),
        st.lists(st.sampled_from(_FIELDS), max_size=4),
        st.sampled_from(_BODIES),
    ),
    mutated([_HEADS[0] + _FIELDS[0] + _FIELDS[4] + b"\r\n" + _BODY]),
)


@contextmanager
def hive_answers() -> Iterator[Callable[[bytes], None]]:
    """Yield the check of one answer: the client takes it, or raises an error of its own."""
    with asyncio.Runner() as runner:
        yield lambda data: runner.run(check(data))


async def check(data: bytes) -> None:
    """Ask a server that answers with some bytes, and closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(data)
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    client = HiveTransport(lambda: Address(host, port), max_answer=_MOST)
    try:
        await client.fetch("POST", "/runs", RunList)
    except (HiveRefused, HiveUnreachable, ProtocolError) as error:
        assert 0 < len(str(error)) < 2_000  # noqa: PT017  any answer that is taken is right, too
    finally:
        await client.close()
        server.close()
        await server.wait_closed()
