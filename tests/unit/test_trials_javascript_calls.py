"""Calls of the JavaScript SDK, whose server may be hostile."""

from pathlib import Path

import pytest
from tests.node import run_module

import arkml.trials

SDK = Path(arkml.trials.__file__).parent / "js"
PROGRAM = Path(__file__).parent / "grpc_web.mjs"
MIB = 1 << 20
TOO_MUCH = "TrialError: more than 100000 messages or 268435456 bytes were received and not taken"


def asked(name, **given):
    return run_module(PROGRAM, {"sdk": f"{SDK.as_uri()}/", "question": [name, given]})


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_any_parts_of_a_stream_have_the_same_messages(size):
    contents = [[1, 2, 3], [], [4] * 100, [5], []]

    assert asked("parts", contents=contents, size=size) == contents


def test_a_message_in_many_parts_is_copied_a_few_times():
    found = asked("copied")

    assert found["content"] == 4 * MIB
    assert found["copied"] < 20 * MIB


@pytest.mark.parametrize(
    ("flag", "length", "failure"),
    [
        (0, 64 * MIB, None),
        (0, 64 * MIB + 1, "TrialError: the server sent a frame of 67108865 bytes"),
        (0x80, 65_536, None),
        (0x80, 65_537, "TrialError: the server sent a frame of 65537 bytes"),
        (1, 0, "TrialError: the server sent a frame of kind 1"),
    ],
)
def test_a_frame_is_refused_by_its_beginning(flag, length, failure):
    assert asked("beginning", flag=flag, length=length) == failure


@pytest.mark.parametrize(("size", "kept"), [(0, 100_000), (32 * MIB, 8)])
def test_messages_that_nothing_takes_fail_the_call(size, kept):
    assert asked("unread", size=size) == {
        "isClosed": True,
        "count": kept + 1,
        "taken": kept,
        "failure": TOO_MUCH,
    }


def test_events_that_nothing_takes_fail_the_session():
    found = asked("events", size=1)

    assert found == {"received": 100_001, "events": 100_000, "failure": TOO_MUCH}


def test_an_endless_page_of_an_error_is_read_at_its_beginning():
    assert asked("page") == f"TrialError: {'x' * 500}"


@pytest.mark.parametrize(
    ("text", "message"), [("no such\n", "no such"), ("", "answered with HTTP status 500")]
)
def test_a_page_of_an_error_is_the_message(text, message):
    assert message in asked("short", text=text)
