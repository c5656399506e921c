"""The imports of module `env` that AssemblyScript and Emscripten add to their modules."""

import logging
import time

import numpy as np
import pytest
from tests.integration.guest_text import GUESTS, function, module

from arkml import GuestEnv, Host
from arkml.envs.core.world import ORIGIN
from arkml.errors import GuestTrap

LANGUAGE = GUESTS / "as_language.wasm"
ORIGIN_MS = ORIGIN // 1_000_000


def walk(host, frames=5):
    with host.load(LANGUAGE) as guest:
        for _ in range(frames):
            guest.update()
        return guest.call("walked")


def test_random_numbers_follow_the_seed_of_the_host():
    walks = []
    for seed in (1, 1, 2):
        with Host(seed=seed) as host:
            walks.append((walk(host), walk(host)))

    assert walks[0] == walks[1]
    assert walks[0] != walks[2]
    assert walks[0][0] != walks[0][1]  # two guests of one host
    assert np.isfinite(walks).all()


def test_lines_of_the_console_go_to_the_log_at_their_levels(host, caplog):
    caplog.set_level(logging.DEBUG, "arkml.guest")
    guest = host.load(LANGUAGE, name="npc")
    guest.call("say")

    lines = [record for record in caplog.records if record.name == "arkml.guest.npc"]
    assert [(line.levelname, line.getMessage()) for line in lines] == [
        ("INFO", "a line\\x1b"),
        ("INFO", "information"),
        ("DEBUG", "detail"),
        ("WARNING", "warning"),
        ("ERROR", "error"),
        ("ERROR", "assertion failed: does not hold"),
        ("INFO", "position 1.5, 2"),
        ("INFO", "no numbers"),
    ]


def test_timers_of_the_console_log_how_long_they_ran(host, caplog):
    caplog.set_level(logging.INFO, "arkml.guest")
    host.load(LANGUAGE, name="npc").call("time")

    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("step: ")
    assert first.endswith(" ms")
    assert second == "step: no timer of this name was started"


def test_clocks_are_those_of_the_machine(host):
    guest = host.load(LANGUAGE)
    before = time.time_ns() // 1_000_000
    now = guest.call("now")
    reading = guest.call("reading")

    assert before <= now <= time.time_ns() // 1_000_000
    assert reading <= guest.call("reading") <= time.monotonic_ns() / 1e6


def test_an_exit_ends_the_guest_with_its_status(host):
    guest = host.load(LANGUAGE)

    with pytest.raises(GuestTrap, match=r"process\.exit\(3\)"):
        guest.call("leave")


@pytest.fixture
def playing():
    """A guest that submits, draws a number and reads the clocks of AssemblyScript."""
    from tests.integration.test_environment import BY_V1, INITIAL, RUNNING, scripted

    rows = [[(1, INITIAL if turn == 0 else RUNNING, 0)] for turn in range(4)]
    imports = "\n".join(
        f'(import "env" "{name}" (func ${name} (result f64)))'
        for name in ("seed", "Math.random", "Date.now", "performance.now")
    )
    body = "".join(
        f"(f64.store (i32.const {1024 + 8 * place}) (call ${name}))"
        for place, name in enumerate(("seed", "Math.random", "Date.now", "performance.now"))
    )
    answer = BY_V1["answer"].replace("(param $rows i32)", f"(param $rows i32) {body}")
    return scripted(*rows, by={"imports": BY_V1["imports"] + "\n" + imports, "answer": answer})


def test_in_an_environment_they_are_those_of_the_world(playing, caplog):
    shown = []
    for seed in (1, 1, 2):
        with GuestEnv(playing) as env:
            env.reset(seed=seed)
            env.step(np.zeros((1, 1)))
            shown.append(np.frombuffer(env.guest.read_memory(1024, 32)))

    assert (shown[0] == shown[1]).all()
    assert (shown[0][:2] != shown[2][:2]).all()
    assert 0 <= shown[0][1] < 1
    assert ORIGIN_MS < shown[0][2] < ORIGIN_MS + 1_000
    assert shown[0][2] == int(shown[0][2])
    assert "takes no seed" not in caplog.text


def test_a_memory_that_grew_may_be_told(host):
    text = module(
        function("grow", "(drop (memory.grow (i32.const 3))) (call $told (i32.const 0))"),
        imports=['(import "env" "emscripten_notify_memory_growth" (func $told (param i32)))'],
    )
    guest = host.load(text)
    guest.call("grow")

    assert guest.account.memory_bytes == 4 << 16
