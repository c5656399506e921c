"""Refusals that make a hive count as gone: those that come again and again, and lately."""

import asyncio

import pytest
from tests.integration.scripted_hive import ScriptedHive, status

from arkml.hive.transport import HiveTransport


@pytest.fixture
def hive():
    made = ScriptedHive()
    made.scripts = {route: [status(503)] for route in ("rows", "evaluations")}
    yield made
    made.close()


def refusal_after(hive, *paths, **options):
    """Post to these paths, and return what counts as a refusal then."""

    async def ask():
        transport = HiveTransport(hive.locate, **options)
        for path in paths:
            await transport.send("POST", path)
        found = transport.refusal(0)
        await transport.close()
        return found

    return asyncio.run(ask())


def test_rows_that_are_refused_again_and_again_are_a_refusal(hive):
    assert refusal_after(hive, "/sessions/s1/rows", "/sessions/s1/rows") == "scripted"


def test_what_was_refused_once_or_is_no_part_of_a_session_is_none(hive):
    assert refusal_after(hive, "/sessions/s1/rows") == ""
    assert refusal_after(hive, *["/runs/run/evaluations"] * 2) == ""


def test_a_refusal_that_was_long_ago_counts_no_more(hive):
    assert refusal_after(hive, "/sessions/s1/rows", "/sessions/s1/rows", fresh=0.0) == ""
