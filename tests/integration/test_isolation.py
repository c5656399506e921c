"""What one guest does stays its own affair."""

import threading

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.integration.command_line import GUESTS

from arkml import Host
from arkml.guests.guest import calls_of

STATE = 8_192
SNAPSHOT = 1_024
ACTOR = """(module
(import "ark-ml-v1" "ml__start_inference"
  (func $start (param i32 i32 i32 i32 i32 i32) (result i32)))
(import "ark-ml-v1" "ml__push_inference_observation_with_metadata"
  (func $push (param i64 i64 i32 f32 i32 i32 i32 i32) (result i32)))
(import "ark-ml-v1" "ml__submit_inference_observations"
  (func $submit (param i64 i32 i32 i32 i32) (result i32)))
(memory (export "memory") 40)
(global $agents (mut i32) (i32.const 2))
(data (i32.const {snapshot}) "{model}")
(func (export "open") (result i32) (call $start (i32.const 1) (i32.const 1)
  (i32.const {snapshot}) (i32.const {size}) (i32.const 0) (i32.const 8)))
(func (export "observe") (param i32) (global.set $agents (local.get 0)))
(func (export "step") (result i32) (local $agent i32)
  (loop $next
    (drop (call $push (i64.load (i32.const 8)) (i64.extend_i32_u (local.get $agent))
      (i32.const 0) (f32.const 0) (i32.const 16) (i32.const 1) (i32.const 0) (i32.const 0)))
    (local.set $agent (i32.add (local.get $agent) (i32.const 1)))
    (br_if $next (i32.lt_u (local.get $agent) (global.get $agents))))
  (call $submit (i64.load (i32.const 8)) (i32.const 65536) (global.get $agents)
    (i32.const 1048576) (global.get $agents)))
(func (export "push_metadata") (param $items i32) (param $end i32)
  (loop $next
    (drop (call $push (i64.load (i32.const 8)) (i64.const 1) (i32.const 0) (f32.const 0)
      (i32.const 16) (i32.const 1) (i32.const 0) (local.get $items)))
    (local.set $items (i32.add (local.get $items) (i32.const 1)))
    (br_if $next (i32.lt_u (local.get $items) (local.get $end))))))"""


def recurrent(width):
    def port(name, size):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", size])

    nodes = [
        helper.make_node("MatMul", ["obs", "weight"], ["actions"]),
        helper.make_node("Identity", ["memory_in"], ["memory_out"]),
    ]
    weight = numpy_helper.from_array(np.ones((1, 1), np.float32), "weight")
    graph = helper.make_graph(
        nodes,
        "recurrent",
        [port("obs", 1), port("memory_in", width)],
        [port("actions", 1), port("memory_out", width)],
        [weight],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.fixture(scope="module")
def actor():
    model = recurrent(STATE)
    escaped = "".join(f"\\{byte:02x}" for byte in model)
    return ACTOR.format(snapshot=SNAPSHOT, model=escaped, size=len(model)).encode()


def test_a_guest_with_too_many_agents_is_refused_alone(actor):
    with Host() as host, host.fleet(actor, 3) as fleet:
        fleet.call("open")
        fleet.guests[0].call("observe", 17_000)  # more than fit into the state of one policy
        codes = fleet.call("step").values

    assert codes[0] != 0
    assert codes[1:] == [0, 0]


def test_refused_pushes_leave_nothing_behind_in_the_host(actor):
    with Host() as host:
        guest = host.load(actor)
        guest.call("open")
        guest.call("push_metadata", 20_000, 30_000)  # each over the limit, by another size

        assert len(calls_of(guest).instance.warned) < 10


@pytest.mark.parametrize(
    "imports",
    [
        pytest.param([("ark-x", "f"), ("ark-x", "f")], id="twice"),
        pytest.param([("ark-x.y", "f"), ("ark-x", "y.f")], id="alike"),
        pytest.param([("ark-x", "a b"), ("ark-x", "a_b")], id="blank"),
        pytest.param([("ark-é", "f")], id="accent"),
    ],
)
def test_a_stub_may_have_any_name(imports):
    lines = [f'(import "{module}" "{name}" (func (result i32)))' for module, name in imports]
    text = f'(module {" ".join(lines)} (func (export "f") (result i32) (call 0)))'
    with Host(stub_missing=True) as host:
        answer = host.load(text.encode()).call("f")

    assert answer == 2


def test_a_guest_is_made_however_slow_that_is_while_others_run():
    is_over = threading.Event()
    with Host() as host:
        program = host.compile(GUESTS / "c_cartpole.wasm")
        engine = host._loader.engine.engine

        def hurry():
            while not is_over.is_set():
                engine.increment_epoch()

        clock = threading.Thread(target=hurry)
        clock.start()
        try:
            guests = [host.load(program) for _ in range(20)]
        finally:
            is_over.set()
            clock.join()

        assert [guest.call("frames") for guest in guests] == [0] * 20
