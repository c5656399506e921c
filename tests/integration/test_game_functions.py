"""Functions of a game that guests import: what they get, what they return, and how they fail."""

# ruff: noqa: ARG001, ARG005, RUF043  functions take what guests pass; `library` is a way of rounds
import asyncio
import logging
import pickle
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

import gymnasium
import numpy as np
import pytest
from tests.integration.guest_text import (
    ACTIONS,
    FEATURES,
    HANDLE,
    MODEL,
    POINTMASS,
    PUSH,
    ROOT,
    START,
    SUBMIT,
    VALUES,
    data,
    function,
    i32,
    module,
    opening,
)

import arkml
from arkml import CallingGuest, CallingGuests, Memory, game_function
from arkml.errors import (
    GameFunctionFailed,
    GuestBusy,
    GuestTimeout,
    InvalidArguments,
    LinkError,
    UsageError,
)
from arkml.guests.guest import calls_of
from arkml.limits import Limits
from arkml.runtime import native
from arkml.runtime.memory import GuestMemory
from arkml.testing import FakeGame

TYPES = ("i32", "i64", "f32", "f64")


def imported(name, params="", result="", within="env"):
    params = f"(param {params})" if params else ""
    result = f"(result {result})" if result else ""
    return f'(import "{within}" "{name}" (func ${name} {params} {result}))'


def passing(name, params="", result=""):
    """A guest whose export `go` passes its arguments on to the import `name`."""
    count = len(params.split())
    body = " ".join(f"(local.get {place})" for place in range(count))
    given = f"(param {params})" if params else ""
    return module(
        function("go", f"(call ${name} {body})", given, result),
        function("ark_applet_update", ""),
        imports=[imported(name, params, result)],
    )


def framing(params="f32", body="(call $ask (f32.load (i32.const 0)))"):
    """An applet whose frame asks the game and adds the answer to a global, `sum`."""
    return module(
        '(global $sum (export "sum") (mut f32) (f32.const 0))',
        function("ark_applet_update", f"(global.set $sum (f32.add (global.get $sum) {body}))"),
        function("place", "(f32.store (i32.const 0) (local.get 0))", "(param f32)"),
        function("total", "(global.get $sum)", result="f32"),
        imports=[imported("ask", params, "f32")],
    )


@pytest.fixture(params=["native", "python"])
def library(request, monkeypatch):
    """Rounds are made by the native library, or in Python."""
    if request.param == "python":
        monkeypatch.setattr(native, "LIBRARY", None)


def test_numbers_of_all_kinds_go_in_and_out(make_host):
    seen = []

    def f(a: int, b: int, c: float, d: float) -> tuple:
        seen.append((a, b, c, d))
        return b, d, a, c

    guest = make_host(imports={("env", "f"): f}).load(
        passing("f", "i32 i64 f32 f64", "i64 f64 i32 f32")
    )
    assert guest.call("go", -1, -(1 << 63), 0.5, 1e300) == (-(1 << 63), 1e300, -1, 0.5)
    assert guest.call("go", (1 << 32) - 1, 7, np.inf, -0.0) == (7, -0.0, -1, np.inf)
    assert seen[0] == (-1, -(1 << 63), 0.5, 1e300)
    assert seen[1][0] == -1


@pytest.mark.parametrize(
    ("kind", "value", "back"),
    [
        ("i32", (1 << 32) - 1, -1),
        ("i32", 1 << 31, -(1 << 31)),
        ("i64", (1 << 64) - 1, -1),
        ("i32", True, 1),
        ("i32", np.int64(5), 5),
        ("f32", 1, 1.0),
        ("f64", np.float32(0.5), 0.5),
    ],
)
def test_a_result_is_any_number_that_fits(make_host, kind, value, back):
    guest = make_host(imports={("env", "f"): lambda: value}).load(passing("f", "", kind))
    assert guest.call("go") == back


@pytest.mark.parametrize(
    ("result", "value", "text"),
    [
        ("i32", "x", "returned 'x': it takes a number that fits an i32"),
        ("i32", 1.5, "returned 1.5: it takes a number that fits an i32"),
        ("i32", None, "returned None: it takes a number that fits an i32"),
        ("i32", 1 << 32, "returned 4294967296: it takes a number that fits an i32"),
        ("i32", -(1 << 31) - 1, "it takes a number that fits an i32"),
        ("f32", "1.5", "returned '1.5': it takes a number that fits an f32"),
        ("f32", np.complex64(1 + 2j), "it takes a number that fits an f32"),
        ("f64", np.array("1.5"), "it takes a number that fits an f64"),
        ("f64", np.ma.masked, "it takes a number that fits an f64"),
        ("f32", 1e300, "it takes a number that fits an f32"),
        ("", 3, "returned 3: its import has no result"),
        ("i32 i32", 3, "returned 3: it takes a tuple of 2 results"),
        ("i32 i32", (1, 2, 3), "it takes a tuple of 2 results"),
    ],
)
def test_what_the_import_cannot_take_ends_the_guest(make_host, result, value, text):
    host = make_host(imports={("env", "f"): lambda: value})
    guest = host.load(passing("f", "", result), name="npc.wasm")
    with pytest.raises(GameFunctionFailed) as error:
        guest.call("go")
    assert "npc.wasm: the game's function env.f " in str(error.value)
    assert text in str(error.value)
    assert guest.failure is error.value
    assert host.load(passing("f", "", "")).update() is None


