"""Ctrl-C, at a random time after a guest began to run: what it does not end runs for ever."""

import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import wasmtime
from tests.integration.guest_text import ACTOR, GUESTS, SLEEPER, python, spawn

RUNS = 15

LOOPS = {
    "a pure loop": (ACTOR, "spin", ()),
    "a push loop": (ACTOR, "open_and_push_for_ever", ()),
    "a submit loop": (ACTOR, "open_and_submit_for_ever", ()),
    "a WASI sleep": (SLEEPER, "sleep_long", ("--wasi",)),
}


# In the process that embeds the host.

IN_PROCESS = """
import logging, sys, time
from arkml.guests.guest import calls_of
from arkml import Host
from arkml.errors import GuestFailed
from arkml.runtime.wasi.linking import WasiGrant
from tests.integration import guest_text

class Running(logging.Handler):
    def emit(self, record):
        if record.getMessage() == "running":  # and not that a push was refused
            print("running", flush=True)

logging.getLogger("arkml.guest").addHandler(Running())
logging.getLogger("arkml.guest").setLevel(logging.INFO)
text, function, runs = sys.argv[1:]
with Host(wasi=WasiGrant()) as host:
    program, other = host.compile(getattr(guest_text, text)), host.compile(guest_text.ACTOR)
    for _ in range(int(runs)):
        guest = host.load(program)
        try:
            guest.call(function, budget=None)
        except KeyboardInterrupt:
            print("caught", flush=True)
        assert guest.failure is not None and calls_of(guest).services.live_handles == 0
        try:
            guest.call(function)
        except GuestFailed:
            pass
        with host.load(other) as fresh:
            assert fresh.call("open") == 0
            assert fresh.call("step", 5) == 0
            assert fresh.call("action", 4) == guest_text.ACTION
        print("works", flush=True)
sys.exit(130)
"""


def interrupt_in_process(what):
    text, function, _ = LOOPS[what]
    name = "ACTOR" if text is ACTOR else "SLEEPER"
    process = spawn("-c", IN_PROCESS, name, function, RUNS)
    chance, lines = random.Random(what), []
    try:
        for _ in range(RUNS):
            lines.append(process.stdout.readline())
            time.sleep(chance.uniform(0.001, 0.080))
            process.send_signal(signal.SIGINT)
            lines += [process.stdout.readline() for _ in range(2)]
        output, errors = process.communicate(timeout=300)
    finally:
        process.kill()
        process.wait()
    return lines, output, errors, process.returncode


def test_in_a_process_every_interrupt_arrives_and_other_guests_go_on():
    with ThreadPoolExecutor(2) as pool:
        outcomes = dict(zip(LOOPS, pool.map(interrupt_in_process, LOOPS), strict=True))

    for what, (lines, output, errors, status) in outcomes.items():
        assert errors == "", what
        assert lines == ["running\n", "caught\n", "works\n"] * RUNS, what
        assert (output, status) == ("", 130), what


# On the command line.


def interrupt_command(path, function, options, after):
    """The exit status, and what stderr says."""
    process = spawn("-m", "arkml", "run", path, "--invoke", function, *options)
    said = []
    try:
        while not any("running" in line for line in said):
            line = process.stderr.readline()
            assert line, said
            said.append(line)
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
    finally:
        process.kill()
        process.wait()
    return process.returncode, "".join(said) + errors


@pytest.mark.parametrize("what", LOOPS)
def test_the_command_ends_with_130_after_ctrl_c(tmp_path, what):
    text, function, options = LOOPS[what]
    path = tmp_path / "guest.wasm"
    path.write_bytes(wasmtime.wat2wasm(text.decode()))
    chance = random.Random(what)

    def run(_number):
        return interrupt_command(path, function, options, chance.uniform(0.001, 0.080))

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(run, range(RUNS)))

    for status, errors in outcomes:
        assert status == 130, errors
        assert "panic" not in errors
        assert "Traceback" not in errors
        assert "abort" not in errors.lower()


# Odd places.


