"""Clients of a hive that are slow, endless or many: each is refused, and no other one waits."""

import asyncio
import contextlib
import json
import resource
import select
import socket
from http.client import HTTPResponse
from pathlib import Path

import pytest
from tests.integration.hive_service import Service, request, start_hive
from tests.waiting import eventually

from arkml.base.http_server import LimitedServer, listen_at
from arkml.server.connections import HiveConfig
from arkml.server.serve_options import ServeOptions, ServerLimits

LIMITS = {
    "connections": 60,
    "header_seconds": 0.5,
    "header_bytes": 4_096,
    "body_seconds": 0.5,
    "body_rate": 1 << 20,
    "body_bytes": 8 << 20,
}
MIB = 1 << 20


FEW_FILES = 128


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A hive whose process may open few files at first, and more when it asks for them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with start_hive(tmp_path_factory.mktemp("hive") / "data", limits=LIMITS) as hive:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_FILES, hard))
        try:
            hive.locate()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        made = Service(hive)
        yield made
        made.close()


@pytest.fixture
def connect(service):
    """A factory of sockets to the hive that are closed at the end."""
    with contextlib.ExitStack() as opened:

        def make(*sent):
            address = service.hive.locate()
            host, port = address.host, address.port
            made = opened.enter_context(socket.create_connection((host, port), timeout=300))
            for data in sent:
                made.sendall(data)
            return made

        yield make


def header(service, size, path="/runs"):
    """The header of a POST with a body of that size."""
    return (
        f"POST /v1{path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {service.token}\r\n"
        f"content-length: {size}\r\n\r\n"
    ).encode()


