"""Random bytes of HTTP to a hive: chunks, extensions, trailers, requests behind others."""

from __future__ import annotations

import contextlib
import re
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from tests.fuzz.mutations import mutated
from tests.integration.hive_service import Service, start_hive

_LIMITS = {"header_bytes": 4_096}
_HEAD = b"POST /v1/runs/x/stop HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
_PIECES = [
    b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"POST /login HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}",
    _HEAD,
    b"5\r\ntoken\r\n",
    b"1;" + b"extension=" * 20 + b"\r\nx\r\n",
    b"1;" + b"e" * 9_000 + b"\r\nx\r\n",
    b"1\r\nx\r\n" * 300,
    b"0\r\n\r\n",
    b"0\r\nauthorization: Bearer x\r\nx-forwarded-for: 192.0.2.1\r\n\r\n",
    b"0\r\n" + b"x-trailer: a\r\n" * 600,
    b"content-length: 18446744073709551616\r\n",
    b"\r\n",
    b"connection: upgrade\r\nupgrade: h2c\r\n",
]
_ANSWER = re.compile(rb"^HTTP/1\.1 (\d{3}) ", re.MULTILINE)

CASES: SearchStrategy[bytes] = st.one_of(
    st.lists(st.sampled_from(_PIECES), min_size=1, max_size=12).map(b"".join),
    mutated([_HEAD + b"".join(_PIECES[3:5]) + _PIECES[8], b"".join(_PIECES[:2]) * 3]),
)


@contextmanager
def hive_connections() -> Iterator[Callable[[bytes], None]]:
    """Yield the check of the bytes of one connection, after which the hive answers others."""
    with tempfile.TemporaryDirectory() as folder:
        hive = start_hive(Path(folder) / "data", limits=_LIMITS)
        service = Service(hive)
        try:
            yield lambda data: check(service, data)
        finally:
            service.close()
            hive.close()


def check(service: Service, data: bytes) -> None:
    """Send bytes and their end, and read all answers, none of which says a bug of the hive."""
    address = service.hive.locate()
    answers = b""
    with (
        socket.create_connection((address.host, address.port), timeout=120) as opened,
        contextlib.suppress(BrokenPipeError, ConnectionResetError),
    ):
        opened.sendall(data)
        opened.shutdown(socket.SHUT_WR)
        while part := opened.recv(1 << 16):
            answers += part
    statuses = {int(one) for one in _ANSWER.findall(answers)}
    assert statuses <= {200, 303, 400, 401, 403, 404, 405, 413, 415, 422, 429, 431}, statuses
    assert service.get("/health").status_code == 200