def test_a_coroutine_is_refused_early_and_late(make_host, recwarn):
    async def f():
        return 1

    with pytest.raises(UsageError, match=r"imports\[\('env', 'f'\)\] is a coroutine function"):
        arkml.Host(imports={("env", "f"): f})
    guest = make_host(imports={("env", "f"): lambda: f()}).load(passing("f", "", "i32"))
    with pytest.raises(GameFunctionFailed, match="returned <coroutine"):
        guest.call("go")
    assert not [each for each in recwarn if "never awaited" in str(each.message)]


def test_what_it_raises_is_the_cause_and_others_live(make_host, library):
    def ask(caller: CallingGuest, x):
        if caller.index == 2:
            raise KeyError("no such door")
        return x

    fleet = make_host(imports={("env", "ask"): ask}).fleet(framing(), 4)
    failures = fleet.update()
    assert list(failures) == [2]
    assert isinstance(failures[2], GameFunctionFailed)
    assert isinstance(failures[2].__cause__, KeyError)
    assert "#2: the game's function env.ask raised KeyError: 'no such door'" in str(failures[2])
    assert list(fleet.update()) == [2]


def test_a_guest_fails_with_the_error_of_its_function(make_host):
    def f():
        raise ZeroDivisionError

    guest = make_host(imports={("env", "f"): f}).load(passing("f"))
    with pytest.raises(GameFunctionFailed, match="raised ZeroDivisionError$") as error:
        guest.call("go")
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_methods_are_functions_by_their_names(make_host):
    class Game:
        def __init__(self):
            self.total = 0
            self.title = "no function"

        def add(self, number):
            self.total += number

        @game_function(name="sum-up")
        def sum_up(self) -> int:
            return self.total

        def _hidden(self):
            raise AssertionError

    game = Game()
    guest = make_host(imports={"env": game}).load(
        module(
            function(
                "go", "(call $add (i32.const 3)) (call $add (i32.const 4)) (call $s)", result="i32"
            ),
            imports=[
                imported("add", "i32"),
                '(import "env" "sum-up" (func $s (result i32)))',
            ],
        )
    )
    assert guest.call("go") == game.total == 7
    with pytest.raises(LinkError, match=r"env\._hidden"):
        make_host(imports={"env": game}).load(passing("_hidden"))
    with pytest.raises(UsageError, match="is the class Game: give an object of it"):
        arkml.Host(imports={"env": Game})


def test_memory_is_read_and_written_by_unsigned_addresses(make_host):
    kept = []

    def shout(pointer: int, memory: Memory, size: int):
        text = memory.read(pointer, size)
        memory.write(pointer, text.upper())
        kept.append(memory)
        return len(memory)

    guest = make_host(imports={("env", "shout"): shout}).load(
        module(
            data(32, b"hello"),
            function("go", "(call $shout (local.get 0) (local.get 1))", "(param i32 i32)", "i32"),
            imports=[imported("shout", "i32 i32", "i32")],
        )
    )
    assert guest.call("go", 32, 5) == 65536
    assert guest.read_memory(32, 5) == b"HELLO"
    with pytest.raises(InvalidArguments, match="until that returns"):
        kept[0].read(32, 5)
    with pytest.raises(InvalidArguments, match="until that returns"):
        kept[0].write(32, b"x")


@pytest.mark.parametrize("many", [False, True])
def test_a_call_returns_when_no_thread_uses_its_memory(make_host, monkeypatch, many):
    begun, returned, seen = threading.Event(), threading.Event(), []

    def slow(memory, pointer, data):
        begun.set()
        seen.append(returned.wait(0.05))  # for as long as it takes the call to return

    def lend(memory):
        threads.append(threading.Thread(target=memory.write, args=(0, b"text")))
        threads[0].start()
        begun.wait()

    def one(memory: Memory):
        lend(memory)

    @game_function(many=True)
    def several(callers: CallingGuests):
        lend(callers[0].memory)

    threads = []
    monkeypatch.setattr(GuestMemory, "write", slow)
    guest = make_host(imports={("env", "f"): several if many else one}).load(passing("f"))
    guest.call("go")
    returned.set()
    threads[0].join()

    assert seen == [False]


