"""`arkml trials play` in a process: its links, its trials and its end, without a browser."""

import signal
import urllib.request
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from tests.integration.command_line import GUESTS, arkml, start
from tests.integration.rebuilt_modules import BROKEN, with_a_note, with_a_trap, with_other_data

from arkml import Replay
from arkml.guests.trace_files import read_trace
from arkml.trials.core.hosting import MOST_RATE
from arkml.trials.datalog.reader import DatalogReader

WALKERS = GUESTS / "c_walkers.wasm"
FOREVER = "3,0,1,0,0"  # three agents, whose episodes do not end


@contextmanager
def playing(tmp_path, *words, numbers=FOREVER, links=4, **environment):
    """A process that plays, and its links by what they are good for; it is ended by Ctrl-C."""
    given = ("--configure-numbers", numbers, "--port", "0", "--log-level", "error")
    process = start("trials", "play", WALKERS, *given, *words, cwd=tmp_path, **environment)
    lines = [process.stdout.readline().split() for _ in range(links)]
    assert all(lines), process.communicate(timeout=300)[1]
    try:
        yield lines, process
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGINT, out + err


def read(url):
    with urllib.request.urlopen(url, timeout=300) as answer:
        return answer.read().decode()


def test_there_are_links_to_play_to_watch_and_to_invite_others(tmp_path):
    with playing(tmp_path) as (links, _):
        origin = links[1][1]
        page = read(origin)
        module = read(f"{origin}js/players.js")

    slots = [(what, urlsplit(link).fragment) for what, link in links]
    assert slots == [
        ("play", "slot=red_0"),
        ("watch", ""),
        ("invite", "slot=red_1"),
        ("invite", "slot=red_2"),
    ]
    assert '<script type="module" src="main.js">' in page
    assert "export async function takeOver" in module
    [one] = arkml("trials", "list", "--json", cwd=tmp_path).json["trials"]
    assert (one["state"], one["actors"]) == ("ENDED", 3)


@pytest.mark.parametrize(
    ("words", "more"),
    [(("--host", "0.0.0.0"), {}), ((), {"ARKML_TRIALS_TOKEN": "a-token-of-mine"})],
)
def test_where_tokens_are_needed_each_link_has_its_own_in_the_fragment(tmp_path, words, more):
    with playing(tmp_path, *words, **more) as (links, _):
        parts = [urlsplit(link) for _, link in links]

    tokens = [parse_qs(part.fragment)["token"][0] for part in parts]
    assert len({*tokens, "a-token-of-mine"}) == 5
    assert {part.path for part in parts} == {"/play/"}
    assert all(part.hostname != "0.0.0.0" for part in parts)


def test_nothing_is_written_without_a_record(tmp_path):
    with playing(tmp_path, "--no-record"):
        pass

    assert list(tmp_path.iterdir()) == []


def test_the_next_trial_begins_when_the_guest_is_done(tmp_path):
    with playing(tmp_path, "--tick-rate", "500", numbers="2,0,1,3,5", links=3) as (_, process):
        ends = [process.stdout.readline() for _ in range(4)]

    assert all(line.endswith("its guest was done\n") for line in ends)
    assert len({line.split()[1] for line in ends}) == 4


def test_the_guests_of_trials_are_recorded_and_replay_equal(tmp_path):
    given = ("--tick-rate", "500", "--trace", "walkers.trace", "--no-record")
    with playing(tmp_path, *given, numbers="2,0,1,3,5", links=3) as (_, process):
        ends = [process.stdout.readline() for _ in range(3)]

    assert all(line.endswith("its guest was done\n") for line in ends)
    for name in ("walkers.trace", "walkers-2.trace", "walkers-3.trace"):
        frames = list(replayed(tmp_path / name))
        ticks = [len(frame.submits[0].actions) for frame in frames if frame.submits]
        assert len(ticks) == 5
        assert set(ticks) == {2}
    shown = arkml("replay", tmp_path / "walkers-2.trace", WALKERS, "--json").json
    assert shown["equal"]
    assert shown["failure"] is None