@pytest.mark.parametrize("catching", ["", "SIGNALS.catch(sys.exit)"], ids=["host", "command"])
@pytest.mark.parametrize(
    "place",
    [
        "dying = Dying(); del dying",
        "dying = Dying(); dying.itself = dying; del dying; gc.collect()",
        "weakref.finalize(threading.Event(), send)",
        "account._processor_clock = send; gc.collect()",
    ],
    ids=["a finalizer", "a finalizer of garbage", "a weak reference", "the collector"],
)
def test_an_interrupt_where_python_drops_exceptions_is_not_lost(place, catching):
    """Signals that come while garbage is collected are handled in what the collector calls."""
    script = f"""
import gc, signal, sys, threading, time, weakref
from arkml import Host
from arkml.cli.signals import SIGNALS
from arkml.runtime import account
clock = account._processor_clock
def send():
    account._processor_clock = clock
    signal.raise_signal(signal.SIGINT)
    return 0.0
class Dying:
    def __del__(self):
        send()
{catching}
gc.disable()
with Host() as host:
    try:
        {place}
        time.sleep(3600)
        raise SystemExit("lost")
    except KeyboardInterrupt:
        print("caught")
"""
    ended = python(script)

    assert (ended.stdout, ended.stderr, ended.returncode) == ("caught\n", "", 0)


def test_an_interrupt_in_the_last_moments_of_a_call_is_not_lost():
    """The call ends by itself; whoever called still hears of it, at the call or right after."""
    script = """
import os, signal, threading
from arkml import Host
from tests.integration.guest_text import ACTOR
with Host() as host:
    guest = host.load(ACTOR)
    for number in range(30):
        timer = threading.Timer(0.001, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            for _ in range(100):
                guest.call("burn", 1_000_000)
            timer.join()
            raise SystemExit("lost")
        except KeyboardInterrupt:
            pass
        timer.join()
        if guest.failure is not None:
            guest = host.load(ACTOR)
    print(guest.call("answer"))
"""
    run = python(script)

    assert (run.stdout, run.stderr, run.returncode) == ("42\n", "", 0)


def test_a_guest_is_never_stuck_after_many_interrupts():
    """They hit the first and the last instructions of short calls too."""
    script = """
import os, queue, random, signal, threading, time
from arkml import Host
from tests.integration.guest_text import ACTOR

turns = queue.SimpleQueue()  # no lock of it is left taken by an interrupt

def fire():
    chance = random.Random(3)
    while True:
        if not turns.get():
            return
        time.sleep(chance.uniform(0, 0.0005))
        os.kill(os.getpid(), signal.SIGINT)

def wait():  # in the `try` itself Python 3.13 lets interrupts out of a `while` (gh-130279)
    until = time.perf_counter() + 5
    while time.perf_counter() < until:
        guest.call("answer")

with Host() as host:
    guest = host.load(ACTOR)
    thread = threading.Thread(target=fire)
    thread.start()
    caught = 0
    for _ in range(3000):
        try:
            turns.put(True)
            wait()
        except KeyboardInterrupt:
            caught += 1
        if guest.failure is not None:
            guest = host.load(ACTOR)
        assert guest.call("answer") == 42
    turns.put(False)
    thread.join()
print(caught)
"""
    run = python(script)

    assert (run.stdout, run.stderr, run.returncode) == ("3000\n", "", 0)


def test_guests_are_made_and_freed_whole_when_interrupts_hit_that():
    """Memory that was freed twice is noticed at some later time: the process dies of it."""
    script = """
import os, random, signal, sys, threading
from arkml.envs.core.fleet_env import FleetEnv

def wait(fleet, timer):
    timer.start()
    while timer.is_alive():  # in the `try` itself Python 3.13 lets interrupts out of it (gh-130279)
        fleet.reset()
    timer.join()

chance = random.Random(4)
caught = 0
with FleetEnv(sys.argv[1], 8, configure=(1, 1)) as fleet:
    for _ in range(150):
        try:
            after = chance.uniform(0.001, 0.02)
            timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
            wait(fleet, timer)
        except KeyboardInterrupt:
            caught += 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # one that hit a finalizer comes later
    print(fleet.reset().present.all())
print(caught > 100)
"""
    run = python(script, GUESTS / "c_pendulum.wasm")

    assert (run.stdout, run.returncode) == ("True\nTrue\n", 0), run.stderr