@pytest.mark.parametrize(("pointer", "size"), [(-16, 32), (65530, 7), (0, 65537), (-1, 1)])
def test_an_address_outside_the_memory_ends_that_guest_only(make_host, pointer, size):
    def look(memory: Memory, at, count):
        memory.read(at, count)

    host = make_host(imports={("env", "look"): look})
    guest, other = (host.load(passing("look", "i32 i32")) for _ in range(2))
    with pytest.raises(GameFunctionFailed, match="raised InvalidArguments") as error:
        guest.call("go", pointer, size)
    assert isinstance(error.value.__cause__, InvalidArguments)
    other.call("go", 0, 65536)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 5000, 65535])
def test_a_text_of_c_is_read_up_to_its_end(make_host, size):
    read = []

    def look(memory: Memory, text):
        read.append(memory.read_c_string(text))

    guest = make_host(imports={("env", "look"): look}).load(passing("look", "i32"))
    guest.write_memory(65535 - size, b"x" * size)  # a NUL follows as the last byte
    guest.call("go", 65535 - size)
    assert read == [b"x" * size]


@pytest.mark.parametrize(
    ("pointer", "text", "wanted"),
    [(0, b"x" * 65536, "no end"), (65536, b"", "outside"), (-1, b"", "outside")],
)
def test_a_text_of_c_without_an_end_ends_the_guest(make_host, pointer, text, wanted):
    def look(memory: Memory, at):
        memory.read_c_string(at)

    guest = make_host(imports={("env", "look"): look}).load(passing("look", "i32"))
    guest.write_memory(0, text)
    with pytest.raises(GameFunctionFailed, match="raised InvalidArguments.*" + wanted):
        guest.call("go", pointer)


def test_a_text_of_c_over_the_limit_ends_the_guest(make_host):
    def look(memory: Memory, at):
        memory.read_c_string(at)

    limits = Limits(text_bytes=1000)
    guest = make_host(imports={("env", "look"): look}, limits=limits).load(passing("look", "i32"))
    guest.write_memory(0, b"x" * 1000)
    guest.call("go", 0)
    guest.write_memory(0, b"x" * 1001)
    with pytest.raises(GameFunctionFailed, match="raised TextTooLong.*limit of 1000 bytes"):
        guest.call("go", 0)


def test_a_memory_that_has_grown_is_read_to_its_end(make_host):
    def look(memory: Memory):
        return memory.read(len(memory) - 1, 1)[0] + (len(memory) >> 16)

    guest = make_host(imports={("env", "look"): look}).load(
        module(
            function(
                "go",
                "(drop (memory.grow (i32.const 2)))"
                " (i32.store8 (i32.const 196607) (i32.const 40)) (call $look)",
                result="i32",
            ),
            imports=[imported("look", "", "i32")],
        )
    )
    assert guest.call("go") == 43


def test_callers_are_known_by_their_index_also_after_changes(make_host, library):
    seen = []

    def ask(caller: CallingGuest, x):
        seen.append((caller.index, caller.name))
        return x

    fleet = make_host(imports={("env", "ask"): ask}).fleet(framing(), 3, name="npc")
    fleet.update()
    assert seen == [(0, "npc#0"), (1, "npc#1"), (2, "npc#2")]
    fleet.remove(fleet.guests[0])
    seen.clear()
    fleet.update()
    assert [index for index, _ in seen] == [0, 1]
    fleet.join(2)
    fleet.replace(fleet.guests[1])
    seen.clear()
    fleet.update()
    assert sorted(index for index, _ in seen) == [0, 1, 2, 3]
    assert {name: index for index, name in seen} == {
        guest.name: index for index, guest in enumerate(fleet.guests)
    }


def test_many_guests_of_a_round_are_one_call(make_host, library):
    calls = []

    @game_function(many=True)
    def ask(callers: CallingGuests, x):
        calls.append((callers.indices.tolist(), x.dtype, len(callers)))
        return x * 2 + callers.indices

    fleet = make_host(imports={("env", "ask"): ask}).fleet(framing(), 100)
    for index, guest in enumerate(fleet.guests):
        guest.call("place", index / 4)
    for _ in range(3):
        assert fleet.update() == {}
    assert calls == [(list(range(100)), np.float32, 100)] * 3
    expected = [3 * (index / 2 + index) for index in range(100)]
    assert fleet.call("total").values == expected
    fleet.update()
    assert fleet.guests[7].call("total") == 4 * (3.5 + 7)
    calls.clear()
    fleet.guests[9].update()
    assert calls == [([9], np.float32, 1)]