def test_a_trap_in_a_trial_is_in_its_trace(tmp_path):
    given = ("--tick-rate", "500", "--trace", "walkers.trace", "--no-record")
    with playing(tmp_path, *given, numbers="2,0,1,2,5", links=3) as (_, process):
        end = process.stdout.readline()

    *_, last = replayed(tmp_path / "walkers.trace")
    assert "late enough" in str(last.error)
    assert "late enough" in end
    assert read_trace(tmp_path / "walkers.trace").end == "failed"


def replayed(path):
    """The frames of a trace, compared with it."""
    with Replay(path, WALKERS) as replay:
        frames = list(replay)
        assert not replay.ending
    return frames


def test_trials_of_a_guest_that_is_done_at_once_begin_a_second_apart(tmp_path):
    with start(
        "trials", "play", GUESTS / "rust_cmdlet.wasm", "--port", "0", "--data", tmp_path
    ) as process:
        ends = (line for line in process.stdout if line.endswith("its guest was done\n"))
        for _ in range(3):
            next(ends)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)
    with DatalogReader(tmp_path) as reader:
        began = [one.began_ns for one in reversed(reader.trials())]

    assert process.returncode == 128 + signal.SIGTERM
    assert min(np.diff(began)) / 1e9 > 0.9


def test_a_guest_that_fails_before_its_first_tick_again_and_again_ends_the_command(tmp_path):
    seeded = "2,0,1,{seed},0"  # the count of slots is taken with the seed 0, which is no fault
    given = ("--configure-numbers", seeded, "--port", "0", "--no-record")
    ended = arkml("trials", "play", WALKERS, *given, cwd=tmp_path)

    assert ended.status == 1
    assert ended.out.count("ended after 0 ticks") == 3
    assert "3 trials in a row ended before their first tick" in ended.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--no-record", "--learn", "people"), "the log is learned from"),
        (("--learn", "people"), "it takes --hive HOST:PORT"),
        (("--tls-key", "key.pem"), "--tls-key needs --tls-cert"),
        (("--policy", "none.onnx"), "none.onnx"),
        (("--trace", WALKERS), "is the file that is read"),
        (("--trace", "traces/x.trace"), "there is no directory traces"),
        (("--trace", "."), "the trace . cannot be written: it is a directory, name a file"),
        (("--tick-rate", "1001"), f"--tick-rate 1001: it takes a number from 0 to {MOST_RATE:g}"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_sentence(tmp_path, words, sentence):
    given = ("--configure-numbers", FOREVER, "--port", "0")
    ended = arkml("trials", "play", WALKERS, *given, *words, cwd=tmp_path)

    assert ended.status == 2
    assert sentence in ended.err
    assert list(tmp_path.iterdir()) == []


def test_a_rebuilt_guest_plays_on_and_one_that_does_not_fit_is_not_played(tmp_path):
    before = WALKERS.read_bytes()
    guest = tmp_path / "walkers.wasm"
    guest.write_bytes(before)
    process = start(
        "trials", "play", guest, "--watch", "--configure-numbers", FOREVER, "--port", "0",
        "--no-record", cwd=tmp_path,
    )  # fmt: skip
    try:
        told = iter(process.stdout.readline, "")

        def until(text):
            return next(line for line in told if text in line)

        until("invite")
        until("invite")
        guest.write_bytes(with_a_note(before))
        until("in this trial, its state was kept: only code has changed")
        guest.write_bytes(BROKEN)
        until("walkers.wasm: not reloaded, the module before goes on")
        guest.write_bytes(with_a_trap(before))
        assert "trapped" in until("not reloaded, the module before goes on")
        guest.write_bytes(with_other_data(before))
        until("its state begins anew in the next trial")
        assert "ticks: its guest was done" in until("ended after")
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGINT, out + err