def test_an_interrupt_in_the_only_call_is_not_kept_for_a_later_one():
    script = """
import os, signal, threading, time
from arkml import Host
from tests.integration.guest_text import ACTOR
with Host() as host:
    for _ in range(10):
        guest = host.load(ACTOR)
        timer = threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            guest.call("burn", 60_000_000, budget=None)  # about 25 ms
            time.sleep(1)
            raise SystemExit("lost")
        except KeyboardInterrupt:
            pass
        timer.join()
        other = host.load(ACTOR)
        other.call("burn", 100_000_000, budget=None)
print("fine")
"""
    run = python(script)

    assert (run.stdout, run.stderr, run.returncode) == ("fine\n", "", 0)


def test_between_calls_ctrl_c_does_what_it_did_before():
    script = """
import os, signal, sys
from arkml import Host
from tests.integration.guest_text import ACTOR
mine = []
with Host() as host:
    guest = host.load(ACTOR)
    try:
        os.kill(os.getpid(), signal.SIGINT)
        sys.exit("lost")
    except KeyboardInterrupt:
        print("between")
    print(guest.call("answer"))
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
signal.signal(signal.SIGINT, lambda *_: mine.append(1))
with Host() as host:
    guest = host.load(ACTOR)
    os.kill(os.getpid(), signal.SIGINT)
    print(guest.call("answer"), mine)
"""
    run = python(script)

    assert run.stdout.splitlines() == ["between", "42", "True", "42 [1]"]
    assert (run.stderr, run.returncode) == ("", 0)


def test_a_handler_of_the_embedder_hears_the_signal_in_a_call_too():
    """Who replaces SIGINT's handler decides what it means; one that raises ends the call."""
    script = """
import logging, signal
from arkml import Host
from tests.integration.guest_text import ACTOR
from tests.waiting import signal_in_call

class Stop(BaseException):
    pass

def stop(*_):
    raise Stop

logging.disable(logging.CRITICAL)  # submits are refused, and that is told on stderr

signal.signal(signal.SIGINT, stop)
with Host() as host:
    for name in ("spin", "push_for_ever", "submit_for_ever") * 3:
        guest = host.load(ACTOR)
        guest.call("open")
        signal_in_call(guest)
        try:
            guest.call(name, budget=None)
        except Stop:
            print(guest.failure is not None, end=" ")
    print(host.load(ACTOR).call("answer"))
"""
    run = python(script)

    assert run.stdout == "True " * 9 + "42\n"
    assert (run.stderr, run.returncode) == ("", 0)


def test_guests_on_other_threads_do_not_keep_ctrl_c_from_the_main_thread():
    script = """
import os, signal, threading, time
from arkml import Host
from arkml.errors import GuestCancelled
from tests.integration.guest_text import ACTOR
with Host() as host:
    guest = host.load(ACTOR)
    ended = []
    def run():
        try:
            guest.call("spin", budget=None)
        except GuestCancelled:
            ended.append("cancelled")
    thread = threading.Thread(target=run)
    thread.start()
    try:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        time.sleep(3600)
    except KeyboardInterrupt:
        print("interrupted", ended)
    guest.cancel()
    thread.join()
    print(ended)
"""
    run = python(script)

    assert run.stdout.splitlines() == ["interrupted []", "['cancelled']"]
    assert (run.stderr, run.returncode) == ("", 0)


# Other signals, whose handlers raise wherever the program happens to be.

ALARMS = """
import gc, logging, os, random, signal, sys, threading
from pathlib import Path

import numpy as np

from arkml import Host
from arkml.envs.core.fleet_env import FleetEnv
from arkml.envs.core.guest_env import GuestEnv
from arkml.errors import GuestFailed
from tests.integration.guest_text import ACTOR

class Alarm(Exception):
    pass

def ring(*_):
    raise Alarm

signal.signal(signal.SIGALRM, ring)
logging.disable(logging.CRITICAL)
chance = random.Random(5)
gc.disable()  # Python swallows what is raised in callbacks of the collector, and in finalizers

def rung(work):
    try:
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 1e-3))
        for _ in range(10_000):
            work()
    except Alarm:
        return 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return 0

"""