def test_many_guests_with_numbers_of_all_kinds(make_host, library):
    @game_function(many=True)
    def f(a, b, c, d):
        assert [each.dtype for each in (a, b, c, d)] == [np.int32, np.int64, np.float32, np.float64]
        return b, d, a, c

    guest = passing("f", "i32 i64 f32 f64", "i64 f64 i32 f32")
    fleet = make_host(imports={("env", "f"): f}).fleet(guest, 5)
    result = fleet.call("go", -1, -(1 << 63), 0.5, 1e300)
    assert result.values == [(-(1 << 63), 1e300, -1, 0.5)] * 5


def test_several_functions_and_submits_in_one_frame_keep_apart(make_host, library):
    """Guests ask different functions, some twice, and each gets its own answers."""
    calls = []

    @game_function(many=True)
    def twice(callers: CallingGuests, x):
        calls.append(("twice", callers.indices.tolist()))
        return 2 * x

    def once(caller: CallingGuest, x):
        calls.append(("once", caller.index))
        return x + 1

    guest = module(
        "(global $n (mut i32) (i32.const 0)) (global $r (mut i32) (i32.const 0))",
        function("set", "(global.set $n (local.get 0))", "(param i32)"),
        function("result", "(global.get $r)", result="i32"),
        function(
            "ark_applet_update",
            "(global.set $r (call $once (call $twice (global.get $n))))"
            "(if (i32.rem_s (global.get $n) (i32.const 2))"
            " (then (global.set $r (call $twice (global.get $r)))))",
        ),
        imports=[imported("twice", "i32", "i32"), imported("once", "i32", "i32")],
    )
    fleet = make_host(imports={("env", "twice"): twice, ("env", "once"): once}).fleet(guest, 6)
    for index, one in enumerate(fleet.guests):
        one.call("set", index)
    assert fleet.update() == {}
    assert fleet.call("result").values == [1, 6, 5, 14, 9, 22]
    assert calls[0] == ("twice", [0, 1, 2, 3, 4, 5])
    assert calls[-1] == ("twice", [1, 3, 5])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.zeros(2), "an array of 3 numbers"),
        (np.zeros((3, 1)), "an array of 3 numbers"),
        (1.0, "returned 1.0: a function that takes many returns an array of 3 numbers"),
        (None, "returned None"),
        (np.array(["a", "b", "c"]), "an array of 3 numbers"),
        (np.array([None] * 3), "an array of 3 numbers"),
    ],
)
def test_wrong_arrays_end_the_guests_that_called(make_host, library, value, text):
    @game_function(many=True)
    def ask(x):
        return value

    host = make_host(imports={("env", "ask"): ask})
    fleet = host.fleet(framing(), 3)
    failures = fleet.update()
    assert list(failures) == [0, 1, 2]
    assert all(text in str(error) for error in failures.values())
    assert len({str(error) for error in failures.values()}) == 3  # each names its guest


@pytest.mark.parametrize("value", [[0.5] * 3, [1 << 32] * 3, [-(1 << 31) - 1, 0, 0]])
def test_whole_numbers_of_many_must_fit(make_host, library, value):
    @game_function(many=True)
    def f():
        return np.array(value)

    fleet = make_host(imports={("env", "f"): f}).fleet(passing("f", "", "i32"), 3)
    assert all("do not fit an i32" in str(e) for e in fleet.call("go").failures.values())


def test_what_a_function_of_many_raises_ends_its_callers_only(make_host, library):
    @game_function(many=True)
    def ask(x):
        raise RuntimeError("no physics")

    guest = module(
        "(global $asks (mut i32) (i32.const 0))",
        function("asks", "(global.set $asks (i32.const 1))"),
        function(
            "ark_applet_update", "(if (global.get $asks) (then (drop (call $ask (f32.const 0)))))"
        ),
        imports=[imported("ask", "f32", "f32")],
    )
    fleet = make_host(imports={("env", "ask"): ask}).fleet(guest, 4)
    fleet.call("asks", only=[1, 3])
    failures = fleet.update()
    assert list(failures) == [1, 3]
    assert all(isinstance(error.__cause__, RuntimeError) for error in failures.values())


def test_memories_of_many(make_host, library):
    kept = []

    @game_function(many=True)
    def ask(callers: CallingGuests, x):
        kept.append(callers[0].memory)
        for caller in callers:
            caller.memory.write(4, bytes([caller.index]))
        return x

    fleet = make_host(imports={("env", "ask"): ask}).fleet(framing(), 5)
    fleet.update()
    assert [guest.read_memory(4, 1)[0] for guest in fleet.guests] == [0, 1, 2, 3, 4]
    with pytest.raises(InvalidArguments, match="until that returns"):
        kept[0].read(0, 1)


