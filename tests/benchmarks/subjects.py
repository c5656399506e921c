"""The guests and policies that are measured, set up and ready to step."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.framed import framed
from tests.integration.guest_text import (
    LOG,
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

from arkml import Fleet, Guest, Host
from arkml.abi.codes import LogLevel
from arkml.batches import Batch
from arkml.policies.library import PolicyLibrary
from arkml.policies.model_cache import ModelCache

FIXTURES = Path(__file__).parents[2] / "fixtures"
BENCH_GUEST = FIXTURES / "guests" / "bench_guest.wasm"
ACTIONS = 3
_HANDLE, _MODEL, _FEATURES, _ACTIONS, _TEXT, _VALUES = 8, 1024, 64, 256, 512, 0x18000
LOGGING_APPLET = module(
    data(_TEXT, b"a line"),
    data(_MODEL, POINTMASS),
    opening("ark_initialize", _MODEL, len(POINTMASS), _HANDLE),
    function(
        "ark_applet_update",
        f"""(drop (call ${LOG} {i32(LogLevel.DEBUG)} {i32(_TEXT)} {i32(6)}))
        (drop (call ${PUSH} (i64.load {i32(_HANDLE)}) (i64.const 1) {i32(0)} (f32.const 0)
          {i32(_FEATURES)} {i32(2)} (f32.const 0)))
        (drop (call ${SUBMIT} (i64.load {i32(_HANDLE)}) {i32(_ACTIONS)} {i32(1)} {i32(_VALUES)}
          {i32(1)}))""",
    ),
    uses=(LOG, START, PUSH, SUBMIT),
    memory='(memory (export "memory") 4)',
)
"""An applet of one agent that logs a line of a level that is off in each frame."""


def policy_path(features: int) -> Path:
    """A network of two hidden layers of 64, with `features` in and three actions out."""
    return FIXTURES / "policies" / f"mlp_f{features}_a3.onnx"


def bench_guest(host: Host, agents: int, features: int) -> Guest:
    """A guest with `agents` agents whose session is open; its first frame is behind it."""
    guest = host.load(BENCH_GUEST)
    model = policy_path(features).read_bytes()
    guest.write_memory(guest.call("alloc_model", len(model)), model)
    check(guest.call("setup", agents, features, ACTIONS, len(model)))
    check(guest.call("frame"))
    return guest


def bench_fleet(host: Host, instances: int, features: int) -> Fleet:
    """Make a fleet of guests with one agent each, likewise; it has frames of an applet too."""
    fleet = host.fleet(framed(BENCH_GUEST), instances)
    open_sessions(fleet, features)
    return fleet


def open_sessions(fleet: Fleet, features: int) -> None:
    """Give every guest of a fleet its policy and run a frame."""
    model = policy_path(features).read_bytes()
    for guest, pointer in zip(
        fleet.guests, fleet.call("alloc_model", len(model)).values, strict=True
    ):
        guest.write_memory(pointer, model)
    check(*fleet.call("setup", 1, features, ACTIONS, len(model)).values)
    check(*fleet.call("frame").values)


def check(*codes: object) -> None:
    """Every call answered 0, or what is measured is not what it says."""
    wrong = {code for code in codes if code != 0}
    if wrong:
        raise AssertionError(f"the guest that is measured answered {wrong}")


def check_frame(fleet: Fleet) -> None:
    """Run a frame of every guest, or raise AssertionError if one fails."""
    if failures := fleet.update():
        raise AssertionError(f"guests that are measured failed: {failures}")


class NullPolicy:
    """Answers at once: the actions stay zero."""

    num_actions = ACTIONS

    def __init__(self, features: int) -> None:
        self.num_features = features

    def act(self, batch: Batch) -> None: ...

    def forget(self, key: int) -> None: ...


class NullLibrary(PolicyLibrary):
    """Has a null policy for whatever is loaded."""

    def __init__(self) -> None:
        super().__init__(ModelCache())

    def load(
        self,
        snapshot: bytes,
        snapshot_format: object,
        num_features: int | None,
        num_actions: int | None,
        *declared: object,  # noqa: ARG002
    ) -> NullPolicy:
        assert snapshot
        assert snapshot_format is not None
        assert num_actions == ACTIONS
        assert num_features is not None
        return NullPolicy(num_features)


class NullHost(Host):
    """A host without a policy run: what is left is the price of the way there and back."""

    def __init__(self) -> None:
        super().__init__()
        self._loader.library = lambda _name: NullLibrary()  # type: ignore[assignment, method-assign]