def test_a_guest_whose_call_a_signal_handler_cut_off_is_usable_or_failed():
    """The handler raises before, in and after all code that could end the call."""
    script = """
rings, failed = 0, 0
with Host() as host:
    for _ in range(150):
        guest = host.load(ACTOR)
        rings += rung(lambda: guest.call("answer"))
        try:
            assert guest.call("answer") == 42
        except GuestFailed:
            failed += 1
        guest.close()
    for _ in range(60):
        fleet = host.fleet(ACTOR, instances=4)
        rings += rung(lambda: fleet.call("answer"))
        found = fleet.call("answer")
        assert {42} >= {value for value in found.values if value is not None}
        assert all(isinstance(error, GuestFailed) for error in found.failures.values())
        fleet.close()
    guest = host.load(ACTOR)
    try:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        while True:
            guest.call("answer")
    except KeyboardInterrupt:
        print("Ctrl-C is heard")
print(rings > 150, failed > 0)
"""
    run = python(ALARMS + script)

    assert (run.stdout, run.stderr) == ("Ctrl-C is heard\nTrue True\n", "")


def test_environments_that_a_signal_handler_cut_off_can_be_reset_and_closed():
    script = """
rings, actions = 0, np.zeros((4, 1), np.float32)
with GuestEnv(Path(sys.argv[1]), configure=(1, 1)) as env:
    env.reset()
    for _ in range(60):
        rings += rung(lambda: env.step(actions[:1]))
        env.reset()
        env.step(actions[:1])
with FleetEnv(sys.argv[1], 4, configure=(1, 1)) as fleet:
    before = fleet.reset().observations
    for _ in range(60):
        rings += rung(lambda: fleet.step(actions, before))
        before = fleet.reset().observations
        fleet.step(actions, before)
print(rings > 80)
"""
    run = python(ALARMS + script, GUESTS / "c_pendulum.wasm")

    assert (run.stdout, run.stderr) == ("True\n", "")


@pytest.mark.parametrize("after", [0.02, 0.06, 0.12])
def test_the_first_import_of_a_native_package_is_whole_whatever_a_handler_raises(after):
    script = """
import signal, sys
from arkml import Host
from arkml.errors import ModelRejected

def ring(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
for _ in range(2):
    try:
        from arkml.policies.constant import zeros
        zeros(3, 1)
    except KeyboardInterrupt:
        pass
signal.setitimer(signal.ITIMER_REAL, 0)
print(len(zeros(3, 1)) > 100)
"""
    run = python(script, after)

    assert (run.stdout, run.returncode) == ("True\n", 0), run.stderr


RAISING = """
import faulthandler, gc, linecache, logging, signal, sys

import numpy as np

from arkml import Host
from arkml.errors import GuestFailed
from tests.integration.guest_text import ACTOR, GUESTS

class Stop(Exception):
    pass

def stop(*_):
    raise Stop

signal.signal(signal.SIGUSR1, stop)

def cut_off(work, number, *files):
    \"\"\"Raise at a line of the files by a signal; return None behind the last one.\"\"\"
    left = number

    def line(frame, event, _):
        nonlocal left
        code = frame.f_code
        if event == "line" and not is_no_place(code.co_filename, frame.f_lineno):
            left -= 1
            if not left:
                sys.settrace(None)
                signal.raise_signal(signal.SIGUSR1)
        return line

    def call(frame, event, _):
        # Python drops what is raised in finalizers, and handles signals only where it calls.
        is_of = any(part in frame.f_code.co_filename for part in files)
        return line if is_of and frame.f_code.co_name != "__del__" else None

    sys.settrace(call)
    try:
        work()
    except Stop:
        return "raised"
    finally:
        sys.settrace(None)
    return "lost" if left <= 0 else None

def is_no_place(file, number):
    # What is raised at a `try` in a `with` does not leave the `with`; no handler runs there.
    return linecache.getline(file, number).lstrip().startswith(("with ", "del ", "try:"))

def everywhere(make, work, *files, step=1, then=lambda made: None):
    \"\"\"
    Cut work off in each place, then do something else with what it worked on.

    Return whether there were some, and what came of it.
    \"\"\"
    outcomes = []
    for number in range(1, 100_000, step):
        made = make()
        outcomes.append(cut_off(lambda: work(made), number, *files))
        then(made)
        made.close()
        gc.collect()
        if outcomes[-1] is None:
            return len(outcomes) > 10, set(outcomes[:-1])

faulthandler.enable()
logging.disable(logging.CRITICAL)
"""


