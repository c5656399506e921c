"""A rebuilt module takes over between two calls, with the state of the one before."""

import gc
import logging
from pathlib import Path

import pytest
from tests.integration.guest_text import ACTOR, ROOT, data, function, i32, module

from arkml import Host, Reloaded
from arkml.envs.core.guest_env import GuestEnv
from arkml.errors import (
    EntryPointMissing,
    GuestBusy,
    GuestFailed,
    GuestTrap,
    InstanceLimitExceeded,
    LinkError,
    ModuleRejected,
    ReloadUndone,
    UsageError,
)
from arkml.runtime.sandbox import Sandbox

GUESTS = ROOT / "fixtures" / "guests"


def counting(step, extra="", text=b"orc"):
    """An applet that adds to a number in memory and to a global in each frame."""
    return module(
        data(64, text),
        "(global $frames (mut i32) (i32.const 0))",
        function(
            "ark_applet_update",
            f"(i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) {i32(step)}))"
            f"(global.set $frames (i32.add (global.get $frames) {i32(1)})) {extra}",
        ),
        function("sum", "(i32.load (i32.const 0))", result="i32"),
        function("frames", "(global.get $frames)", result="i32"),
    )


STARTS_TO_FAIL = module(
    "(func $begin unreachable) (start $begin)",
    function("ark_applet_update", ""),
    function("sum", i32(0), result="i32"),
)


def failing_from(frame):
    return counting(5, f"(if (i32.ge_s (global.get $frames) {i32(frame)}) (then unreachable))")


def persisting(step):
    """An applet that hands its state over by itself: a number in other places of its memory."""
    place = 128 * step
    return module(
        "(global $top (mut i32) (i32.const 4096))",
        function("ark_alloc", "(global.get $top)", "(param i32 i32)", "i32"),
        function("ark_free", "", "(param i32 i32 i32)"),
        function(
            "ark_applet_update",
            f"(i32.store {i32(place)} (i32.add (i32.load {i32(place)}) {i32(step)}))",
        ),
        function("sum", f"(i32.load {i32(place)})", result="i32"),
        function(
            "ark_state_persist",
            f"(call $ark-core-v0.core__return_slice {i32(place)} {i32(4)} {i32(1)})",
            result="i32",
        ),
        function(
            "ark_state_restore",
            f"(i32.store {i32(place)} (i32.load (local.get 0))) {i32(0)}",
            "(param i32 i32)",
            "i32",
        ),
        uses=("ark-core-v0.core__return_slice",),
    )


def updated(guest, frames):
    for _ in range(frames):
        guest.update()
    return guest


def test_code_alone_changes_and_the_state_stays(host):
    guest = updated(host.load(counting(1), name="orc"), 3)
    guest.write_memory(100, b"kept")
    assert guest.reload(counting(10)) is Reloaded.KEPT
    updated(guest, 2)
    assert (guest.call("sum"), guest.call("frames")) == (23, 5)
    assert guest.read_memory(100, 4) == b"kept"
    assert guest.module.digest == host.compile(counting(10)).digest


def test_sessions_and_handles_stay_with_the_memory(host):
    guest = host.load(ACTOR, name="actor")
    assert guest.call("open") == 0
    assert guest.call("step", 2) == 0
    again = ACTOR.replace(b'(export "answer")', b'(export "answer") ;; rebuilt\n')
    assert guest.reload(again) is Reloaded.KEPT
    other = ACTOR.replace(b"(i32.const 42)", b"(i32.const 43)")
    assert guest.reload(other) is Reloaded.KEPT
    assert guest.call("answer") == 43
    assert guest.call("step", 2) == 0
    assert guest.call("close") == 0
    assert guest.live_handles == 0


def test_other_data_begins_anew(host):
    guest = updated(host.load(counting(1)), 3)
    assert guest.reload(counting(10, text=b"elf")) is Reloaded.ANEW
    updated(guest, 2)
    assert (guest.call("sum"), guest.call("frames")) == (20, 2)