def test_the_host_cannot_be_called_again_for_the_same_guest(make_host):
    guests = []

    def f():
        guests[0].update()

    guests.append(make_host(imports={("env", "f"): f}).load(passing("f")))
    with pytest.raises(GameFunctionFailed, match="raised GuestBusy") as error:
        guests[0].call("go")
    assert isinstance(error.value.__cause__, GuestBusy)


def test_another_guest_may_be_called_by_a_function(make_host):
    others = []
    host = make_host(imports={("env", "f"): lambda: others[0].call("answer")})
    others.append(host.load(module(function("answer", "(i32.const 42)", result="i32"))))
    assert host.load(passing("f", "", "i32")).call("go") == 42


@pytest.mark.parametrize("many", [False, True])
def test_neither_fleet_nor_host_is_changed_within_a_function(make_host, many):
    refused = []

    @game_function(many=many)
    def ask(x):
        changes = (
            fleet.close,
            fleet.join,
            host.close,
            fleet.guests[0].close,
            lambda: fleet.remove(fleet.guests[1]),
            lambda: fleet.replace(fleet.guests[1]),
            lambda: fleet.guests[0].read_memory(0, 1),
        )
        for change in changes:
            with pytest.raises(GuestBusy):
                change()
            refused.append(change)
        return x

    host = make_host(imports={("env", "ask"): ask})
    fleet = host.fleet(framing(), 2)
    assert fleet.update() == {}
    assert len(refused) == 7 * (1 if many else 2)
    assert len(fleet) == 2


def test_its_time_is_charged_to_the_guest_by_kind(make_host):
    def busy():
        end = time.process_time() + 0.02
        while time.process_time() < end:
            pass

    guest = make_host(imports={("env", "f"): busy}).load(passing("f"))
    guest.call("go")
    account = guest.account
    assert 0.01 < account.function_seconds < account.run_seconds
    assert account.import_seconds == 0


def test_a_function_that_is_busy_uses_up_the_budget(make_host):
    def busy():
        end = time.process_time() + 0.02
        while time.process_time() < end:
            pass

    host = make_host(imports={("env", "f"): busy})
    text = "(loop $again (call $f) (br $again))"
    guest = host.load(module(function("go", text), imports=[imported("f")]))
    with pytest.raises(GuestTimeout, match=r"over its budget of 0\.1 s"):
        guest.call("go", budget=0.1)


def test_a_function_that_blocks_counts_as_a_wait(make_host):
    host = make_host(
        imports={("env", "f"): lambda: time.sleep(0.05)}, limits=Limits(call_seconds=0.3)
    )
    text = "(loop $again (call $f) (br $again))"
    guest = host.load(module(function("go", text), imports=[imported("f")]))
    with pytest.raises(GuestTimeout, match=r"Limits\.call_seconds"):
        guest.call("go")
    assert guest.account.function_seconds < 0.2


def test_a_function_of_many_that_blocks_ends_the_frame_of_its_callers(make_host, library):
    @game_function(many=True)
    def ask(x):
        time.sleep(0.05)
        return x

    limits = Limits(call_seconds=0.1)
    text = "(loop $again (drop (call $ask (f32.const 0))) (br $again))"
    guest = module(function("ark_applet_update", text), imports=[imported("ask", "f32", "f32")])
    fleet = make_host(imports={("env", "ask"): ask}, limits=limits).fleet(guest, 3)
    failures = fleet.update()
    assert list(failures) == [0, 1, 2]
    assert all(isinstance(error, GuestTimeout) for error in failures.values())


def test_the_time_of_many_is_shared_out(make_host, library):
    @game_function(many=True)
    def ask(x):
        end = time.process_time() + 0.04
        while time.process_time() < end:
            pass
        return x

    fleet = make_host(imports={("env", "ask"): ask}).fleet(framing(), 4)
    fleet.update()
    shares = [guest.account.function_seconds for guest in fleet.guests]
    assert len(set(shares)) == 1
    assert 0.02 < sum(shares) == pytest.approx(fleet.account.function_seconds)


def test_calls_await_others_beside_functions(make_host):
    async def both(guests):
        await asyncio.gather(*(guest.call_async("go") for guest in guests))

    calls = []
    host = make_host(imports={("env", "f"): lambda: calls.append(1)})
    asyncio.run(both([host.load(passing("f")) for _ in range(3)]))
    assert len(calls) == 3