def test_a_host_whose_closing_a_signal_handler_cut_off_may_be_closed_again():
    script = """
def loaded():
    host = Host()
    host.load(ACTOR)
    return host

files = ("runtime/engine.py", "runtime/bindings.py", "wasmtime/_managed.py")
print(everywhere(loaded, Host.close, *files))
"""
    run = python(RAISING + script)

    assert (run.stdout, run.returncode) == ("(True, {'raised'})\n", 0), run.stderr


def test_a_round_that_a_signal_handler_cut_off_leaves_the_next_one_its_own_arrays():
    """The call of one guest is kept, and the round of all needs more room than there is."""
    script = """
import numpy as np
from tests.integration.test_native import SPINNER, rounds_of

host = Host(threads=1)

def joined():
    fleet = host.fleet(SPINNER, 3)
    fleet.call("frames", only=[0])
    rounds = rounds_of(fleet)
    rounds.outcomes = np.zeros(1, np.uint8)  # as after a round of 64, of which this is the 65th
    rounds.renew()
    return fleet

def check(fleet):
    lockstep, rounds = fleet._parts.lockstep, rounds_of(fleet)
    assert lockstep._chosen is None or [*lockstep._chosen] == lockstep._chosen_index.tolist()
    assert rounds.is_new or rounds._state.outcomes == rounds.outcomes.ctypes.data
    assert fleet.call("frames", only=[0]).values[0] in {0, None}

files = ("runtime/rounds.py", "runtime/lockstep.py")
print(everywhere(joined, lambda fleet: fleet.call("frames"), *files, then=check))
"""
    run = python(RAISING + script)

    assert (run.stdout, run.returncode) == ("(True, {'raised'})\n", 0), run.stderr


def test_guests_join_a_fleet_after_a_signal_handler_cut_off_a_round():
    script = """
from tests.integration.test_native import SPINNER, always

host = Host(threads=2)

def joined():
    fleet = host.fleet(SPINNER, 3)
    always(fleet)
    return fleet

def join(fleet):
    fleet.join(2)
    assert fleet.update().keys() <= {0, 1, 2}
    assert fleet.call("frames").values[3:] == [1, 1]

print(everywhere(joined, lambda fleet: fleet.update(), "runtime/rounds.py", then=join))
"""
    run = python(RAISING + script)

    assert (run.stdout, run.returncode) == ("(True, {'raised'})\n", 0), run.stderr


def test_a_guest_that_trapped_as_a_signal_handler_raised_runs_no_further():
    script = """
TRAPS = b\"\"\"(module
  (memory (export "memory") 1)
  (global $frames (mut i32) (i32.const 0))
  (func (export "ark_applet_update")
    (global.set $frames (i32.add (global.get $frames) (i32.const 1)))
    (if (i32.eq (global.get $frames) (i32.const 2)) (then unreachable))))\"\"\"

host = Host(threads=1)

def joined():
    fleet = host.fleet(TRAPS, 2)
    fleet.update()
    return fleet

def check(fleet):
    # What was cut off before its frame ran, has it now.
    assert fleet.update().keys() == {0, 1}, [str(one.failure) for one in fleet.guests]

files = ("runtime/rounds.py", "runtime/lockstep.py")
print(everywhere(joined, lambda fleet: fleet.update(), *files, then=check))
"""
    run = python(RAISING + script)

    assert (run.stdout, run.returncode) == ("(True, {'raised'})\n", 0), run.stderr


def test_a_host_closes_after_a_signal_handler_cut_off_a_load():
    script = """
def load(host):
    with host:
        host.load(ACTOR)

print(everywhere(Host, load, "arkml/guests/", "arkml/runtime/", step=7))
"""
    run = python(RAISING + script)

    assert (run.stdout, run.returncode) == ("(True, {'raised'})\n", 0), run.stderr


