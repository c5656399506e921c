"""Notices by webhooks and by a command: tried three times, said once, and never waited for."""

import json
import shlex
import sys
import time

import pytest
from tests.waiting import eventually
from tests.webhook_receiver import WebhookReceiver

from arkml.errors import UsageError
from arkml.hive.notifier import Notifier, NotifyOptions, notice_of

AT = 1_795_876_988_486_000_000
NOTICE = notice_of(
    ("r1", "walker\x1b[2J", "game"), "stuck", "the run is stuck", AT, "https://hive.example/h/"
)
QUICK = {"timeout": 0.3, "pauses": (0.0, 0.0)}


def told(*urls, count=1, **options):
    """The sentences of a notifier that was told `count` notices, until it has ended."""
    said = []
    notifier = Notifier(NotifyOptions(urls, **{**QUICK, **options}), said.append)
    for _ in range(count):
        notifier.tell(NOTICE)
    notifier.close(60)
    return said


def test_a_webhook_gets_the_notice_as_json():
    with WebhookReceiver() as receiver:
        said = told(receiver.url)

    assert said == []
    assert receiver.posts == [
        (
            "/secret?key=1",
            "application/json",
            {
                "run": "r1",
                "name": "walker\\x1b[2J",
                "game": "game",
                "kind": "stuck",
                "text": "the run is stuck",
                "at": "2026-11-28T14:43:08.486Z",
                "link": "https://hive.example/h/#runs=r1",
            },
        )
    ]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (500, "it answered with status 500"),
        (None, "it has not answered within 0.3 s"),
        (302, "it answered with status 302"),
    ],
)
def test_a_webhook_that_fails_is_tried_three_times_and_said_once_without_its_secret(answer, reason):
    with WebhookReceiver(answer) as receiver:
        [sentence] = told(receiver.url, count=2)

    assert len(receiver.posts) == 6
    assert {path for path, _, _ in receiver.posts} == {"/secret?key=1"}  # no redirect is followed
    assert reason in sentence
    assert receiver.url.partition("/secret")[0] in sentence
    assert "secret" not in sentence


def test_a_webhook_that_fails_twice_has_the_notice_and_nothing_is_said():
    with WebhookReceiver(500, 503, 204) as receiver:
        said = told(receiver.url)

    assert said == []
    assert len(receiver.posts) == 3


def test_a_webhook_that_has_worked_again_is_said_again():
    with WebhookReceiver(500, 500, 500, 200, 500) as receiver:
        said = told(receiver.url, count=3)

    assert len(said) == 2


def test_nobody_waits_for_a_webhook_that_hangs_and_what_is_too_much_is_said_to_be_lost():
    said = []
    with WebhookReceiver(None) as receiver, WebhookReceiver() as other:
        options = NotifyOptions((receiver.url, other.url), timeout=60.0)
        notifier = Notifier(options, said.append)
        began = time.monotonic()
        for _ in range(50):
            notifier.tell(NOTICE)
        eventually(lambda: len(other.posts) == 50)
        for _ in range(50):
            notifier.tell(NOTICE)
        notifier.close()
        took = time.monotonic() - began

    assert took < options.timeout / 2
    assert "64 notices wait for it already" in said[0]


def test_an_address_where_nothing_listens_is_one_sentence():
    with WebhookReceiver() as receiver:
        url = receiver.url
    [sentence] = told(url, count=2)

    assert "ConnectError" in sentence


def test_a_command_gets_the_notice_on_its_standard_input(tmp_path):
    kept = tmp_path / "kept file"
    program = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read())"
    said = told(command=shlex.join([sys.executable, "-c", program, str(kept)]), count=2)

    assert said == []
    assert [json.loads(line)["kind"] for line in kept.read_text().splitlines()] == ["stuck"] * 2


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import sys; sys.exit(3)", "it ended with status 3"),
        ("import time; time.sleep(3600)", "it took over 0.5 s, and was killed"),
    ],
)
def test_a_command_that_fails_or_hangs_is_said_once(program, reason):
    command = shlex.join([sys.executable, "-c", program])
    [sentence] = told(command=command, command_seconds=0.5, count=2)

    assert reason in sentence


def test_a_command_is_no_line_of_a_shell(tmp_path):
    told(command=f"echo $(touch {tmp_path}/made) ; touch {tmp_path}/made")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"urls": ("ftp://hooks.example/",)}, "ftp://hooks.example/"),
        ({"urls": ("hooks.example",)}, "hooks.example"),
        ({"urls": ("http://:80/",)}, "http://:80/"),
        ({"urls": ("http://a:99999/",)}, "99999"),
        ({"urls": ("https://user:pass@hooks.example/",)}, "without a user"),
        ({"urls": ("http://a/",) * 17}, "17 URLs"),
        ({"command": "no-program-of-that-name --now"}, "no-program-of-that-name"),
        ({"command": "echo 'open"}, "No closing quotation"),
        ({"command": "echo \0"}, "a program that there is"),
        ({"command": 5}, "notify_command is 5"),
    ],
)
def test_receivers_that_cannot_be_are_refused(options, word):
    with pytest.raises(UsageError, match=word):
        NotifyOptions(**options)
