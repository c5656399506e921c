"""Answers of proxies and portals, which a client tells from those of a hive."""

import asyncio

import httpx
import pytest

from arkml.errors import HiveRefused, ProtocolError
from arkml.hive.address import Address
from arkml.hive.client import HiveClient
from arkml.hive.protocol.runs import RunList
from arkml.hive.transport import RETRIED, HiveTransport

PAGE = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
HTML = {"content-type": "text/html; charset=utf-8"}
PLACE = "hive.example:12356 answered"
ADVICE = "that is not a hive; is a proxy in between, or another server at that address?"


def asked(status, headers, content=PAGE):
    """The error of a request that is answered so."""
    answer = httpx.Response(status, headers=headers, content=content)
    transport = httpx.MockTransport(lambda _: answer)
    with HiveClient(lambda: Address("hive.example"), transport=transport) as client:
        return client.runs().exception(60)


@pytest.mark.parametrize(
    ("status", "headers", "sentence", "kind"),
    [
        (502, HTML, "502 with text/html", HiveRefused),
        (503, HTML, "503 with text/html", HiveRefused),
        (404, HTML, "404 with text/html", HiveRefused),
        (504, {}, "504", HiveRefused),
        (502, {"content-type": "application/json"}, "502 with application/json", HiveRefused),
        (200, HTML, "200 with text/html", ProtocolError),
        (200, {"content-type": "TEXT/HTML"}, "200 with text/html", ProtocolError),
        (302, {"location": "http://login.example/"}, "302", ProtocolError),
        (302, HTML, "302 with text/html", ProtocolError),
    ],
)
def test_an_answer_of_a_proxy_is_told_from_that_of_a_hive(status, headers, sentence, kind):
    error = asked(status, headers)

    assert type(error) is kind
    assert str(error) == f"{PLACE} {sentence}: {ADVICE}"


def test_a_hive_that_refuses_is_quoted_and_one_that_fails_is_no_proxy():
    refused = asked(503, {"content-type": "application/json"}, b'{"error": "the hive is ending"}')
    failed = asked(500, {"content-type": "text/plain"}, b"Internal Server Error")

    assert str(refused) == "the hive is ending"
    assert str(failed) == "the hive answered 500: Internal Server Error"


def test_a_hostile_content_type_is_shown_short_and_harmless():
    error = asked(502, [(b"content-type", b"\x1b[2J" + b"x\x9b" * 500)])

    assert len(str(error)) < 250
    assert str(error).isprintable()


def test_a_proxy_that_reaches_no_hive_is_a_refusal_that_passes():
    """So that sessions go on to send their rows until the proxy has its hive again."""
    answers = [
        httpx.Response(502, headers=HTML, content=PAGE),
        httpx.Response(200, json={"runs": []}),
    ]
    transport = HiveTransport(
        lambda: Address("hive.example"), transport=httpx.MockTransport(lambda _: answers.pop(0))
    )

    async def ask():
        first = await transport.send("GET", "/runs")
        return first.status_code, await transport.fetch("GET", "/runs", RunList)

    assert asyncio.run(ask()) == (502, RunList([]))
    assert 502 in RETRIED
