"""A guest that does harm in one of several ways, and fleets of it."""

import struct
from enum import IntEnum

import numpy as np
from tests.integration.guest_text import (
    FEATURES,
    HANDLE,
    LOG,
    MODEL,
    POINTMASS,
    PUSH,
    START,
    SUBMIT,
    data,
    function,
    i32,
    module,
    opening,
)
from tests.unit.policy_models import model, node, port, weight

GREEDY = set(range(1, 25, 2))
WIDTH = 512  # of the two layers of the slow model


class Harm(IntEnum):
    """What a guest does in its frames; the address MODE has it."""

    NONE = 0
    WASM_LOOP = 1
    IMPORT_LOOP = 2
    LOG_FLOOD = 3
    SLOW_MODEL = 4
    SUBMIT_LOOP = 5
    TRAP = 6
    GREED = 7


MODE, TURNS, ROWS, ACTIONS, VALUES = 200, 208, 232, 0x10000, 0x20000
_TIME = "ark-time-v1.time__time_utc"
_SLOW_HANDLE, _NOW, _SLOW = 16, 216, 0x40000


def slow_model():
    """Two features to one action through a layer of 512 to 512: some 0.1 ms a row."""
    numbers = np.random.default_rng(0)
    weights = [
        weight("a", numbers.normal(size=(2, WIDTH))),
        weight("b", numbers.normal(size=(WIDTH, WIDTH))),
        weight("c", numbers.normal(size=(WIDTH, 1))),
    ]
    nodes = [
        node("MatMul", "obs a", "x"),
        node("MatMul", "x b", "y"),
        node("MatMul", "y c", "actions"),
    ]
    return model(nodes, [port("obs", "N", 2)], [port("actions", "N", 1)], weights)


def _loop(body):
    return f"(loop $more {body} (br $more))"


def _if(harm, body):
    return f"(if (i32.eq (i32.load8_u {i32(MODE)}) {i32(int(harm))}) (then {body}))"


def _module():
    slow = slow_model()
    step = f"(call $step {i32(HANDLE)} (i32.load {i32(ROWS)}))"
    spend = f"""(local.set $turns (i32.load {i32(TURNS)}))
        (loop $more (local.set $turns (i32.sub (local.get $turns) (i32.const 1)))
          (br_if $more (local.get $turns)))"""
    log = f"(drop (call ${LOG} {i32(2)} {i32(_SLOW)} {i32(1 << 20)}))"
    return module(
        data(ROWS, b"\1"),
        data(MODEL, POINTMASS),
        data(_SLOW, slow),
        opening("open", MODEL, len(POINTMASS), HANDLE),
        opening("open_slow", _SLOW, len(slow), _SLOW_HANDLE),
        f"""(func $step (param $handle i32) (param $rows i32) (local $row i32)
          (loop $next
            (drop (call ${PUSH} (i64.load (local.get $handle))
              (i64.extend_i32_u (local.get $row)) {i32(0)} (f32.const 0) {i32(FEATURES)} {i32(2)}
              (f32.const 0)))
            (local.set $row (i32.add (local.get $row) (i32.const 1)))
            (br_if $next (i32.lt_u (local.get $row) (local.get $rows))))
          (if (call ${SUBMIT} (i64.load (local.get $handle)) {i32(ACTIONS)} (local.get $rows)
            {i32(VALUES)} (local.get $rows)) (then unreachable)))""",
        function(
            "ark_applet_update",
            "(local $turns i32)"
            + _if(Harm.WASM_LOOP, _loop(""))
            + _if(Harm.IMPORT_LOOP, _loop(f"(call ${_TIME} {i32(_NOW)})"))
            + _if(Harm.LOG_FLOOD, _loop(log))
            + _if(Harm.SLOW_MODEL, _loop(f"(call $step {i32(_SLOW_HANDLE)} (i32.const 300))"))
            + _if(Harm.SUBMIT_LOOP, _loop(step))
            + _if(Harm.TRAP, "unreachable")
            + _if(Harm.GREED, spend)
            + step
            # the next observation follows from the action
            + f"""(f32.store {i32(FEATURES)}
              (f32.add (f32.load {i32(FEATURES)})
                (f32.mul (f32.const 0.1) (f32.load {i32(ACTIONS)}))))""",
        ),
        uses=(LOG, START, PUSH, SUBMIT, _TIME),
        memory='(memory (export "memory") 40)',
    )


GUEST = _module()


def hostile_fleet(host, size, harms):
    """Make a fleet whose guests have sessions, and do the harm that `harms` has by index."""
    fleet = host.fleet(GUEST, size)
    assert set(fleet.call("open", budget=None).values) == {0}  # however slow the machine is
    for index, guest in enumerate(fleet.guests):
        guest.write_memory(FEATURES, struct.pack("<ff", index / size, 0.5))
    for index, harm in harms.items():
        guest = fleet.guests[index]
        if harm is Harm.SLOW_MODEL:
            assert guest.call("open_slow", budget=None) == 0
        guest.write_memory(MODE, bytes([harm]))
    return fleet


def states(fleet, without):
    """The observations and actions of the guests, as bytes, by index."""
    return {
        index: guest.read_memory(FEATURES, 8) + guest.read_memory(ACTIONS, 4)
        for index, guest in enumerate(fleet.guests)
        if index not in without
    }


def greedy_fleet(host, budget):
    """
    Make a fleet of 32, of which GREEDY use together more than half of `budget` in each frame.

    They would also on a machine that became three times as fast, and none of them is over the
    budget on one that became six times as slow.
    """
    fleet = hostile_fleet(host, 32, dict.fromkeys(GREEDY, Harm.GREED))
    spend([fleet.guests[index] for index in GREEDY], 0.15 * budget)
    return fleet


def spend(guests, seconds):
    """Let greedy guests use about that much processor time in each of their frames."""
    turns, quickest = 1_000_000, float("inf")
    first = guests[0]
    first.write_memory(TURNS, turns.to_bytes(4, "little"))
    for _ in range(8):  # the machine may do other work meanwhile
        before = first.account.wasm_seconds
        first.call("ark_applet_update", budget=None)
        quickest = min(quickest, first.account.wasm_seconds - before)
    for guest in guests:
        guest.write_memory(TURNS, int(seconds / quickest * turns).to_bytes(4, "little"))