def test_initializers_may_call_functions(make_host):
    calls = []
    host = make_host(imports={("env", "f"): lambda: calls.append(1)})
    guest = module(function("_initialize", "(call $f)"), imports=[imported("f")])
    host.fleet(guest, 3)
    host.load(guest)
    assert len(calls) == 4


@pytest.mark.parametrize(
    ("given", "params", "text"),
    [
        (lambda x, y: None, "i32", r"with 1 parameters: the game's function takes 2 numbers"),
        (lambda: None, "i32 f32", r"with 2 parameters: the game's function takes 0 numbers"),
        (lambda x, *, size: None, "i32", r"needs 'size' by name"),
    ],
)
def test_a_function_that_cannot_take_the_numbers_is_refused_at_load(make_host, given, params, text):
    host = make_host(imports={("env", "f"): given})
    with pytest.raises(LinkError, match=text):
        host.load(passing("f", params), name="npc.wasm")


def _of_memories(memory: Memory, x):
    return x


def _of_one(caller: CallingGuest, x):
    return x


def _of_many(callers: "arkml.CallingGuests", x):
    return x


@pytest.mark.parametrize(
    ("given", "many", "text"),
    [
        (_of_memories, True, "'memory' annotated with Memory, and takes many guests at once:"
         " annotate it with arkml.CallingGuests, each of which has a memory"),
        (_of_one, True, "'caller' annotated with CallingGuest, and takes many guests at once"),
        (_of_many, False, "'callers' annotated with CallingGuests, and takes one guest: annotate it"
         " with arkml.CallingGuest, or declare the function with arkml.game_function(many=True)"),
    ],
)  # fmt: skip
def test_annotations_of_the_other_kind_of_function_are_refused(make_host, given, many, text):
    function = game_function(many=many)(given)
    host = make_host(imports={("env", "f"): function})
    with pytest.raises(LinkError, match=re.escape(text)):
        host.load(passing("f", "i32", "i32"))


def test_annotations_that_contradict_the_import_are_refused(make_host):
    def f(x: float, y: int) -> float:
        return 0.0

    host = make_host(imports={("env", "f"): f})
    with pytest.raises(LinkError, match="'x' annotated with float"):
        host.load(passing("f", "i32 i32", "f32"))
    with pytest.raises(LinkError, match="'y' annotated with int"):
        host.load(passing("f", "f32 f64", "f32"))
    with pytest.raises(LinkError, match="its result annotated with float"):
        host.load(passing("f", "f32 i64", "i32"))
    host.load(passing("f", "f64 i64", "f32"))


def test_defaults_and_any_number_of_parameters_are_taken(make_host):
    host = make_host(imports={("env", "f"): lambda x, y=5: x + y, ("env", "g"): max})
    assert host.load(passing("f", "i32", "i32")).call("go", 2) == 7
    assert host.load(passing("f", "i32 i32", "i32")).call("go", 2, 3) == 5
    assert host.load(passing("g", "i32 i32", "i32")).call("go", 2, 3) == 3


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            "(func (param externref))",
            "a game's function takes and returns numbers, and no externref",
        ),
        ("(func (result v128))", "and no v128"),
        (f"(func (param {' i32' * 17}))", "up to 16 parameters and results"),
        ("(global i32)", "a game gives functions only"),
        ("(table 1 funcref)", "a game gives functions only"),
    ],
)
def test_imports_that_no_function_can_be(make_host, kind, text):
    host = make_host(imports={("env", "f"): lambda *numbers: 0})
    with pytest.raises(LinkError, match=r"env\.f") as error:
        host.load(module(imports=[f'(import "env" "f" {kind})']))
    assert text in str(error.value)


def test_one_name_with_two_types_is_refused(make_host):
    host = make_host(imports={("env", "f"): lambda *numbers: None})
    two = ['(import "env" "f" (func (param i32)))', '(import "env" "f" (func (param f32)))']
    with pytest.raises(LinkError, match=r"one function of the game, and the module imports it as"):
        host.load(module(imports=two))
    host.load(module(imports=[two[0], two[0]]))


def test_sixteen_numbers_each_way(make_host):
    kinds = " ".join(TYPES * 4)
    host = make_host(imports={("env", "f"): lambda *numbers: numbers})
    numbers = tuple(range(1, 17))
    assert host.load(passing("f", kinds, kinds)).call("go", *numbers) == numbers


def test_the_game_comes_before_what_compilers_import(make_host):
    """WASM-4's console has a function env.trace, as AssemblyScript does, of another type."""
    seen = []
    guest = passing("trace", "i32")
    with pytest.raises(LinkError, match=r"env\.trace"):
        make_host().load(guest)
    make_host(imports={("env", "trace"): seen.append}).load(guest).call("go", 3)
    assert seen == [3]


