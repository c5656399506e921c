"""onnxruntime by its C API."""

import gc
import threading
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from tests.unit import policy_models as build
from tests.waiting import eventually

from arkml.errors import ModelRejected, UsageError
from arkml.policies import ort
from arkml.policies.load_time import LoadTime

DOUBLE = build.linear([[2.0]])


def opened(data):
    return ort.open_session(data, LoadTime(60.0), folded_bytes=1)


def test_a_run_gives_what_the_module_of_the_package_gives():
    data = (Path(__file__).parents[2] / "fixtures/policies/mlp_f64_a3.onnx").read_bytes()
    rows = np.random.default_rng(0).normal(size=(17, 64)).astype(np.float32)
    theirs = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    (wanted,) = theirs.run(None, {"obs": rows})
    session = opened(data)
    (given,) = session.run(session.outputs, {"obs": rows}, ort.OrtRunOptions())
    bound = np.zeros_like(wanted)
    ort.BoundRun(session, {"obs": rows}, {"actions": bound}, ort.OrtRunOptions())()

    assert np.array_equal(given, wanted)
    assert np.array_equal(bound, wanted)


def test_ports_are_told_as_they_are():
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Cast", ["numbers"], ["out"], to=TensorProto.INT64)], "g",
            [helper.make_tensor_value_info("numbers", TensorProto.DOUBLE, ["N", 3])],
            [helper.make_tensor_value_info("out", TensorProto.INT64, ["N", 3])],
        ),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip
    session = opened(model.SerializeToString())

    assert session.inputs == [ort.OrtPort("numbers", "tensor(double)", (-1, 3))]
    assert session.outputs == ["out"]


def test_a_sequence_is_no_tensor():
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("SequenceLength", ["many"], ["out"])], "g",
            [helper.make_tensor_sequence_value_info("many", TensorProto.FLOAT, None)],
            [helper.make_tensor_value_info("out", TensorProto.INT64, [])],
        ),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip

    assert opened(model.SerializeToString()).inputs == [ort.OrtPort("many", "no tensor", ())]


def test_integers_come_back_as_integers():
    model = build.model(
        [helper.make_node("Cast", ["obs"], ["actions"], to=TensorProto.INT64)],
        [build.port("obs", "N", 2)],
        [helper.make_tensor_value_info("actions", TensorProto.INT64, ["N", 2])],
    )
    session = opened(model)
    rows = np.array([[1.0, -2.0]], np.float32)
    (given,) = session.run(["actions"], {"obs": rows}, ort.OrtRunOptions())

    assert given.dtype == np.int64
    assert given.tolist() == [[1, -2]]


def test_what_is_no_model_is_refused_in_a_sentence():
    with pytest.raises(ModelRejected, match="onnxruntime refuses the model"):
        opened(b"no model")


def test_a_run_on_arrays_that_do_not_fit_is_an_error():
    session = opened(DOUBLE)
    run = ort.BoundRun(
        session, {session.inputs[0].name: np.zeros((1, 5), np.float32)}, {}, ort.OrtRunOptions()
    )
    with pytest.raises(ort.OrtError, match="dimensions"):
        run()
    with pytest.raises(ort.OrtError, match="nobody"):
        ort.BoundRun(session, {"nobody": np.zeros((1, 1), np.float32)}, {}, ort.OrtRunOptions())()


def test_options_end_a_run_and_let_the_next_one_go():
    session, options = opened(DOUBLE), ort.OrtRunOptions()
    feeds = {session.inputs[0].name: np.ones((1, 1), np.float32)}
    options.terminate = True
    with pytest.raises(ort.OrtError, match=r"(?i)terminate"):
        session.run(session.outputs, feeds, options)
    options.terminate = False
    assert session.run(session.outputs, feeds, options)[0].tolist() == [[2.0]]


def test_threads_may_run_one_session():
    session = opened(DOUBLE)
    name, (output,) = session.inputs[0].name, session.outputs
    wrong = []

    def work(number):
        rows, found = np.full((1, 1), number, np.float32), np.zeros((1, 1), np.float32)
        run = ort.BoundRun(session, {name: rows}, {output: found}, ort.OrtRunOptions())
        for _ in range(2000):
            run()
            if found[0, 0] != 2 * number:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


def test_all_that_is_made_is_released(monkeypatch):
    made, released = [], []
    begin = ort._Owned.__init__

    def counted(self, api, address):
        begin(self, api, address)
        release, kind = self._release, self._kind
        made.append((self._kind, address))

        def count(gone):
            released.append((kind, gone))
            release(gone)

        self._release = count

    monkeypatch.setattr(ort._Owned, "__init__", counted)
    session = opened(DOUBLE)
    feeds = {session.inputs[0].name: np.ones((1, 1), np.float32)}
    session.run(session.outputs, feeds, ort.OrtRunOptions())
    ort.BoundRun(session, feeds, {}, ort.OrtRunOptions())
    del session
    gc.collect()

    assert len(made) >= 8
    assert eventually(lambda: sorted(made) == sorted(released))  # a watch lets go of one later


def test_a_package_without_the_library_is_told(monkeypatch, tmp_path):
    class Spec:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr(ort, "_loaded", None)
    monkeypatch.setattr(ort, "find_spec", lambda _: Spec)
    with pytest.raises(UsageError, match="runs models by its C API"):
        ort.load()
    monkeypatch.setattr(ort, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="any folder"):
        ort.load()


def test_a_package_that_is_too_old_is_told(monkeypatch):
    monkeypatch.setattr(ort, "_loaded", None)
    monkeypatch.setattr(ort, "_VERSION", 10_000)
    with pytest.raises(UsageError, match="too old"):
        ort.load()
