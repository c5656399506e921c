import io
import logging
import sys

import pytest

from arkml.abi.codes import LogLevel
from arkml.base.loggers import SafeLogger, notice
from arkml.sessions.text import (
    LEVELS,
    LINE_BYTES,
    TRACE,
    Allowance,
    GuestLog,
    harmless,
    presentable,
)


class Stopwatch:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def stopwatch():
    return Stopwatch()


@pytest.fixture
def lines(caplog):
    caplog.set_level(TRACE, logger="arkml.guest")
    return lambda: [(record.levelno, record.getMessage()) for record in caplog.records]


def guest_log(stopwatch, *, name="npc", limit=64 << 10, rate=1000):
    return GuestLog(name, limit=limit, rate=rate, stopwatch=stopwatch)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\nof two lines", "plain\ttext\nof two lines"),
        ("årkitektur 🦀 漢字", "årkitektur 🦀 漢字"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b2J\x85\x90", "\\x9b2J\\x85\\x90"),
        ("bell\x07 null\x00 back\x08 return\r delete\x7f", "bell null back return delete"),
        ("a\u202eb\u2066c\u200fd", "a\\u202eb\\u2066c\\u200fd"),
        ("one\u2028two\ufeff\u200b", "one\\u2028two\\ufeff\\u200b"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("\ud800", "\\ud800"),
    ],
)
def test_guest_text_cannot_command_a_terminal(text, shown):
    assert harmless(text) == shown


def test_every_character_below_u00a0_is_printable_afterwards():
    shown = harmless("".join(map(chr, range(0xA0))))

    assert all(c in "\t\n" or c.isprintable() for c in shown)


def test_long_text_is_cut_on_a_characters_border_and_says_how_much_is_gone():
    assert presentable("å" * 10, 7) == "ååå… [14 bytes cut]"
    assert presentable("å" * 10, 20) == "å" * 10


def test_text_that_grows_by_escaping_stays_within_the_limit():
    shown = presentable("\x1b" * 1000, 100)

    assert shown == "\\x1b" * 25 + "… [1200 bytes cut]"


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (LogLevel.ERROR, logging.ERROR),
        (LogLevel.WARN, logging.WARNING),
        (LogLevel.INFO, logging.INFO),
        (LogLevel.DEBUG, logging.DEBUG),
        (LogLevel.TRACE, 5),
    ],
)
def test_guest_levels_are_those_of_logging(level, expected):
    assert LEVELS[level] == expected
    assert logging.getLevelName(5) == "TRACE"


def test_the_logger_is_named_after_the_guest(stopwatch, caplog):
    caplog.set_level(logging.INFO, logger="arkml.guest")
    guest_log(stopwatch, name="npc\x1b\n7").say(logging.INFO, "hello")

    assert [record.name for record in caplog.records] == ["arkml.guest.npc\\x1b 7"]


def test_percent_signs_of_a_guest_are_no_placeholders(stopwatch, lines):
    guest_log(stopwatch).say(logging.INFO, "100% %s %d")

    assert lines() == [(logging.INFO, "100% %s %d")]


def test_a_second_line_of_a_guest_does_not_look_like_a_line_of_the_host(stopwatch, lines):
    guest_log(stopwatch).say(logging.INFO, "first\nERROR host: fake")

    assert lines() == [(logging.INFO, "first\n    ERROR host: fake")]


def test_more_lines_than_allowed_are_dropped_and_counted(stopwatch, lines):
    log = guest_log(stopwatch, rate=3)
    for number in range(10):
        log.say(logging.INFO, f"line {number}")
    stopwatch.now = 0.5
    log.say(logging.INFO, "later")

    assert [text for _, text in lines()] == [
        "line 0",
        "line 1",
        "line 2",
        "dropped 7 lines: the guest exceeds its log rate",
        "later",
    ]


class TextInMemory:
    """Text of a guest that counts the bytes read of it."""

    def __init__(self, text):
        self.data = text.encode()
        self.size = len(self.data)
        self.num_read = 0

    def read(self, most):
        kept = self.data[:most]
        self.num_read += len(kept)
        return kept.decode(), self.size - len(kept)


def test_no_more_of_a_text_is_read_than_is_shown(stopwatch, lines):
    text = TextInMemory("x" * 1_000_000)
    guest_log(stopwatch, limit=100).say(logging.INFO, text)

    assert lines() == [(logging.INFO, "x" * 100 + "… [999900 bytes cut]")]
    assert text.num_read == 100


def test_a_line_over_the_rate_is_not_read(stopwatch, lines):
    log = guest_log(stopwatch, rate=2)
    texts = [TextInMemory("some text") for _ in range(4)]
    for text in texts:
        log.say(logging.INFO, text)

    assert len(lines()) == 2
    assert [text.num_read for text in texts] == [9, 9, 0, 0]


def test_a_line_of_a_level_that_is_off_is_not_read(stopwatch, lines):
    text = TextInMemory("some text")
    log = guest_log(stopwatch)
    log.logger.logger.setLevel(logging.ERROR)
    log.say(logging.INFO, text)
    log.logger.logger.setLevel(logging.NOTSET)

    assert text.num_read == 0
    assert lines() == []


def test_a_long_line_counts_as_several(stopwatch, lines):
    log = guest_log(stopwatch, rate=10)
    for _ in range(3):
        log.say(logging.INFO, "x" * (8 * LINE_BYTES))
    stopwatch.now = 0.5  # the second line has left a debt of 6
    log.say(logging.INFO, "too early")
    stopwatch.now = 0.8
    log.say(logging.INFO, "later")

    assert [text[:9] for _, text in lines()] == ["x" * 9, "x" * 9, "dropped 2", "later"]