@pytest.mark.parametrize("within", ["ark-core-v3", "arkml", "wasi_snapshot_preview1", "ark-ml-v9"])
def test_functions_of_the_host_are_not_the_games(within):
    with pytest.raises(UsageError, match=f"functions of {within} are the host's own"):
        arkml.Host(imports={(within, "f"): print})


@pytest.mark.parametrize(
    ("imports", "text"),
    [
        (3, "imports is 3: it takes functions by module and name"),
        ([print], "it takes functions by module and name"),
        ({("env",): print}, r"imports has the key \('env',\): it takes a module and a name"),
        ({3: print}, "imports has the key 3"),
        ({("env", "f"): 3}, r"imports\[\('env', 'f'\)\] is 3: it takes a function"),
        ({"env": None}, r"imports\['env'\] is None: it has no public methods"),
        ("mygame", "imports is 'mygame': it takes MODULE:NAME"),
        ("no_such_game:functions", "imports no_such_game:functions cannot be found: No module"),
        ("math:tau", "math:tau is 6.28"),
    ],
)
def test_imports_that_make_no_sense(imports, text):
    with pytest.raises(UsageError, match=text):
        arkml.Host(imports=imports)


@pytest.mark.parametrize("wrong", [{"many": 1}, {"name": 3}])
def test_declarations_that_make_no_sense(wrong):
    with pytest.raises(UsageError, match="it takes"):
        game_function(**wrong)


def test_a_name_that_nobody_imports_is_told_once(make_host, caplog):
    imports = {("env", "raycasts"): print, ("env", "f"): lambda: None}
    host = make_host(imports=imports)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            host.load(passing("f"), name="npc.wasm")
            host.load(passing("f", "", ""), name="other.wasm")
    told = [record.message for record in caplog.records if "raycasts" in record.message]
    assert told == ["npc.wasm: the game's function env.raycasts is imported by nobody"]


def test_a_missing_import_names_the_way_out(host):
    with pytest.raises(LinkError) as error:
        host.load(passing("raycast", "f32", "f32"))
    assert "Host(imports={('env', 'raycast'): f}), --imports" in str(error.value)


def test_hosts_keep_their_functions_apart(make_host):
    """The compiled module is shared, the functions are not."""
    guest = passing("f", "", "i32")
    one, two = (make_host(imports={("env", "f"): lambda n=n: n}) for n in (1, 2))
    assert [host.load(guest).call("go") for host in (one, two, one)] == [1, 2, 1]
    with pytest.raises(LinkError):
        make_host().load(guest)


ASKING = module(
    data(MODEL, POINTMASS),
    opening("open", MODEL, len(POINTMASS), HANDLE),
    function(
        "ark_applet_update",
        f"""(if (i64.eqz (i64.load {i32(HANDLE)})) (then (drop (call $open))))
        (f32.store {i32(FEATURES)} (call $ask (f32.load {i32(ACTIONS)})))
        (drop (call ${PUSH} (i64.load {i32(HANDLE)}) (i64.const 1) {i32(0)} (f32.const 0.5)
          {i32(FEATURES)} {i32(2)} (f32.const 0)))
        (drop (call ${SUBMIT} (i64.load {i32(HANDLE)}) {i32(ACTIONS)} {i32(1)} {i32(VALUES)}
          {i32(1)}))""",
    ),
    uses=(START, PUSH, SUBMIT),
    imports=[imported("ask", "f32", "f32")],
    memory='(memory (export "memory") 4)',
)
"""An applet whose first feature is the game's answer to its last action."""


def triple(x):
    return 3 * x


@pytest.mark.parametrize("imports", [{("env", "ask"): triple}, f"{__name__}:TRIPLE"])
def test_environments_take_them(imports, monkeypatch):
    from arkml.envs.gymnasium_env import GuestGymEnv

    monkeypatch.chdir(ROOT)
    with pytest.raises(UsageError, match="imports= is for an environment's own host"):
        GuestGymEnv(ASKING, host=(host := arkml.Host()), imports=imports)
    host.close()
    env = GuestGymEnv(ASKING, inference=True, imports=imports)
    assert isinstance(env, gymnasium.Env)
    assert env.reset(seed=1)[0][0] == 0
    assert [env.step(np.float32([x]))[0][0] for x in (0.5, -1.0)] == [1.5, -3.0]
    again = pickle.loads(pickle.dumps(env))
    again.reset(seed=1)
    assert again.step(np.float32([0.25]))[0][0] == 0.75
    env.close()
    again.close()
    envs = gymnasium.make_vec(
        "arkml.envs.gym:arkml/Guest-v0",
        3,
        module=ASKING,
        inference=True,
        per="guest",
        imports=imports,
    )
    envs.reset(seed=1)
    actions = np.float32([[0.25], [0.5], [1]])
    assert envs.step(actions)[0][:, 0].tolist() == [0.75, 1.5, 3]
    assert envs.step(-actions)[0][:, 0].tolist() == [-0.75, -1.5, -3]
    envs.close()


