"""Ctrl-C while a command runs a guest, and the other signals that end it."""

import random
import signal
import time

import pytest
from tests.integration.command_line import FRAMES, GUESTS, LOOP, start

AT_ONCE = 3.0  # seconds: ten times what is promised
START = '(module (memory (export "memory") 1) (func $start (loop (br 0))) (start $start))'
SLEEP = """(module
(import "wasi_snapshot_preview1" "poll_oneoff"
  (func $poll (param i32 i32 i32 i32) (result i32)))
(memory (export "memory") 1)
(func (export "_start")
  (i32.store (i32.const 16) (i32.const 1))
  (i64.store (i32.const 24) (i64.const 60000000000))
  (drop (call $poll (i32.const 0) (i32.const 256) (i32.const 1) (i32.const 512)))))"""
UNLIMITED = ("--limit", "run_seconds=none")


def interrupted(*words, after, command="run", number=signal.SIGINT):
    """Start a command, interrupt it after its first instruction, return how it ended."""
    with start(command, *words) as process:
        seen = ""
        while "running" not in seen:
            line = process.stderr.readline()
            assert line, "the run ended by itself"
            seen += line
        time.sleep(after)
        sent = time.perf_counter()
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    return process.returncode, time.perf_counter() - sent, out, err


@pytest.mark.serial
@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(LOOP, UNLIMITED, id="loop"),
        pytest.param(START, UNLIMITED, id="start"),
        pytest.param(SLEEP, ["--wasi"], id="sleep"),
        pytest.param(LOOP, [*UNLIMITED, "--instances", "5"], id="fleet"),
        pytest.param(FRAMES, ["--frames", "1000000000"], id="frames"),
        pytest.param(FRAMES, ["--frames", "1000000000", "--fps", "20"], id="paced"),
    ],
)
def test_ctrl_c_ends_a_run_at_once_with_130(tmp_path, text, words):
    path = tmp_path / "guest.wat"
    path.write_text(text)
    status, seconds, out, err = interrupted(path, *words, after=random.uniform(0.001, 0.08))

    assert status == 130
    assert seconds < AT_ONCE
    assert err.startswith("interrupted")
    assert "Traceback" not in err
    assert "panicked" not in err
    assert out == ""


@pytest.mark.serial
def test_ctrl_c_ends_a_game_that_acts_with_its_policy():
    guest = GUESTS / "c_applet.wasm"
    status, seconds, out, err = interrupted(
        guest, "--frames", "1000000000", "--json", "--log-level", "off", after=0.5
    )

    assert status == 130
    assert seconds < AT_ONCE
    assert err.startswith("interrupted after ")
    assert '"error": "interrupted after ' in out


@pytest.mark.serial
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("command", "text", "words"),
    [
        pytest.param("run", LOOP, UNLIMITED, id="run"),
        pytest.param("run", FRAMES, ["--frames", "1000000000", "--fps", "20"], id="run paced"),
        pytest.param("bench", FRAMES, ["--frames", "100000000"], id="bench"),
    ],
)
def test_sigterm_and_sighup_end_a_command_as_ctrl_c_does(tmp_path, command, text, words, number):
    path = tmp_path / "guest.wat"
    path.write_text(text)
    status, seconds, out, err = interrupted(
        path, *words, after=0.05, command=command, number=number
    )

    assert status == 128 + number
    assert seconds < AT_ONCE
    assert err.startswith("interrupted")
    assert "Traceback" not in err
    assert out == ""


def test_smoke_ends_with_sigterm_and_passes_nothing(tmp_path):
    path = tmp_path / "guest.wat"
    path.write_text(LOOP)
    with start("smoke", path, *UNLIMITED) as process:
        while "initialize" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)

    assert process.returncode == 143, out + err
    assert err.startswith("interrupted")
    assert "passed" not in out
