"""Hives that answer with more than a client can take: each request ends with a sentence."""

import asyncio
import contextlib
import gzip
import itertools

import httpx
import pytest

from arkml.errors import HiveUnreachable, ProtocolError
from arkml.hive import transport
from arkml.hive.address import Address
from arkml.hive.protocol.runs import HealthReply, RunList
from arkml.hive.transport import HiveTransport, read, reason

MIB = 1 << 20
MOST = 4 * MIB
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


@contextlib.asynccontextmanager
async def answering(parts, pause=0.0):
    """A client of a hive that answers with `parts`, and a list with the bytes that it has sent."""
    sent, serving = [0], set()

    async def serve(reader, writer):
        serving.add(asyncio.current_task())
        try:
            await reader.readuntil(b"\r\n\r\n")
            for part in parts:
                writer.write(part)
                await writer.drain()
                sent[0] += len(part)
                await asyncio.sleep(pause)
            writer.close()
            await writer.wait_closed()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    client = HiveTransport(lambda: Address(host, port), max_answer=MOST)
    try:
        yield client, sent
    finally:
        await client.close()
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


BOMB = gzip.compress(bytes(16 * MIB))
PACKED = {
    "gzip": BOMB,
    "gzip, gzip": gzip.compress(BOMB),
    "br": b"?",
    "identity, gzip": BOMB,
    "gzip" + ", gzip" * 1_000: BOMB,
}


@pytest.mark.parametrize("encoding", PACKED, ids=lambda name: name[:20])
async def test_packed_answers_were_not_asked_for_and_are_not_unpacked(encoding):
    body = PACKED[encoding]
    head = b"content-encoding: %s\r\ncontent-length: %d\r\n\r\n" % (encoding.encode(), len(body))
    async with answering([OK + head, body]) as (client, _):
        with pytest.raises(ProtocolError, match="answered in the encoding") as told:
            await client.send("GET", "/runs")

    assert len(str(told.value)) < 1_000


ENDLESS = {
    "one field": (OK + b"x-large: ", b"a" * 65_536, HiveUnreachable),
    "fields": (OK, b"x-many: a\r\n" * 6_000, HiveUnreachable),
    "trailers": (OK + b"transfer-encoding: chunked\r\n\r\n0\r\n", b"x-many: a\r\n" * 6_000,
                 HiveUnreachable),
    "a chunk's extension": (OK + b"transfer-encoding: chunked\r\n\r\n5;x=", b"a" * 65_536,
                            HiveUnreachable),
    "a body": (OK + b"\r\n", bytes(65_536), ProtocolError),
    "chunks": (OK + b"transfer-encoding: chunked\r\n\r\n", b"10000\r\n" + bytes(65_536) + b"\r\n",
               ProtocolError),
}  # fmt: skip


@pytest.mark.parametrize("what", ENDLESS)
async def test_an_answer_without_end_is_cut_by_its_size(what):
    first, endless, error = ENDLESS[what]
    async with answering(itertools.chain([first], itertools.repeat(endless))) as (client, sent):
        with pytest.raises(error):
            await client.send("GET", "/runs")

    assert sent[0] < MOST + 32 * MIB  # with what the system holds for a connection


async def test_an_answer_in_the_smallest_parts_is_cut_by_their_number():
    head = OK + b"transfer-encoding: chunked\r\n\r\n"
    parts = itertools.chain([head], itertools.repeat(b"1\r\n \r\n" * 1_000))
    async with answering(parts) as (client, _):
        with pytest.raises(ProtocolError, match="more than 16384 parts"):
            await client.send("GET", "/runs", is_file=True)


async def test_json_is_read_up_to_the_size_of_an_object_and_files_further(monkeypatch):
    monkeypatch.setattr(transport, "MAX_OBJECT", MIB)
    refused = b"HTTP/1.1 503 Busy\r\n"
    body = [b"content-length: %d\r\n\r\n" % (2 * MIB), bytes(2 * MIB)]

    for head, is_file in [(OK, False), (refused, False), (refused, True)]:
        async with answering([head, *body]) as (client, _):
            with pytest.raises(ProtocolError, match="more than 1048576 bytes"):
                await client.send("GET", "/runs", is_file=is_file)
    async with answering([OK, *body]) as (client, _):
        answer = await client.send("GET", "/runs", is_file=True)
        assert len(answer.content) == 2 * MIB


async def test_a_server_that_answers_everything_alike_is_no_hive():
    """`arkml run` at a server that answers {} ended with 0."""
    async with answering([OK + b"content-length: 2\r\n\r\n{}"]) as (client, _):
        with pytest.raises(ProtocolError, match="service is missing"):
            await client.fetch("GET", "/health", HealthReply)