TRIPLE = {("env", "ask"): triple}


def test_a_game_is_found_by_its_place(tmp_path, monkeypatch):
    (tmp_path / "mygame_of_test.py").write_text("functions = {('env', 'f'): lambda x: x + 1}\n")
    guest = tmp_path / "npc.wasm"
    guest.write_bytes(
        module(
            function("ark_applet_update", "(drop (call $f (i32.const 1)))"),
            imports=[imported("f", "i32", "i32")],
        )
    )
    command = [sys.executable, "-m", "arkml", "run", guest, "--frames", "3"]
    for words, status in ((["--imports", "mygame_of_test:functions"], 0), ([], 2)):
        done = subprocess.run(
            [*command, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == status, done.stderr
    assert "--imports" in done.stderr
    monkeypatch.chdir(tmp_path)
    with arkml.Host(imports="mygame_of_test:functions") as host:
        host.load(guest).update()
    assert str(tmp_path) not in sys.path


def test_fake_game_records_and_answers(make_host):
    guest = passing("f", "i32 f64", "f32 i64")
    game = FakeGame(guest, {("env", "f"): (0.5, 7)})
    loaded = make_host(imports=game).load(guest)
    assert loaded.call("go", 3, 1.5) == (0.5, 7)
    assert game.calls == [("env", "f", (3, 1.5))]
    game.answers["env", "f"] = (1.0, -1)
    assert loaded.call("go", 3, 1.5) == (1.0, -1)
    assert make_host(imports=FakeGame(guest)).load(guest).call("go", 3, 1.5) == (0.0, 0)
    with pytest.raises(UsageError, match=r"imports no function .*'g'.* of a game, but env\.f"):
        FakeGame(guest, {("env", "g"): 1})


def test_functions_in_hundreds_of_frames_of_guests_that_come_and_go(make_host, library):
    """A plain model of the same fleet gives the same sums."""

    @dataclass
    class Model:
        x: float
        total: float = 0.0

    @game_function(many=True)
    def ask(callers: CallingGuests, x):
        assert len(set(callers.indices.tolist())) == len(callers)
        return x + callers.indices

    random = np.random.default_rng(3)
    fleet = make_host(imports={("env", "ask"): ask}).fleet(framing(), 8)
    models = [Model(0.0) for _ in range(8)]
    for _ in range(300):
        choice, index = random.integers(10), int(random.integers(len(models)))
        if choice == 0 and len(models) < 12:
            fleet.join()
            models.append(Model(0.0))
        elif choice == 1 and len(models) > 2:
            fleet.remove(fleet.guests[index])
            del models[index]
        elif choice == 2:
            fleet.replace(fleet.guests[index])
            models[index] = Model(0.0)
        elif choice == 3:
            models[index].x = float(random.integers(100))
            fleet.guests[index].call("place", models[index].x)
        assert fleet.update() == {}
        for place, model in enumerate(models):
            model.total += model.x + place
        assert fleet.call("total").values == [model.total for model in models]


def test_the_frame_of_a_caller_is_not_run_ahead(make_host):
    """Functions are asked in each frame, also where frames need no policy."""
    calls = []
    host = make_host(imports={("env", "ask"): lambda x: calls.append(x) or 0.0})
    guest = host.load(framing())
    for _ in range(5):
        guest.update()
    assert len(calls) == 5
    assert calls_of(guest).account.used >= 0


def test_functions_by_name_within_a_module_are_refused_as_a_mapping():
    with pytest.raises(UsageError) as error:
        arkml.Host(imports={"env": {"ask": len}})
    assert str(error.value) == (
        "imports['env'] is a mapping: give each of its functions by module and name, as"
        " {('env', 'ask'): f}"
    )


def test_properties_of_an_object_are_left_alone(make_host):
    class Game:
        @property
        def world(self):
            raise RuntimeError("there is no world yet")

        def f(self, x: int) -> int:
            return x + 1

    guest = make_host(imports={"env": Game()}).load(passing("f", "i32", "i32"))
    assert guest.call("go", 1) == 2


@pytest.mark.parametrize("function", ["".join, len])
def test_what_takes_no_declaration_is_refused(function):
    with pytest.raises(UsageError, match="declare a function of your own that calls it"):
        game_function(many=True)(function)
