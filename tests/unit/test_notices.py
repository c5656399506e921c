"""A notice comes once a process, however many objects have a reason for it."""

import logging
from pathlib import Path

from arkml import GuestEnv, Host
from arkml.base import loggers

GUESTS = Path(__file__).parents[2] / "fixtures" / "guests"
logger = logging.getLogger("arkml.test")


def test_a_text_is_logged_once_and_another_one_too(caplog):
    for text in ("one", "two", "one", "two"):
        loggers.notice(logger, logging.WARNING, text)

    assert caplog.messages == ["one", "two"]


def test_a_notice_below_the_level_is_not_used_up(caplog):
    with caplog.at_level(logging.ERROR, "arkml.test"):
        loggers.notice(logger, logging.WARNING, "later")
    with caplog.at_level(logging.WARNING, "arkml.test"):
        loggers.notice(logger, logging.WARNING, "later")

    assert caplog.messages == ["later"]


def test_what_is_remembered_of_notices_is_bounded():
    for number in range(3_000):
        loggers.notice(logger, logging.WARNING, str(number))

    assert len(loggers._noticed) <= 1_000


def test_environments_that_take_no_seed_say_so_once(caplog):
    for _ in range(3):
        with GuestEnv(GUESTS / "c_applet.wasm") as env:
            env.reset(1)

    assert sum("takes no seed" in line for line in caplog.messages) == 1


def test_a_cache_that_cannot_be_had_is_told_once(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("ARKML_CACHE", "/dev/null")
    for number in range(3):
        with Host() as host:
            text = f'(module (func (export "f") (result i32) (i32.const {number})))'
            assert host.load(text.encode()).call("f") == number

    assert sum("are not kept" in line for line in caplog.messages) == 1
