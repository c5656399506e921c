"""
Guests that try to hold as much of the host's memory as they can, each in a process of its own.

`python -m tests.integration.hostile_holders KIND` prints how much the process has grown, as JSON:
`resident` at the end and `peak` in between, beside the `bytes` of the guest's account.
"""

import gc
import json
import logging
import os
import sys
import time
from pathlib import Path

import numpy as np
from tests.integration.guest_text import (
    PUSH,
    RETURN,
    START,
    STOP,
    SUBMIT,
    function,
    i32,
    module,
)
from tests.integration.hostile_environments import (
    GIVES,
    LEAVES_AGENTS,
    SAYS,
    STARTS,
    Played,
)
from tests.integration.scripted_hive import ScriptedHive
from tests.integration.training_guest import LOCAL, V1, V2, TrainingGuest
from tests.unit import policy_models as build
from tests.unit.policy_models import node, port

from arkml import HiveGrant, Host
from arkml.hive.protocol.runs import MAX_NAME_BYTES
from arkml.hive.protocol.settings import MAX_SETTINGS_BYTES
from arkml.limits import MIB, Limits
from arkml.testing.proxy import Proxy, proxy_text

GUEST_BYTES = 48 * MIB
PAGE = 65_536
PAGES = 64
CLOSED_PORT = 1
FEATURES, MODEL, OUT = PAGE, 2 * PAGE, 32 * PAGE  # addresses
ONNX = 0
CORE, INFERENCE = "ark-core-v", "ark-ml-inference-v0"

_HANDLE = "(i64.load (i32.shl (local.get $slot) (i32.const 3)))"

HOLDER = module(
    function(
        "open",
        f"(call ${START} (local.get $features) (local.get $actions) {i32(MODEL)} (local.get $size)"
        f" {i32(ONNX)} (i32.shl (local.get $slot) (i32.const 3)))",
        params="(param $slot i32) (param $features i32) (param $actions i32) (param $size i32)",
        result="i32",
    ),
    function("close", f"(call ${STOP} {_HANDLE})", params="(param $slot i32)", result="i32"),
    function(
        "push",
        f"""(local $code i32)
        (block $done (loop $next
          (br_if $done (i32.eqz (local.get $rows)))
          (local.set $rows (i32.sub (local.get $rows) (i32.const 1)))
          (local.set $code (call ${PUSH} {_HANDLE} (local.get $first) {i32(0)} (f32.const 0)
            {i32(FEATURES)} (local.get $features) (f32.const 0)))
          (br_if $done (local.get $code))
          (local.set $first (i64.add (local.get $first) (local.get $apart)))
          (br $next)))
        (local.get $code)""",
        params="(param $slot i32) (param $features i32) (param $rows i32) (param $first i64)"
        " (param $apart i64)",
        result="i32",
    ),
    function(
        "submit",
        f"(call ${SUBMIT} {_HANDLE} {i32(OUT)} (local.get $floats) {i32(OUT)} (local.get $rows))",
        params="(param $slot i32) (param $floats i32) (param $rows i32)",
        result="i32",
    ),
    function("grow", "(memory.grow (local.get $n))", params="(param $n i32)", result="i32"),
    function(
        "give",
        f"(call ${RETURN} {i32(0)} {i32(1)} (local.get $size))",
        params="(param $size i32)",
        result="i32",
    ),
    uses=(START, PUSH, SUBMIT, STOP, RETURN),
    memory=f'(memory (export "memory") {PAGES})',
)


class Holder:
    """A guest of HOLDER, with a number for each of its sessions."""

    def __init__(self, host):
        self.guest = host.load(HOLDER)
        self.slot = 0

    def open(self, model, features, actions=1):
        """Open a session and return its number, None if it was refused."""
        self.guest.write_memory(MODEL, model)
        self.slot += 1
        code = self.guest.call("open", self.slot, features, actions, len(model))
        return None if code else self.slot

    def fill(self, slot, features, rows=1 << 16, apart=1):
        """Push rows until one is refused or there are as many; ids of agents are `apart`."""
        return self.guest.call("push", slot, features, rows, 0, apart)


def wasm_memory(host):
    guest = Holder(host).guest
    while guest.call("grow", 1) != -1:
        pass
    _touched(guest)
    return guest


def _touched(guest):
    """Write all of a guest's memory and return its size."""
    size = guest.account.memory_bytes
    for start in range(0, size, PAGE):
        guest.write_memory(start, b"x" * PAGE)
    return size