def test_the_guests_own_functions_hand_the_state_over(host):
    guest = updated(host.load(persisting(1)), 3)
    assert guest.reload(persisting(2)) is Reloaded.HANDED_OVER
    updated(guest, 2)
    assert guest.call("sum") == 7


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (b"\0asm no module", ModuleRejected),
        (module(imports=['(import "env" "gone" (func))']), LinkError),
        (STARTS_TO_FAIL, GuestTrap),
    ],
)
def test_a_module_that_is_refused_leaves_the_guest_alone(host, bad, error):
    guest = updated(host.load(counting(1)), 3)
    with pytest.raises(error):
        guest.reload(bad)
    updated(guest, 1)
    assert guest.call("sum") == 4


@pytest.mark.parametrize("frames", [0, 3])
def test_a_module_that_fails_at_once_is_undone_with_the_state_of_before(host, frames):
    guest = updated(host.load(counting(1), name="orc"), 2)
    assert guest.reload(failing_from(2 + 1 + frames)) is Reloaded.KEPT
    updated(guest, frames)
    with pytest.raises(ReloadUndone, match="orc failed right after a reload") as error:
        guest.update()
    assert isinstance(error.value.__cause__, GuestTrap)
    assert guest.failure is None
    assert (guest.call("sum"), guest.call("frames")) == (2, 2)
    updated(guest, 20)
    assert guest.call("sum") == 22


def test_one_that_began_anew_is_undone_too(host):
    guest = updated(host.load(counting(1)), 2)
    anew = counting(5, "unreachable", text=b"elf")
    assert guest.reload(anew) is Reloaded.ANEW
    with pytest.raises(ReloadUndone):
        guest.update()
    assert updated(guest, 1).call("sum") == 3


@pytest.mark.parametrize("text", [b"elf", b"orc"])
def test_a_guest_is_not_reloaded_while_its_memory_is_viewed(host, text):
    guest, fleet = updated(host.load(counting(1)), 3), host.fleet(counting(1), 3)
    fleet.update()
    with guest.memory() as view, fleet.guests[1].memory():
        for one in (guest, fleet):
            with pytest.raises(GuestBusy, match=r"a view of the memory of .* is in use"):
                one.reload(counting(10, text=text))
        assert (updated(guest, 1).call("sum"), view[0]) == (4, 4)
        assert fleet.update() == {}
    assert fleet.call("sum").values == [2, 2, 2]
    way = guest.reload(counting(10, text=text))
    assert fleet.reload(counting(10, text=text)) is way


def test_a_reload_is_undone_while_the_memory_of_the_new_module_is_viewed(host):
    anew = counting(5, "unreachable", text=b"elf")
    guest, fleet = updated(host.load(counting(1)), 2), host.fleet(counting(1), 3)
    fleet.update()
    used = host.account.total_bytes
    assert guest.reload(anew) is fleet.reload(anew) is Reloaded.ANEW
    with guest.memory() as view, fleet.guests[0].memory():
        with pytest.raises(ReloadUndone):
            guest.update()
        assert list(fleet.update()) == [0, 1, 2]
        assert view[0] == 5  # the view is still of the module that was given up
        assert updated(guest, 1).call("sum") == 3
        assert fleet.update() == {}
    assert fleet.call("sum").values == [2, 2, 2]
    gc.collect()
    assert host.account.total_bytes == used


def test_an_error_in_a_block_is_not_replaced_by_that_of_its_end():
    kept = []

    def play():
        with Host() as host:
            kept.append(host)
            guest = host.load(counting(1))
            with guest.memory() as view:
                kept.append(view[:8])
                raise RuntimeError("my own")

    with pytest.raises(RuntimeError, match="my own") as raised:
        play()
    (note,) = raised.value.__notes__
    assert "a view of the memory of guest is in use" in note
    host = kept[0]
    kept.clear()
    del raised
    gc.collect()
    host.close()


def test_after_the_first_calls_a_failure_is_a_failure(host):
    guest = updated(host.load(counting(1)), 2)
    guest.reload(failing_from(2 + 11))
    updated(guest, 10)
    with pytest.raises(GuestTrap):
        guest.update()
    assert isinstance(guest.failure, GuestTrap)