@pytest.mark.parametrize(
    ("text", "size"), [("\x1b" * 4_096, 4), ("\n" * 4_096, 5), ("x" * 4_096, 1)]
)
def test_a_line_counts_as_what_is_written_of_it(stopwatch, lines, text, size):
    log = guest_log(stopwatch, limit=1 << 16, rate=100)
    for _ in range(100):
        log.say(logging.INFO, text)
    sizes = [len(line) for _, line in lines()]

    assert sizes[0] == size * 4_096
    assert 100 * LINE_BYTES <= sum(sizes) < 100 * LINE_BYTES + sizes[0]


def test_the_contexts_of_a_line_count_with_it(stopwatch, lines):
    log = guest_log(stopwatch, rate=10)
    for number in range(8):
        log.add_context(f"name {number}", "x" * LINE_BYTES)
    for _ in range(3):
        log.say(logging.INFO, "short")
    dropped = len(lines())
    for number in range(8):
        log.remove_context(f"name {number}")
    stopwatch.now = 0.9  # the second line has left a debt of 8
    log.say(logging.INFO, "later")

    assert dropped == 2
    assert lines()[-1] == (logging.INFO, "later")


def test_a_short_context_does_not_halve_the_rate(stopwatch, lines):
    log = guest_log(stopwatch, rate=10)
    log.add_context("agent", "7")
    for _ in range(10):
        log.say(logging.INFO, "short")

    assert len(lines()) == 10


class Raising(logging.Handler):
    """A handler of an embedder, whose exceptions leave `emit`."""

    def emit(self, record):
        raise ConnectionError(f"the log server is gone: {record.getMessage()}")


def test_a_handler_that_raises_ends_nothing_and_is_shown_once(stopwatch, capsys):
    log = guest_log(stopwatch, name="shown once")
    handler = Raising()
    log.logger.logger.addHandler(handler)
    try:
        log.say(logging.ERROR, "first")
        log.say(logging.ERROR, "second")
        log.flush()
    finally:
        log.logger.logger.removeHandler(handler)
    shown = capsys.readouterr().err

    assert "a handler of arkml.guest.shown once raised" in shown
    assert "the log server is gone: first" in shown
    assert "second" not in shown


def test_a_notice_fails_nobody_where_stderr_is_closed(monkeypatch):
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    log = SafeLogger("arkml.closed")
    log.logger.addHandler(logging.StreamHandler(closed))
    try:
        with pytest.raises(ValueError, match="closed file"):
            log.logger.error("Python itself raises what its handlers raise")
        notice(log, logging.ERROR, "no guest takes a seed here")
    finally:
        log.logger.handlers.clear()


def test_a_message_fails_nobody_where_the_program_has_no_stderr(monkeypatch):
    monkeypatch.delattr(sys, "stderr")
    log = SafeLogger("arkml.without_stderr")
    log.logger.addHandler(logging._StderrHandler())  # the handler of programs that have none
    try:
        log.error("nobody reads this")
    finally:
        log.logger.handlers.clear()


def test_a_safe_logger_names_the_line_that_called_it(caplog):
    SafeLogger("arkml.test").error("here")

    assert caplog.records[0].funcName == "test_a_safe_logger_names_the_line_that_called_it"


def test_flush_tells_of_dropped_lines_once(stopwatch, lines):
    log = guest_log(stopwatch, rate=1)
    log.say(logging.INFO, "one")
    log.say(logging.INFO, "two")
    log.flush()
    log.flush()

    assert lines()[1:] == [(logging.WARNING, "dropped 1 lines: the guest exceeds its log rate")]


def test_lines_that_nobody_reads_cost_no_allowance(stopwatch, caplog):
    caplog.set_level(logging.INFO, logger="arkml.guest")
    log = guest_log(stopwatch, rate=1)
    for _ in range(10):
        log.say(logging.DEBUG, "noise")
    log.say(logging.INFO, "heard")

    assert [record.getMessage() for record in caplog.records] == ["heard"]


def test_an_allowance_fills_up_again_but_never_above_a_second_of_lines(stopwatch):
    allowance = Allowance(10, stopwatch)
    stopwatch.now = 1000.0
    passed = [allowance.take() for _ in range(11)]
    stopwatch.now = 1000.1

    assert passed == [True] * 10 + [False]
    assert [allowance.take(), allowance.take()] == [True, False]


def test_contexts_are_shown_until_they_are_removed(stopwatch, lines):
    log = guest_log(stopwatch)
    log.add_context("phase", "warm-up")
    log.add_context("level", "3\x1b\n")
    log.add_context("phase", "training")
    log.say(logging.INFO, "a")
    log.remove_context("phase")
    log.remove_context("unknown")
    log.say(logging.INFO, "b")
    log.remove_context("phase")
    log.remove_context("level")
    log.say(logging.INFO, "c")

    assert [text for _, text in lines()] == [
        "a [phase=training level=3\\x1b ]",
        "b [phase=warm-up level=3\\x1b ]",
        "c",
    ]


def test_contexts_are_limited_in_number_and_size(stopwatch, lines):
    log = guest_log(stopwatch)
    for number in range(1000):
        log.add_context(f"name {number}", "x" * 10_000)
    log.say(logging.INFO, "a")

    assert len(lines()) == 2  # one of them says that there are too many
    assert len(lines()[-1][1]) < 32 * 600


def test_what_the_host_has_to_say_once_it_says_once(stopwatch, lines):
    log = guest_log(stopwatch)
    for _ in range(3):
        log.say_once("topic", logging.WARNING, "look")

    assert lines() == [(logging.WARNING, "look")]
