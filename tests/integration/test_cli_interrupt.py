"""Ctrl-C while a command runs a guest, and the other signals that end it."""

import random
import signal
import subprocess
import sys
import time

import pytest
import typer
from tests.integration.command_line import FRAMES, GUESTS, LOOP, start

from arkml.cli import application

START = '(module (memory (export "memory") 1) (func $start (loop (br 0))) (start $start))'
SLEEP = """(module
(import "wasi_snapshot_preview1" "poll_oneoff"
  (func $poll (param i32 i32 i32 i32) (result i32)))
(memory (export "memory") 1)
(func (export "_start")
  (i32.store (i32.const 16) (i32.const 1))
  (i64.store (i32.const 24) (i64.const 3600000000000))
  (drop (call $poll (i32.const 0) (i32.const 256) (i32.const 1) (i32.const 512)))))"""
UNLIMITED = ("--limit", "run_seconds=none")
IMPORTING = """
import os, signal, sys
from arkml.cli import main

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "arkml.cli.application":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
main()
"""


def interrupted(*words, after, command="run", number=signal.SIGINT):
    """Start a command, interrupt it after its first instruction, return how it ended."""
    with start(command, *words) as process:
        seen = ""
        while "running" not in seen:
            line = process.stderr.readline()
            assert line, "the run ended by itself"
            seen += line
        time.sleep(after)
        process.send_signal(number)
        out, err = process.communicate()
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(LOOP, UNLIMITED, id="loop"),
        pytest.param(START, UNLIMITED, id="start"),
        pytest.param(SLEEP, ["--wasi"], id="sleep"),
        pytest.param(LOOP, [*UNLIMITED, "--instances", "5"], id="fleet"),
        pytest.param(FRAMES, ["--frames", "100000000000"], id="frames"),
        pytest.param(FRAMES, ["--frames", "100000000000", "--fps", "20"], id="paced"),
    ],
)
def test_ctrl_c_ends_a_run_at_once_with_130(tmp_path, text, words):
    path = tmp_path / "guest.wat"
    path.write_text(text)
    status, out, err = interrupted(path, *words, after=random.uniform(0.001, 0.08))

    assert status == 130
    assert "\ninterrupted" in f"\n{err}"  # behind the line of a slow start
    assert "Traceback" not in err
    assert "panicked" not in err
    assert out == ""


def test_ctrl_c_while_a_command_is_imported_ends_it_without_a_word():
    ended = subprocess.run(
        [sys.executable, "-c", IMPORTING, "--version"], capture_output=True, check=False
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, b"", b"")


def test_ctrl_c_ends_a_game_that_acts_with_its_policy():
    words = GUESTS / "c_applet.wasm", "--frames", "100000000000", "--json", "--log-level", "off"
    after, err = 0.25, ""
    while "after" not in err:  # the first frame may take its time to come
        status, out, err = interrupted(*words, after=after)
        after *= 2
        assert status == 130

    assert err.startswith("interrupted after ")
    assert '"error": "interrupted after ' in out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("command", "text", "words"),
    [
        pytest.param("run", LOOP, UNLIMITED, id="run"),
        pytest.param("run", FRAMES, ["--frames", "100000000000", "--fps", "20"], id="run paced"),
        pytest.param("bench", FRAMES, ["--frames", "100000000"], id="bench"),
    ],
)
def test_sigterm_and_sighup_end_a_command_as_ctrl_c_does(tmp_path, command, text, words, number):
    path = tmp_path / "guest.wat"
    path.write_text(text)
    status, out, err = interrupted(path, *words, after=0.05, command=command, number=number)

    assert status == 128 + number
    assert "\ninterrupted" in f"\n{err}"  # behind the line of a slow start
    assert "Traceback" not in err
    assert out == ""


def test_a_signal_that_comes_while_words_are_read_interrupts_the_command(monkeypatch):
    """Its exit code is that of the signal; typer's is 130, whichever came."""
    app = typer.Typer()

    @app.command()
    def walk():
        raise KeyboardInterrupt

    monkeypatch.setattr(application, "application", lambda _: app)
    monkeypatch.setattr(application, "open_streams", lambda: None)

    with pytest.raises(KeyboardInterrupt):
        application._dispatch([])


def test_smoke_ends_with_sigterm_and_passes_nothing(tmp_path):
    path = tmp_path / "guest.wat"
    path.write_text(LOOP)
    with start("smoke", path, *UNLIMITED) as process:
        while "initialize" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate()

    assert process.returncode == 143, out + err
    assert "\ninterrupted" in f"\n{err}"  # behind the line of a slow start
    assert "passed" not in out