def test_reloads_in_a_row_and_memory_that_grew(host):
    grown = "(drop (memory.grow (i32.const 1)))"
    guest = updated(host.load(counting(1, grown)), 2)
    pages = len(guest.snapshot().state.wasm.memory) >> 16
    for step in (2, 3, 4):
        assert guest.reload(counting(step)) is Reloaded.KEPT
        guest.update()
    assert guest.call("sum") == 2 + 2 + 3 + 4
    assert len(guest.snapshot().state.wasm.memory) >> 16 == pages == 3


def test_a_snapshot_of_the_module_before_is_refused(host):
    guest = updated(host.load(counting(1)), 1)
    saved = guest.snapshot()
    guest.reload(counting(2))
    with pytest.raises(Exception, match="whose module has the digest"):
        guest.restore(saved)


def test_a_fleet_changes_as_a_whole_and_new_guests_have_the_new_module(host):
    fleet = host.fleet(counting(1), 4)
    for _ in range(3):
        assert fleet.update() == {}
    assert fleet.reload(counting(10)) is Reloaded.KEPT
    assert fleet.update() == {}
    assert fleet.call("sum").values == [13] * 4
    fleet.join()
    fleet.replace(fleet.guests[0])
    assert fleet.update() == {}
    assert fleet.call("sum").values == [10, 23, 23, 23, 10]


def test_a_fleet_goes_back_as_a_whole(host, caplog):
    fleet = host.fleet(counting(1), 3)
    fleet.guests[1].write_memory(0, (100).to_bytes(4, "little"))
    for _ in range(2):
        fleet.update()
    bad = counting(5, "(if (i32.gt_s (i32.load (i32.const 0)) (i32.const 100)) (then unreachable))")
    assert fleet.reload(bad) is Reloaded.KEPT
    with caplog.at_level(logging.WARNING):
        failures = fleet.update()
    assert list(failures) == [1]
    assert "all go on with the module before" in caplog.text
    assert fleet.call("sum").values == [2, 102, 2]
    for _ in range(20):
        assert fleet.update() == {}
    assert fleet.call("sum").values == [22, 122, 22]


def test_a_fleet_that_began_anew_goes_on_and_goes_back(host):
    fleet = host.fleet(counting(1), 3)
    fleet.update()
    assert fleet.reload(counting(2, text=b"elf")) is Reloaded.ANEW
    for _ in range(15):
        assert fleet.update() == {}
    assert fleet.call("sum").values == [30] * 3
    assert fleet.reload(counting(2, "unreachable", text=b"bad")) is Reloaded.ANEW
    assert list(fleet.update()) == [0, 1, 2]
    assert fleet.update() == {}
    assert fleet.call("sum").values == [32] * 3


@pytest.mark.parametrize("text", [b"elf", b"orc"])
def test_a_fleet_is_reloaded_again_in_its_first_calls(host, text):
    fleet = host.fleet(counting(1), 3)
    fleet.reload(counting(2, text=text))
    assert fleet.reload(counting(3, text=text)) is Reloaded.KEPT
    assert fleet.update() == {}
    assert fleet.call("sum").values == [3] * 3
    assert fleet.reload(counting(4, "unreachable", text=text)) is Reloaded.KEPT
    assert list(fleet.update()) == [0, 1, 2]
    assert fleet.update() == {}
    assert fleet.call("sum").values == [6] * 3


@pytest.mark.parametrize("text", [b"elf", b"orc"])
def test_a_module_that_is_refused_in_the_first_calls_leaves_a_fleet_alone(host, text):
    fleet = host.fleet(counting(1), 3)
    fleet.reload(counting(2, text=text))
    with pytest.raises(ModuleRejected):
        fleet.reload(b"nothing")
    assert fleet.update() == {}
    assert fleet.call("sum").values == [2] * 3