def columns(host):
    """Fill the queues of sessions with rows of one width, and then with those of the next."""
    holder = Holder(host)
    for width in (1, 3, 8, 20, 60, 150, 500):
        model = build.linear(np.ones((width, 1)))
        opened = []
        while (slot := holder.open(model, width)) is not None:
            opened.append(slot)
            if holder.fill(slot, width) or len(opened) > 200:
                break
        if width < 500:
            for slot in opened:
                holder.guest.call("close", slot)
    return holder.guest


def models(host):
    holder = Holder(host)
    for seed in range(2_000):
        model = build.linear(np.full((256, 128), seed))
        if holder.open(model, 256, 128) is None:
            break
    return holder.guest


def small_models(host):
    holder = Holder(host)
    for seed in range(2_000):
        model = build.linear(np.full((1, 1), seed))
        if holder.open(model, 1, 1) is None:
            break
    return holder.guest


def remembering(width, seed):
    """A model with as many numbers of state, of one feature and one action."""
    return build.model(
        [
            node("ReduceSum", "obs", "sum", keepdims=0),
            node("Add", "memory_in obs", "added"),
            node("Add", "added seed", "memory_out"),
            node("Gather", "memory_out first", "actions", axis=1),
        ][1:],
        [port("obs", "N", 1), port("memory_in", "N", width)],
        [port("actions", "N", 1), port("memory_out", "N", width)],
        [
            build.weight("seed", [seed]),
            build.numpy_helper.from_array(np.array([0], np.int64), "first"),
        ],
    )


def agents(host):
    """Have states of agents in one session, close it, and begin again with another model."""
    holder = Holder(host)
    for seed in range(8):
        model = remembering(256, seed)
        kept, used = holder.open(model, 1), holder.open(model, 1)
        if used is None or kept is None:
            break
        for first in range(0, 1 << 20, 512):
            if holder.guest.call("push", used, 1, 512, first, 1):
                break
            if holder.guest.call("submit", used, 512, 512):
                break
        if seed < 7:
            holder.guest.call("close", used)
    return holder.guest


def repeated_agents(host):
    """Submit as many rows as there may be of one agent, to one model after the other."""
    holder = Holder(host)
    for seed in range(20):
        noise = [node("Add", "obs epsilon", "sum"), node("Add", "sum seed", "actions")]
        model = build.model(
            noise, [port("obs", "N", 1), port("epsilon", "N", 1)], [port("actions", "N", 1)],
            [build.weight("seed", [seed])],
        )  # fmt: skip
        slot, rows = holder.open(model, 1), 1 << 16
        if slot is None or holder.fill(slot, 1, rows, apart=0):
            break
        if holder.guest.call("submit", slot, rows, rows):
            break
    return holder.guest


def work_space(host):
    """Run larger and larger batches of agents with large states, each in a session of its own."""
    holder = Holder(host)
    model = remembering(1_024, 0)
    for rows in (10, 25, 60, 150, 300, 600, 1_000, 1_400, 1_700, 1_900, *range(2_000, 5_000, 100)):
        slot = holder.open(model, 1)
        if (
            slot is None
            or holder.fill(slot, 1, rows)
            or holder.guest.call("submit", slot, rows, rows)
        ):
            break
    return holder.guest


def return_slices(host):
    guest = Holder(host).guest
    while guest.call("grow", 16) != -1 and guest.account.total_bytes < GUEST_BYTES / 2:
        pass
    size = _touched(guest)
    while guest.call("give", size):
        size -= PAGE
    return guest


def observations(host):
    guest = host.load(proxy_text(pages=PAGES).encode())
    proxy = Proxy(guest, pages=PAGES)

    def ask(name, *arguments):
        room = proxy.room(8)
        proxy.call(INFERENCE, f"ml_inference__{name}", *arguments, room)
        return int.from_bytes(proxy.read(room, 4), "little")

    runtime = ask("create_runtime")
    model = build.linear(np.ones((1_024, 1)))
    load = ask("load_inference_async", runtime, ONNX, proxy.put(model), len(model))
    brain = ask("poll_load_inference_async", load)
    name, row = proxy.text("obs"), proxy.put(bytes(4_096))
    for agent in range(1 << 20):
        proxy.call(INFERENCE, "ml_inference__begin_infer_submission", runtime, brain, agent)
        proxy.call(
            INFERENCE, "ml_inference__submit_inference_item", runtime, brain, *name, row, 1_024
        )
        if proxy.call(INFERENCE, "ml_inference__end_infer_submission", runtime, brain):
            break
    return guest


def requests(host):
    """Start trainings with large settings while the hive does not answer, and drop the futures."""
    guest = TrainingGuest(host, pages=PAGES)
    settings = guest.proxy.text('{"mine": "%s"}' % ("å" * 50_000))
    for number in range(2_000):
        arguments = (*LOCAL, "game", f"run {number}", 1, 1, 0)
        code, handle = guest.ask(V2, "start_training", *arguments, *settings)
        if code:
            break
        guest.proxy.call(V1, "ml__drop_future", int.from_bytes(handle, "little"))
    return guest.guest


