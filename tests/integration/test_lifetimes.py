"""What becomes of hosts, guests, fleets and environments that are closed, and that are dropped."""

import gc
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
from tests.integration.command_line import ENVIRONMENT, GUESTS, ROOT
from tests.integration.guest_text import ACTOR
from tests.waiting import eventually

from arkml import GuestEnv, HiveGrant, Host, Limits
from arkml.guests.guest import calls_of
from arkml.host import hives_of
from arkml.runtime.store import GuestStore

APPLET = GUESTS / "c_applet.wasm"
PENDULUM = GUESTS / "c_pendulum.wasm"
ONE_AGENT = {"configure": (1, "{seed}")}


def python(*words):
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "ignore", *words],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def warnings_of_collecting():
    """Texts of the warnings that a collection gives."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        gc.collect()
    return sorted(str(warning.message) for warning in given)


# Dropped.


def test_what_is_dropped_in_a_cycle_is_freed_in_whatever_order_the_collector_takes():
    kinds = [
        "guest",
        "fleet",
        "environment",
        "environments_of_one_host",
        "fleet_environment",
        "host",
        "awaited_call",
        "wrapped_environment",
        "wrapped_fleet_environment",
        "owned_guest",
    ]
    run = python("-m", "tests.integration.dropping", *kinds)

    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [f"{kind} 9" for kind in kinds]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda host: host.load(ACTOR, name="npc"), "<Guest npc>"),
        (lambda host: host.fleet(APPLET, 3), "<Fleet of 3 guests of c_applet.wasm>"),
    ],
    ids=["guest", "fleet"],
)
def test_what_is_dropped_unclosed_gives_one_warning_that_names_it(host, make, name):
    gc.collect()
    made = make(host)
    del made

    assert warnings_of_collecting() == [f"unclosed {name}"]


def test_an_environment_that_is_dropped_gives_one_warning_with_the_host_of_its_own():
    env = GuestEnv(PENDULUM, **ONE_AGENT)
    env.reset(1)
    del env

    assert warnings_of_collecting() == ["unclosed <GuestEnv of c_pendulum.wasm>"]


def test_what_was_closed_is_dropped_in_silence():
    host = Host()
    guest, fleet = host.load(ACTOR), host.fleet(APPLET, 2)
    env = GuestEnv(PENDULUM, **ONE_AGENT, host=host)
    env.reset(1)
    host.close()
    del guest, fleet, env, host

    assert warnings_of_collecting() == []


def test_a_guest_keeps_its_host():
    guest = Host().load(ACTOR)
    gc.collect()
    opened = guest.call("open")
    del guest

    assert opened == 0
    assert warnings_of_collecting() == ["unclosed <Guest guest>", "unclosed <Host>"]
    assert not GuestStore._open


def test_a_guest_that_is_collected_while_its_host_allocates_does_not_block_it(host):
    """The collector runs in the middle of what it likes, also where a lock is held."""
    arena = host._loader.engine.arena
    guest = host.load(ACTOR)
    guest.call("open")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        with arena._lock, calls_of(guest).instance.columns._lock:
            done = threading.Thread(target=calls_of(guest).instance.__del__)
            done.start()
            done.join(300)

    assert not done.is_alive()
    with host.load(ACTOR) as another:
        assert another.call("open") == 0


def test_a_host_may_be_closed_on_the_thread_of_its_own_ticker(make_host):
    """The collector, and so a finalizer that closes a host, runs on any thread."""
    host = make_host(limits=Limits(wasm_stack=513 << 10))  # an engine that no other host shares
    host.load(ACTOR).call("open")
    ticker = host._loader.engine.ticker
    eventually(ticker._ticks)
    ticker._ticking = os.getpid(), threading.get_ident()
    host.close()

    assert eventually(lambda: not ticker._ticks())


def test_what_interrupts_the_closing_of_a_host_leaves_nothing_open(monkeypatch):
    host = Host(hive=HiveGrant())
    engine = host._loader.engine
    monkeypatch.setattr(hives_of(host), "close", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        host.close()

    assert engine._number not in engine.ticker.users
    with pytest.raises(ValueError, match="already closed"):
        engine.linker.ptr()


def _interrupted():
    raise KeyboardInterrupt


# Closed.


def test_a_host_leaves_nothing_behind():
    """Address space, memory, mappings and descriptors after 20 hosts as after 2."""
    run = python("-m", "tests.integration.closing", "20")
    assert run.returncode == 0, run.stderr
    after_two, after_all = (
        [int(word) for word in line.split()] for line in run.stdout.splitlines()
    )
    size, resident, mappings, descriptors = (
        b - a for a, b in zip(after_two, after_all, strict=True)
    )

    # KiB. glibc reserves 64 MiB of address space for a thread now and then; one host's column
    # memory is 4 GiB.
    assert size < 256 << 10
    assert resident < 16 << 10
    assert mappings < 40
    assert descriptors == 0


def test_a_closed_host_that_is_kept_keeps_no_column_memory():
    def address_space():
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")

    with Host() as first:
        first.load(ACTOR).close()
    before = address_space()
    kept = [Host() for _ in range(3)]
    for host in kept:
        host.load(ACTOR).call("open")
        host.close()
    gc.collect()

    assert address_space() - before < 1 << 30


@pytest.mark.parametrize("use", ["load", "compile", "fleet"])
def test_a_closed_host_refuses_with_a_sentence(use):
    host = Host()
    host.close()
    words = (APPLET, 2) if use == "fleet" else (APPLET,)

    with pytest.raises(Exception, match="this host is closed"):
        getattr(host, use)(*words)