def test_a_fleet_whose_module_is_refused_stays(host):
    fleet = host.fleet(counting(1), 3)
    fleet.update()
    for bad in (b"nothing", STARTS_TO_FAIL):
        with pytest.raises((ModuleRejected, GuestTrap)):
            fleet.reload(bad)
        assert fleet.update() == {}
    assert fleet.call("sum").values == [3] * 3


def test_a_fleet_goes_back_if_one_new_instance_cannot_be_made(host, monkeypatch):
    fleet = host.fleet(counting(1), 4)
    for number, guest in enumerate(fleet.guests):
        guest.write_memory(0, (10 * number).to_bytes(4, "little"))
    fleet.update()
    begun, build = [], Sandbox._build

    def third(sandbox, *arguments, **options):
        begun.append(sandbox)
        if len(begun) == 3:
            raise InstanceLimitExceeded("no room for one more")
        build(sandbox, *arguments, **options)

    monkeypatch.setattr(Sandbox, "_build", third)
    with pytest.raises(InstanceLimitExceeded):
        fleet.reload(counting(100))

    assert [guest.failure for guest in fleet.guests] == [None] * 4
    assert fleet.update() == {}
    assert fleet.call("sum").values == [2, 12, 22, 32]
    assert fleet.call("frames").values == [2] * 4
    assert fleet.reload(counting(100)) is Reloaded.KEPT
    assert fleet.update() == {}
    assert fleet.call("sum").values == [102, 112, 122, 132]


def test_a_guest_that_is_made_anew_has_no_memory_for_other_threads(host, monkeypatch):
    guest = updated(host.load(counting(1)), 1)
    seen, build = [], Sandbox._build

    def watched(sandbox, *arguments):
        seen.append(host.account.memory_bytes)
        build(sandbox, *arguments)

    monkeypatch.setattr(Sandbox, "_build", watched)
    before = host.account.memory_bytes
    assert guest.reload(counting(10)) is Reloaded.KEPT
    assert seen == [before - (1 << 16)]
    assert host.account.memory_bytes == before


def test_a_guest_of_which_no_module_can_be_made_is_closed(host, monkeypatch):
    def refused(*_):
        raise InstanceLimitExceeded("no room for one more")

    guest = updated(host.load(counting(1)), 1)
    monkeypatch.setattr(Sandbox, "_build", refused)
    with pytest.raises(InstanceLimitExceeded):
        guest.reload(counting(10))

    with pytest.raises(GuestFailed, match="is closed"):
        guest.read_memory(0, 4)
    assert host.account.memory_bytes == 0


def test_failed_guests_of_a_fleet_stay_failed(host):
    bad = counting(1, "(if (i32.gt_s (i32.load (i32.const 0)) (i32.const 100)) (then unreachable))")
    fleet = host.fleet(bad, 3)
    fleet.guests[1].write_memory(0, (100).to_bytes(4, "little"))
    assert list(fleet.update()) == [1]
    assert fleet.reload(counting(1)) is Reloaded.KEPT
    assert list(fleet.update()) == [1]
    assert fleet.call("sum").values == [2, None, 2]


def test_a_fleet_in_which_nobody_lives_has_the_new_module_too(host):
    fleet = host.fleet(counting(1), 2)
    fleet.guests[0].close()
    fleet.guests[1].close()
    with pytest.raises(ModuleRejected):
        fleet.reload(b"nothing")
    fleet.reload(counting(10))
    fleet.replace(fleet.guests[0])
    fleet.update()
    assert fleet.call("sum").values == [10, None]

    for guest in tuple(fleet.guests):
        fleet.remove(guest)
    with pytest.raises(UsageError, match="has no guests to reload: let one join first"):
        fleet.reload(counting(1))


def test_a_compiled_module_is_taken_as_it_is(host):
    guest = host.load(counting(1))
    compiled = host.compile(counting(2))
    assert guest.reload(compiled) is Reloaded.KEPT
    assert guest.module is compiled


def test_guests_of_environments_are_not_reloaded():
    with GuestEnv(GUESTS / "c_pendulum.wasm") as env:
        env.reset(seed=1)
        guest = env._core.instance.guest
        with pytest.raises(UsageError, match="is not the embedder's own"):
            guest.reload(GUESTS / "c_pendulum.wasm")