def test_what_a_signal_handler_raises_in_an_answer_is_not_taken_for_a_bug_of_the_host():
    script = """
PENDULUM = GUESTS / "c_pendulum.wasm"
host = Host(policy=lambda observations: np.zeros((len(observations), 1), np.float32))

def loaded():
    guest = host.load(PENDULUM)
    guest.update()
    return guest

def joined():
    return host.fleet(PENDULUM, 2)

files = ("arkml/guests/", "arkml/runtime/", "arkml/sessions/")
print(everywhere(loaded, lambda guest: guest.update(), *files))
print(everywhere(joined, lambda fleet: fleet.update(), *files, step=3))
"""
    run = python(RAISING + script)

    assert (run.stdout, run.returncode) == ("(True, {'raised'})\n" * 2, 0), run.stderr


def test_a_store_whose_freeing_a_signal_handler_cut_off_is_freed_once():
    script = """
from arkml.runtime import bindings

host, made, deleted = Host(), [], []
bindings.delete_store = deleted.append  # of C, as that function is

def loaded():
    guest = host.load(ACTOR)
    made.append(guest.name)
    return guest

print(everywhere(loaded, lambda guest: guest.close(), "runtime/store.py"))
print(len(deleted) - len(made), len(deleted) - len(set(deleted)))
"""
    run = python(RAISING + script)

    assert (run.stdout, run.returncode) == ("(True, {'raised'})\n0 0\n", 0), run.stderr


CLOSING = """
from arkml.guests.guest import calls_of
from arkml.host import loader_of

PENDULUM = GUESTS / "c_pendulum.wasm"
host = Host(policy=lambda observations: np.zeros((len(observations), 1), np.float32))
files = ("arkml/guests/", "arkml/runtime/", "arkml/sessions/", "arkml/policies/")

def stepped():
    fleet = host.fleet(PENDULUM, 3)
    fleet.update()
    return fleet

def go_on(fleet):
    closed = {i for i, guest in enumerate(fleet.guests) if calls_of(guest).instance.is_closed}
    for number in range(3):  # what runs freed memory does not always crash
        failures = fleet.update()
        assert failures.keys() == (set() if number else closed), (failures, closed)
        assert all(isinstance(error, GuestFailed) for error in failures.values())
    for guest in fleet.guests:
        guest.close()
    assert not loader_of(host)._instances, "a guest was never freed"

"""


@pytest.mark.sweeps
@pytest.mark.parametrize(
    ("work", "step"), [("lambda fleet: fleet.guests[1].close()", 1), ("Fleet.close", 5)]
)
def test_a_fleet_goes_on_without_guests_whose_closing_a_signal_handler_cut_off(work, step):
    """None of them is entered again, wherever that was, and what was not freed is freed later."""
    script = f"""
from arkml.guests.fleet import Fleet
print(everywhere(stepped, {work}, *files, step={step}, then=go_on))
"""
    run = python(RAISING + CLOSING + script)

    assert (run.stdout, run.returncode) == ("(True, {'raised'})\n", 0), run.stderr


def test_a_fleet_that_a_signal_handler_cut_off_after_a_closing_never_enters_the_freed_guest():
    script = """
def closed():
    fleet = stepped()
    fleet.guests[1].close()
    return fleet

def go_on_with_two(fleet):
    for _ in range(3):
        assert fleet.update().keys() <= {1}

print(everywhere(closed, lambda fleet: fleet.update(), "guests/fleet.py", then=go_on_with_two))
"""
    run = python(RAISING + CLOSING + script)

    assert (run.stdout, run.returncode) == ("(True, {'raised'})\n", 0), run.stderr


CHANGING = """
def change_again(fleet):
    assert not fleet.update()
    guests = fleet.guests
    assert {calls_of(guest).instance.state for guest in guests} == {"ready"}
    indices = fleet._parts.lockstep.indices
    assert [indices[calls_of(guest).place] for guest in guests] == [*range(len(fleet))]
    assert len(set(guests)) == len({guest.name for guest in guests}) == len(fleet)
    new = fleet.join(2)
    assert new[0] in fleet.guests and new[1] in fleet.guests
    assert not fleet.update()
    for guest in new:
        guest.update()
    fleet.replace(fleet.guests[0])
    for guest in fleet.guests:
        fleet.remove(guest)
    assert len(fleet) == 0 and not fleet.update()
    gc.collect()  # a new guest that was never in the fleet
    assert not loader_of(host)._instances, "a guest was never freed"

"""