async def test_a_body_that_is_announced_too_large_is_not_read():
    async with answering([OK + b"content-length: 99999999999\r\n\r\n"]) as (client, _):
        with pytest.raises(ProtocolError, match="more than 4194304 bytes"):
            await client.send("GET", "/runs")


SLOW = {
    "informational answers": (b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
    "a body": (OK + b"\r\n", b" "),
}


def dripping(first, endless):
    return itertools.chain([first], itertools.repeat(endless))


@pytest.mark.parametrize("what", SLOW)
async def test_an_answer_that_drips_ends_though_it_never_pauses(monkeypatch, what):
    monkeypatch.setattr(transport, "_TIMEOUT_OF_PARTS", 0.1)
    monkeypatch.setattr(transport, "_RATE", 1 << 40)

    async with answering(dripping(*SLOW[what]), pause=0.005) as (client, _):
        with pytest.raises(HiveUnreachable, match="did not arrive in time"):
            await client.send("GET", "/runs", timeout=0.5)


@pytest.mark.parametrize("what", [*SLOW, "nothing"])
async def test_a_first_answer_that_does_not_come_soon_is_not_waited_for(monkeypatch, what):
    """A server that is no hive held `arkml hive list` and the start of a run for 70 seconds."""
    monkeypatch.setattr(transport, "_FIRST", 0.05)
    monkeypatch.setattr(transport, "_RATE", 1 << 40)

    async with answering(dripping(*SLOW.get(what, (b"", b""))), pause=0.005) as (client, _):
        with pytest.raises(HiveUnreachable, match="did not arrive in time"):
            await client.ask("GET", "/runs")

    assert not client.has_answered


FIRST = {
    "an object": (OK, True),
    "a refusal": (OK.replace(b"200 OK", b"503 Busy"), True),
    "a page": (b"HTTP/1.1 404 Not Found\r\ncontent-type: text/html\r\n", False),
    "a proxy's answer": (OK.replace(b"200 OK", b"502 Bad Gateway"), False),
}


@pytest.mark.parametrize("what", FIRST)
async def test_a_hive_has_answered_after_the_first_answer_that_may_be_a_hives(what):
    head, is_hive = FIRST[what]
    async with answering([head + b"content-length: 2\r\n\r\n{}"]) as (client, _):
        await client.send("GET", "/runs")

    assert client.has_answered is is_hive


@pytest.mark.parametrize("what", [*SLOW, "nothing"])
@pytest.mark.parametrize(("method", "key"), [("GET", ""), ("POST", "k")])
async def test_a_request_whose_time_is_over_is_not_repeated(monkeypatch, what, method, key):
    """`arkml hive list` was held for as long again, and the start of a run eight times as long."""
    monkeypatch.setattr(transport, "_TIMEOUT_OF_PARTS", 0.1)
    monkeypatch.setattr(transport, "_TIMEOUT", httpx.Timeout(0.1))
    monkeypatch.setattr(transport, "_RATE", 1 << 40)
    parts, requests = SLOW.get(what, (b"", b"")), []

    async with answering(dripping(*parts), pause=0.005) as (client, _):
        client.on_request = lambda: requests.append(method)
        with pytest.raises(HiveUnreachable, match="no hive answers"):
            await client.ask(method, "/runs", key=key)

    assert requests == [method]


def test_an_object_is_parsed_up_to_a_size_alone():
    with pytest.raises(ProtocolError, match="16777216 at most"):
        read(httpx.Response(200, content=b'{"runs": []' + b" " * (17 * MIB) + b"}"), RunList)


@pytest.mark.parametrize("depth", [100, 100_000])
def test_an_object_that_is_nested_deep_is_a_sentence(depth):
    deep = b'{"runs": ' + b"[" * depth + b"]" * depth + b"}"

    with pytest.raises(ProtocolError, match="answered what cannot be used"):
        read(httpx.Response(200, content=deep), RunList)


@pytest.mark.parametrize("charset", ["punycode", "utf-7", "idna", "unicode_escape", "zlib"])
def test_a_refusal_is_not_read_by_a_decoder_that_the_answer_names(charset):
    headers = {"content-type": f"text/plain; charset={charset}"}
    text = reason(httpx.Response(503, headers=headers, content=b"caf\xc3\xa9-" * 300_000))

    assert text.startswith("the hive answered 503: café-café-")
    assert len(text) < 400


async def test_a_hive_elsewhere_that_is_not_reached_says_that_no_proxy_is_asked(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    told = {}
    for host in ("127.0.0.1", "hive.invalid"):
        client = HiveTransport(lambda host=host: Address(host, 9))
        with pytest.raises(HiveUnreachable) as error:
            await client.send("GET", "/runs")
        told[host] = str(error.value)
        await client.close()

    assert "proxy" not in told["127.0.0.1"]
    assert told["hive.invalid"].endswith(
        "; hives are asked directly, not by the proxy of HTTP_PROXY"
    )
