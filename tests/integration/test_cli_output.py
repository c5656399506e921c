"""The stdout of a command: on a full disk, with nobody who reads, and how wide tables are."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests import prefork
from tests.integration.command_line import ENVIRONMENT, GUESTS, ROOT, arkml, start

APPLET = GUESTS / "c_applet.wasm"
COMMANDS = [
    pytest.param(["run", APPLET, "--frames", "3"], id="table"),
    pytest.param(["run", APPLET, "--frames", "3", "--json"], id="json"),
    pytest.param(["smoke", APPLET], id="smoke"),
    pytest.param(["run", GUESTS / "wasi_command.wasm", "--wasi"], id="wasi"),
    pytest.param(["--help"], id="help"),
    pytest.param(["--version"], id="version"),
]


def written_to(stdout, words):
    """Run a command with that stdout, a file or a descriptor of one."""
    return prefork.run("-m", "arkml", *words, stdout=stdout, env=ENVIRONMENT)


@pytest.mark.parametrize("words", COMMANDS)
def test_a_full_disk_is_one_sentence_and_exit_code_1(words):
    with Path("/dev/full").open("w") as full:
        run = written_to(full, words)

    assert run.returncode == 1
    assert run.stderr.endswith("error: stdout cannot be written: No space left on device\n")
    assert "bug of the host" not in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("words", COMMANDS)
def test_an_early_end_of_the_reader_is_quiet(words):
    with start(*words) as process:
        process.stdout.close()
        err = process.stderr.read()
        process.stdin.close()
        process.wait(300)

    assert process.returncode == 141
    assert "error" not in err
    assert "lost" not in err
    assert "Traceback" not in err
    assert "BrokenPipe" not in err


def test_a_stdout_that_is_closed_is_one_sentence():
    run = subprocess.run(
        ["sh", "-c", 'exec "$0" -m arkml run "$1" >&-', sys.executable, APPLET],
        cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip

    assert run.returncode == 1
    assert run.stderr == "error: stdout cannot be written: it is closed\n"


OPTIONS = (
    "--configure 1,{seed} --actors 1 --guests 1 --runner threads --max-opts 16 --warmup-period 20"
    " --eval-interval 16 --episodes 1 --max-episode-steps 10"
)
GUEST = GUESTS / "c_pendulum_plain.wasm"
TRAINER = [sys.executable, "-m", "arkml.async_trainer", GUEST, *OPTIONS.split()]


def trainer(redirection):
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *TRAINER],
        cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def test_the_trainer_by_actors_is_quiet_where_its_reader_ends_early():
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run(
        TRAINER, cwd=ROOT, env=ENVIRONMENT, stdout=writer, stderr=subprocess.PIPE, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    os.close(writer)

    assert run.returncode == 141
    assert run.stderr == ""


@pytest.mark.parametrize(
    ("redirection", "reason"),
    [(">&-", "it is closed"), (">/dev/full", "No space left on device")],
)
def test_the_trainer_by_actors_says_why_its_stdout_is_not_written(redirection, reason):
    run = trainer(redirection)

    assert run.returncode == 1
    assert run.stderr == f"error: stdout cannot be written: {reason}\n"


def test_the_trainer_by_actors_needs_no_stderr_and_says_what_it_takes():
    quiet, wrong = trainer("2>&-"), trainer("--actors 0")

    assert quiet.returncode == 0
    assert "16 of 16 updates" in quiet.stdout
    assert wrong.returncode == 2
    assert "0 is not 1 or more" in wrong.stderr


def test_tables_in_a_pipe_are_as_wide_as_columns_says():
    guest = GUESTS / "ark_api" / "cmdlet_infer_017.wasm"
    narrow = arkml("inspect", guest, COLUMNS="80").out.splitlines()
    wide = arkml("inspect", guest, "-v", COLUMNS="200").out.splitlines()

    assert max(map(len, narrow)) <= 80
    assert 80 < max(map(len, wide)) <= 200
    assert not any("…" in line for line in narrow)


def test_a_pipe_other_than_stdout_that_breaks_is_a_failure_with_its_sentence():
    code = (
        "from arkml.cli.exits import run\n"
        "def job(): raise BrokenPipeError(32, 'Broken pipe')\n"
        "run(job, as_json=True, debug=False)"
    )
    broken = prefork.run("-c", code, env=ENVIRONMENT)

    assert broken.returncode == 1
    assert "BrokenPipeError" in broken.stderr
    assert json.loads(broken.stdout)["type"] == "BrokenPipeError"


ENDING = """
import atexit, os, sys, threading, time
from arkml.cli import application, main

class Left:
    def __del__(self):
        print("taken apart")

def work():
    while threading.main_thread().is_alive():
        time.sleep(0.01)
    print("worked")

def command():
    atexit.register(print, "closed")
    threading.Thread(target=work).start()
    cycle = [open(os.devnull)]
    cycle.append(cycle)
    sys.exit(3)

left = Left()
application.run_command_line = command
main()
"""


@pytest.mark.parametrize("warnings", ["", "always"])
def test_a_command_ends_after_its_threads_without_taking_its_modules_apart(warnings):
    variables = ENVIRONMENT | {"PYTHONWARNINGS": warnings}
    run = prefork.run("-c", ENDING, env=variables)
    alone = subprocess.run(
        [sys.executable, "-c", ENDING], env=variables, capture_output=True, text=True, check=False
    )

    assert (alone.stdout, alone.returncode) == ("worked\nclosed\n", 3)
    assert (run.stdout, run.returncode) == (alone.stdout, alone.returncode)
    assert ("ResourceWarning: unclosed file" in alone.stderr) == bool(warnings)