@pytest.mark.sweeps
@pytest.mark.parametrize(
    ("change", "step"),
    [
        ("fleet.remove(fleet.guests[1])", 2),
        ("fleet.replace(fleet.guests[1])", 17),
        ("fleet.join(2)", 29),
    ],
)
def test_a_change_of_a_fleet_that_a_signal_handler_cut_off_is_whole_or_not_made(change, step):
    script = f"""
print(everywhere(stepped, lambda fleet: {change}, *files, step={step}, then=change_again))
"""
    run = python(RAISING + CLOSING + CHANGING + script)

    assert (run.stdout, run.returncode) == ("(True, {'raised'})\n", 0), run.stderr


def test_snapshots_count_for_as_long_as_they_live_whatever_a_signal_handler_cut_off():
    """In the finalizer of a snapshot, in which Python drops what a handler raises, as well."""
    script = """
host, saved = Host(), []

def counted(guest):
    return guest.account.snapshot_bytes

def loaded():
    guest = host.load(GUESTS / "c_applet.wasm")
    guest.update()
    saved[:] = [guest.snapshot()]
    return guest

guest = loaded()
sizes = [0, counted(guest)]
saved.append(guest.snapshot())
sizes.append(counted(guest))  # a model that both have counts once
assert 0 < sizes[1] < sizes[2]

def take_another(guest):
    del saved[:]
    saved.append(guest.snapshot())

def check(guest):
    for _ in range(2 - len(saved)):
        assert counted(guest) == sizes[len(saved)], (counted(guest), len(saved))
        saved.append(guest.snapshot())
    assert counted(guest) == sizes[2]
    saved.clear()
    assert counted(guest) == 0

print(everywhere(loaded, take_another, "guests/snapshot_bytes.py", then=check))
"""
    run = python(RAISING + script)

    assert (run.stdout, run.returncode) == ("(True, {'raised'})\n", 0), run.stderr


def test_what_a_signal_handler_raises_while_a_model_is_loaded_is_no_fault_of_the_model():
    script = """
POLICY = GUESTS / "policies" / "idle.onnx"

def load(host):
    host.load(GUESTS / "c_applet.wasm").update()

files = ("policies/ort.py", "policies/onnx_model.py", "policies/given.py")
print(everywhere(Host, load, *files, step=2))
print(everywhere(Host, lambda _host: Host(policy=POLICY).close(), *files, step=2))
"""
    run = python(RAISING + script)

    assert (run.stdout, run.returncode) == ("(True, {'raised'})\n" * 2, 0), run.stderr


def test_what_a_signal_handler_raises_in_code_of_the_embedder_is_raised_as_it_is():
    """In a policy, in what it returns, in a stream of WASI, in a handler of logs."""
    script = """
from arkml.base.loggers import SafeLogger
from arkml.runtime.wasi.linking import WasiGrant

def ring(*_):
    signal.raise_signal(signal.SIGUSR1)

class Ringing:
    def __array__(self, *_arguments, **_options):
        ring()

class RingingLog(logging.Handler):
    emit = ring

def stops(work):
    try:
        work()
    except Stop:
        return True

PENDULUM, COMMAND = GUESTS / "c_pendulum.wasm", GUESTS / "wasi_command.wasm"
for policy in (ring, lambda _observations: Ringing()):
    with Host(policy=policy) as host:
        guest = host.load(PENDULUM)
        print(stops(guest.update), guest.failure is not None)
with Host(wasi=WasiGrant(stdout=ring)) as host:
    print(stops(host.load(COMMAND).run_command))
logging.disable(logging.NOTSET)
logging.getLogger("ringing").addHandler(RingingLog())
print(stops(lambda: SafeLogger("ringing").warning("a text")))
"""
    run = python(RAISING + script)

    assert (run.stdout, run.returncode) == ("True True\n" * 2 + "True\n" * 2, 0), run.stderr