def answer(opened):
    """The status and the sentence that a connection ends with, None for no answer."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := opened.recv(1 << 16):
            data += part
    if not data:
        return None
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


def whole_answer(opened):
    """
    The answer of a connection that may stay open, and its body.

    The time-out of the socket is that of the first byte.
    """
    opened.recv(1, socket.MSG_PEEK)
    opened.settimeout(30)
    with HTTPResponse(opened) as response:
        response.begin()
        return response, response.read()


def status_of(opened):
    """The status of an answer whose connection may stay open."""
    return whole_answer(opened)[0].status


def test_headers_that_never_end_are_refused_in_time_and_no_other_client_waits(service, connect):
    slow = [connect(b"GET /v1/health HTTP/1.1\r\nx-slow: ") for _ in range(20)]
    slow += [connect() for _ in range(10)]
    for one in slow[:20]:
        one.sendall(b"a")
    meanwhile = service.get("/health").status_code
    answers = [answer(one) for one in slow]

    assert meanwhile == 200
    assert {status for status, _ in answers} == {408}
    assert answers[0][1] == "the header of a request did not arrive within 0.5 s"


def test_empty_lines_do_not_keep_a_connection_that_sends_no_request(connect):
    opened = connect(b"\r\n")
    opened.settimeout(0.1)
    ended = None
    while ended is None:
        with contextlib.suppress(TimeoutError):
            ended = status_of(opened)
            break
        opened.sendall(b"\r\n")

    assert ended == 408


def test_a_header_that_is_too_large_is_refused(connect):
    head = b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\n"
    opened = connect(head, *[b"x-%d: %s\r\n" % (i, b"a" * 1_000) for i in range(5)])

    assert answer(opened) == (431, "the header of a request takes 4096 bytes at most")


def test_a_body_that_pauses_is_refused_with_a_sentence(service, connect):
    status, error = answer(connect(header(service, 1_000), b"{"))

    assert status == 408
    assert error.startswith("1 bytes of the body arrived within ")


def test_a_body_that_drips_is_refused_though_it_never_pauses(service, connect):
    opened = connect(header(service, 1_000_000))
    opened.settimeout(0.05)
    status = None
    while status is None:
        opened.sendall(b" ")
        with contextlib.suppress(TimeoutError):
            status = status_of(opened)

    assert status == 408


def test_bodies_beyond_what_the_hive_holds_are_refused_until_others_have_ended(service, connect):
    held = [connect(header(service, 8 * MIB), b" " * (3 * MIB)) for _ in range(4)]
    answers = [whole_answer(one) for one in held]
    statuses = sorted(one.status for one, _ in answers)
    others = service.get("/runs").status_code, service.post("/runs/x/stop").status_code
    for one in held:
        one.close()
    again = eventually(lambda: service.create("after"))

    assert statuses[-1] == 503
    assert statuses[0] == 408
    refused, body = next(one for one in answers if one[0].status == 503)
    assert refused.headers["retry-after"] == "2"
    assert b"holds 8388608 at most" in body
    assert others == (200, 404)
    assert again


def test_a_body_that_was_answered_early_cannot_keep_its_connection(service, connect):
    head = header(service, 10 * MIB).replace(service.token.encode(), b"wrong")
    opened = connect(head)
    refused = status_of(opened)

    assert refused == 401
    assert answer(opened) is None


def is_open(opened):
    """Whether the hive has its end of a connection open."""
    port = f":{opened.getsockname()[1]:04X}"
    lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines())
    return any(words[2].endswith(port) and words[3] == "01" for words in lines)


def test_an_answer_that_is_not_taken_is_cut(service, connect):
    run = request("large") | {"configuration": "x" * MIB}
    path = f"/v1/runs/{service.post('/runs', run).json()['run']['id']}/config"
    ask = f"GET {path} HTTP/1.1\r\nhost: localhost\r\n"
    ask += f"authorization: Bearer {service.token}\r\n\r\n"
    opened = connect(8 * ask.encode())  # more than the system holds for a connection
    opened.recv(1)

    assert is_open(opened)
    assert eventually(lambda: not is_open(opened))


def test_connections_beyond_the_limit_are_refused_and_others_are_served(connect):
    ask = b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    kept = [connect(ask) for _ in range(LIMITS["connections"] - 5)]
    assert {status_of(one) for one in kept} == {200}  # each may be silent for a while now
    last = [connect() for _ in range(6)][-1]
    refused = answer(last)
    kept[0].sendall(ask)

    assert refused == (503, "this hive has 60 connections already")
    assert status_of(kept[0]) == 200


def test_the_limit_of_open_files_is_raised_for_the_connections(service):
    lines = Path(f"/proc/{service.hive.pid}/limits").read_text().splitlines()
    soft = next(line.split()[3] for line in lines if line.startswith("Max open files"))

    assert int(soft) >= LIMITS["connections"] + 256 > FEW_FILES


CHUNKED = (
    b"POST /login HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n"
    b"content-type: application/x-www-form-urlencoded\r\n\r\n"
)


def sent_until_cut(opened, data, most=64 * MIB):
    """The bytes that a hive lets a client send of endless data, and the answer it ends with."""
    sent = 0
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while sent < most:
            sent += opened.send(data)
    with contextlib.suppress(ConnectionResetError):
        return sent, answer(opened)
    return sent, None


@pytest.mark.parametrize(
    ("begin", "endless"),
    [
        (b"5\r\ntoken\r\n0\r\n", b"x-trailer: aaaaaaaaaaaaaaaa\r\n" * 1_000),
        (b"5\r\ntoken\r\n0\r\nx-trailer: ", b"a" * 30_000),
        (b"5;extension=", b"a" * 30_000),
        (b"", b"1;" + b"a" * 2_000 + b"\r\nx\r\n"),
    ],
    ids=["trailers", "one trailer", "one extension", "extensions"],
)
def test_what_is_outside_of_a_chunked_body_takes_no_more_than_a_header(connect, begin, endless):
    sent, ended = sent_until_cut(connect(CHUNKED, begin), endless)

    assert sent < 64 * MIB
    assert ended is None or ended in (
        (431, "the chunk sizes and trailers of a body take 4096 bytes at most"),
        (431, "a request has 128 fields in its header at most"),
    )


def test_chunks_of_a_byte_each_are_a_body(service, connect):
    body = json.dumps(request("by bytes")).encode()
    head = header(service, 0).replace(b"content-length: 0", b"transfer-encoding: chunked")
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in b" " * 5_000 + body)
    opened = connect(head, chunks + b"0\r\nx-trailer: of a client\r\n\r\n")

    assert status_of(opened) == 201


def test_a_trailer_is_not_a_header(service, connect):
    trailer = f"authorization: Bearer {service.token}\r\n".encode()
    head = b"POST /v1/runs/x/stop HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    opened = connect(head + b"2\r\n{}\r\n0\r\n" + trailer + b"\r\n")

    assert status_of(opened) == 401


def test_a_header_that_arrives_at_once_has_the_same_limit(connect):
    head = b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\nx-large: "
    fill = b"a" * (LIMITS["header_bytes"] - len(head) - 4)

    assert status_of(connect(head + fill + b"\r\n\r\n")) == 200
    assert answer(connect(head + fill + b"a\r\n\r\n")) == (
        431,
        "the header of a request takes 4096 bytes at most",
    )


def test_requests_behind_one_that_runs_wait_unparsed_and_are_answered_in_order(connect):
    ask = b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    opened = connect(
        ask * 2_000 + ask.replace(b"localhost\r\n", b"localhost\r\nconnection: close\r\n")
    )
    data = b""
    while part := opened.recv(1 << 16):
        data += part

    assert data.count(b"HTTP/1.1 200 OK") == 2_001


def test_a_stream_of_events_takes_no_pipelined_bytes(service, connect):
    head = f"GET /v1/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {service.token}"
    opened = connect(head.encode() + b"\r\n\r\n")
    opened.recv(1)
    opened.setblocking(False)
    sent = 0
    ask_more = b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\n\r\n" * 1_000
    while sent < 256 * MIB:
        _, writable, _ = select.select([], [opened], [], 0.5)
        if not writable:
            break
        with contextlib.suppress(BlockingIOError):
            sent += opened.send(ask_more)

    assert sent < 64 * MIB  # what the system holds for a connection


class Told:
    """An application that answers without end, and notes when it is told that its client left."""

    def __init__(self):
        self.begun, self.left = asyncio.Event(), asyncio.Event()

    async def __call__(self, _, receive, send):
        self.begun.set()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            pass
        await send({"type": "http.response.body", "body": b"late"})
        self.left.set()


@contextlib.asynccontextmanager
async def connected(app, options):
    """A connection to a server of an application."""
    listening, config = listen_at("127.0.0.1", 0), HiveConfig(app, options, 0)
    config.load()
    server = LimitedServer(config)
    serving = await server.begin(listening)
    yield await asyncio.open_connection(*listening.getsockname())
    server.should_exit = True
    await serving


async def test_a_small_part_of_an_answer_does_not_wait_for_the_one_before():
    loop = asyncio.get_running_loop()
    listening, accepted = listen_at("127.0.0.1", 0), loop.create_future()

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport):
            accepted.set_result(transport)

    async with await loop.create_server(Accepting, sock=listening):
        _, writer = await asyncio.open_connection(*listening.getsockname())
        connection = (await accepted).get_extra_info("socket")
        is_sent_at_once = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        (await accepted).abort()
        writer.close()

    assert is_sent_at_once


@pytest.mark.parametrize("more", [0, 1, 5])
async def test_a_stream_ends_with_its_connection_whatever_waits_behind_it(tmp_path, caplog, more):
    told = Told()
    async with connected(told, ServeOptions(tmp_path)) as (_, writer):
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n" * (1 + more))
        await told.begun.wait()
        writer.transport.abort()
        await told.left.wait()

    assert caplog.records == []


async def test_requests_that_wait_for_a_slow_server_are_not_late(tmp_path):
    """Each piece that is parsed ends in the middle of a header."""

    async def answer_slowly(_, __, send):
        await asyncio.sleep(0.2)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"."})

    options = ServeOptions(tmp_path, limits=ServerLimits(header_seconds=1.0))
    ask = b"GET / HTTP/1.1\r\nhost: localhost\r\nx-fill: %s\r\n%s\r\n"
    async with connected(answer_slowly, options) as (reader, writer):
        writer.write(ask % (b"a" * 900, b"") * 11 + ask % (b"a", b"connection: close\r\n"))
        answers = await reader.read()
        writer.close()

    assert answers.count(b"HTTP/1.1 200 OK") == 12


def test_a_body_that_breaks_off_is_not_an_error_of_the_hive(service, connect):
    log = service.hive.data / "hive.log"
    before = log.stat().st_size if log.exists() else 0
    for head in (header(service, 100), header(service, 100, "/login")):
        connect(head, b"{").close()
    service.get("/health")

    assert "ERROR" not in log.read_text()[before:]


def test_a_login_with_more_fields_than_it_has_is_refused(service):
    url = service.base.replace("/v1", "/login")
    refused = service.http.post(url, data={f"field{i}": "x" for i in range(17)})

    assert refused.status_code == 422
    assert refused.json()["error"].startswith("a login has 16 fields at most")