def addresses(host):
    """Ask for hives at long addresses, each another one."""
    guest = TrainingGuest(host, pages=PAGES)
    address = guest.proxy.put(b"a" * MIB)
    room = guest.proxy.room(8)
    for number in range(500):
        guest.guest.write_memory(address, b"%08d" % number)
        if not guest.proxy.call(V1, "ml__can_connect_to_hive", address, MIB, 1, room):
            future = int.from_bytes(guest.proxy.read(room, 8), "little")
            guest.proxy.call(V1, "ml__drop_future", future)
    return guest.guest


def long_requests(host):
    """Start trainings with texts and settings of the greatest length until one is refused."""
    guest = TrainingGuest(host, pages=PAGES)
    start = _longest(guest)
    while not start():
        pass
    return guest.guest


def refused_requests(host):
    """Start such trainings where no hive is, and keep the futures."""
    guest = TrainingGuest(host, pages=PAGES)
    start = _longest(guest)
    for _ in range(150):
        if start():
            time.sleep(0.01)
    return guest.guest


def _longest(guest):
    """A function that starts a training with the longest texts, and returns the code."""
    own = "[]," * (MAX_SETTINGS_BYTES // 3 - 500)
    settings = '{"arkml": {"own": [%s[]]}, "mine": "%s"}'
    text = settings % (own, "å" * ((MIB - len(own)) // 2 - 100))
    name = "å" * (MAX_NAME_BYTES // 2)
    hive, names, configuration = (guest.proxy.text(each) for each in (LOCAL[0], name, text))
    arguments = (*hive, LOCAL[1], *names, *names, 1, 1, 0, *configuration, guest.proxy.room(8))
    return lambda: guest.proxy.call(V2, "ml__start_training", *arguments)


def logs(host):
    guest = host.load(proxy_text(pages=PAGES).encode())
    proxy = Proxy(guest, pages=PAGES)
    text = proxy.put(b"\x1b" * MIB)
    short = proxy.put(b"\x1b" * 10_000)
    for number in range(2_000):
        guest.write_memory(text, number.to_bytes(4, "big"))
        proxy.call(CORE + "4", "core__add_debug_context", text, 5_000, short, 5_000)
        proxy.call(CORE + "3", "core__log", 2, text, MIB)
        proxy.call(CORE + "2", "core__register_panic", text, MIB, text, MIB, 1, 1)
    return guest


def demonstrations(host):
    return Played(host, GIVES)


def live_agents(host):
    return Played(host, LEAVES_AGENTS)


def experiments(host):
    return Played(host, STARTS)


def metrics(host):
    return Played(host, SAYS)


HOLDERS = {
    each.__name__: each
    for each in (
        wasm_memory,
        columns,
        models,
        small_models,
        agents,
        repeated_agents,
        work_space,
        return_slices,
        observations,
        requests,
        addresses,
        long_requests,
        refused_requests,
        logs,
        demonstrations,
        live_agents,
        experiments,
        metrics,
    )
}


def resident(field="VmRSS"):
    """Return bytes of the process by /proc."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def silent_hive():
    """A hive that answers no request to start a run."""
    hive = ScriptedHive()
    hive.gate.clear()

    hive.scripts["runs"] = [lambda hive, _handler, _body: hive.gate.wait(300)]
    return hive


def held(hold, limit, grant):
    """Return how much the process grows when a guest with a limit of bytes holds what it can."""
    limits = Limits(
        guest_bytes=limit, memory_bytes=limit, requests=1_000, run_seconds=None, call_seconds=None
    )
    with Host(limits=limits, hive=grant) as host:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # begins VmHWM anew
        before = resident()
        guest = hold(host)
        peak = resident("VmHWM") - before
        gc.collect()
        grown = resident() - before
        return {"resident": grown, "peak": peak, **guest.account.as_dict()}


def main(holder):
    """Print how much this process grows."""
    logger = logging.getLogger("arkml")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    hold = HOLDERS[holder]
    port = CLOSED_PORT if hold is refused_requests else silent_hive().port
    grant = HiveGrant(hive=f"127.0.0.1:{port}")
    first = requests if hold is addresses else hold  # caches of addresses would be full
    held(first, 6 * MIB, grant)  # what a process has once
    print(json.dumps(held(hold, GUEST_BYTES, grant)), flush=True)
    os._exit(0)  # without a wait for the hive


if __name__ == "__main__":
    main(sys.argv[1])