def test_a_guest_may_be_closed_in_its_first_calls(host):
    guest = updated(host.load(counting(1)), 1)
    guest.reload(counting(2, text=b"elf"))
    guest.update()
    guest.close()
    assert host.account.memory_bytes == 0
    fleet = host.fleet(counting(1), 3)
    fleet.reload(counting(2, text=b"elf"))
    fleet.update()
    fleet.close()
    assert host.account.memory_bytes == 0


def test_functions_of_the_game_go_on_in_a_reloaded_guest(make_host):
    def asking(extra):
        return module(
            function("ask", f"(i32.add (call $f) {i32(extra)})", result="i32"),
            imports=['(import "env" "f" (func $f (result i32)))'],
        )

    guest = make_host(imports={("env", "f"): lambda: 40}).load(asking(0))
    assert guest.call("ask") == 40
    assert guest.reload(asking(2)) is Reloaded.KEPT
    assert guest.call("ask") == 42


def test_a_real_guest_of_c_is_its_own_next_version(host):
    path = Path(GUESTS / "c_applet.wasm")
    guest, twin = updated(host.load(path), 5), updated(host.load(path), 5)
    assert guest.reload(path.read_bytes()) is Reloaded.KEPT
    assert bytes(updated(guest, 5).snapshot().state.wasm.memory) == bytes(
        updated(twin, 5).snapshot().state.wasm.memory
    )


def speaking(*functions, place="i32"):
    """An applet with a number that the host may read, and other functions."""
    return module(
        f'(global (export "number") {place} ({place}.const 64))',
        "(func $ark_initialize)",
        function("ark_applet_update", f"(i32.store {i32(64)} {i32(7)})"),
        *functions,
    )


HIT = function("hit", "", "(param i32)")


@pytest.mark.parametrize(
    ("rebuilt", "said"),
    [
        (speaking(), r"exports no hit: the guest was called by hit \(i32\) -> \(\)"),
        (speaking(function("hit", "", "(param i32 i32)")), r"exports hit \(i32 i32\) -> \(\): the"),
        (module(HIT), "exports no ark_applet_update"),
    ],
)
def test_a_module_without_a_function_by_which_guests_were_called_is_refused(host, rebuilt, said):
    one = host.load(speaking(HIT))
    with host.fleet(speaking(HIT), 3) as fleet:
        for _ in range(3):
            one.update()
            fleet.update()  # in the loop of frames, which has no entry of its own
            one.call("hit", 1)
            fleet.call("hit", 1)
            fleet.update()
        for each in (one, fleet):
            with pytest.raises(EntryPointMissing, match=said):
                each.reload(rebuilt)
        one.call("hit", 1)
        assert fleet.update() == fleet.call("hit", 1).failures == {}


def test_a_fleet_in_its_loop_of_frames_is_not_reloaded_without_them(host):
    with host.fleet(speaking(HIT), 3) as fleet:
        updated(fleet, 3)
        with pytest.raises(EntryPointMissing, match="no ark_applet_update"):
            fleet.reload(module(HIT))
        assert fleet.update() == {}


def test_a_module_without_an_address_that_is_read_is_refused(host):
    with host.fleet(speaking(), 2) as fleet:
        updated(fleet, 1)
        assert fleet.read("number", "i4").tolist() == [7, 7]
        with pytest.raises(EntryPointMissing, match=r"no address 'number' \(global i64\)"):
            fleet.reload(speaking(place="i64"))
        assert fleet.read("number", "i4").tolist() == [7, 7]


def test_a_module_may_lack_what_only_prepares_a_guest(host):
    before = persisting(1)
    guest = updated(host.load(before), 1)
    assert guest.reload(persisting(2)) is Reloaded.HANDED_OVER
    assert updated(guest, 12).reload(counting(1)) is Reloaded.ANEW
    other = host.load(module(HIT, function("ark_initialize", "")))
    other.initialize()
    assert other.reload(module(HIT)) is Reloaded.ANEW
