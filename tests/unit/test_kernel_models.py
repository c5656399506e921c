"""Models of kernels in a host: batches of any size, threads, time, and memory."""

import gc
import threading
import time
import weakref

import numpy as np
import pytest
from tests.unit.kernel_runs import WASM, answers, random_feeds
from tests.unit.policy_models import acted, linear, model, noisy, port, weight
from tests.unit.policy_models import node as node_of

from arkml.abi.codes import SnapshotFormat
from arkml.errors import Unavailable
from arkml.policies.kernel import render
from arkml.policies.library import PolicyLibrary
from arkml.policies.model import ALIKE
from arkml.policies.model_cache import ModelCache
from arkml.policies.run_limit import RunLimit
from arkml.policies.workspace import PolicyWorkspace
from arkml.runtime.row_modules import RowModule

WIDE = 1024


def masked():
    """actions = obs + 10 masks"""
    return model(
        [node_of("Mul", "action_masks ten", "m"), node_of("Add", "obs m", "actions")],
        [port("obs", "N", 2), port("action_masks", "N", 2)], [port("actions", "N", 2)],
        [weight("ten", 10.0)],
    )  # fmt: skip


def slow():
    """Products that take a millisecond or more a row."""
    layers = [node_of("MatMul", f"h{layer} w", f"h{layer + 1}") for layer in range(4)]
    return model(
        [node_of("MatMul", "obs v", "h0"), *layers, node_of("MatMul", "h4 o", "actions")],
        [port("obs", "N", 2)], [port("actions", "N", 1)],
        [weight("v", np.ones((2, WIDE))), weight("w", np.eye(WIDE)),
         weight("o", np.ones((WIDE, 1)))],
    )  # fmt: skip


def policy_of(data, **options):
    return PolicyLibrary(WASM, **options).load(data, SnapshotFormat.ONNX, 2, None)


@pytest.mark.parametrize("count", [0, 1, 2, ALIKE, ALIKE + 1, 3 * ALIKE + 7])
@pytest.mark.parametrize(
    "data", [linear(np.eye(2)), masked(), noisy(2)], ids=["", "masks", "noise"]
)
def test_a_row_has_the_same_bits_in_a_batch_of_any_size(data, count):
    features = np.random.default_rng(0).standard_normal((3 * ALIKE + 7, 2)).astype("f4")
    whole = acted(policy_of(data), features)
    part = acted(policy_of(data), features[:count])

    assert np.array_equal(part, whole[:count])
    assert len(np.unique(whole)) > ALIKE


def test_the_noise_is_zero_where_policies_are_deterministic():
    features = np.float32([[1, 2], [3, 4]])

    assert np.array_equal(acted(policy_of(noisy(2), deterministic=True), features), features)


def test_threads_may_run_one_model_at_the_same_time():
    data, wrong = linear(np.random.default_rng(1).standard_normal((40, 30))), []
    loaded = WASM.onnx(data).load(None)

    def run(seed):
        feeds = random_feeds(data, 200, seed=seed)
        expected = answers(WASM, data, feeds)["actions"]
        fetches = {"actions": np.zeros_like(expected)}
        calls = loaded.prepare(200, feeds, fetches, RunLimit(PolicyWorkspace()))
        for _ in range(30):
            fetches["actions"][:] = 0
            for call in calls:
                call()
            if not np.array_equal(fetches["actions"], expected):
                wrong.append(seed)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


def test_a_batch_that_takes_too_long_is_stopped():
    data, rows = slow(), 60_000
    loaded, workspace = WASM.onnx(data).load(None), PolicyWorkspace()
    workspace.run_seconds = 0.05
    feeds, fetches = {"obs": np.ones((rows, 2), "f4")}, {"actions": np.zeros((rows, 1), "f4")}
    (call,) = loaded.prepare(rows, feeds, fetches, RunLimit(workspace))
    began = time.thread_time()
    with pytest.raises(Unavailable, match=r"ran longer than 0\.05 s"):
        call()

    assert time.thread_time() - began < 5
    assert not fetches["actions"][-1].any()


def test_a_model_that_is_dropped_frees_its_module():
    cache = ModelCache(load_module=RowModule)
    policy = PolicyLibrary(cache).load(linear(np.eye(2)), SnapshotFormat.ONNX, 2, 2)
    module = weakref.ref(policy._model._module)
    acted(policy, np.ones((3, 2)))
    del policy
    cache.close()
    gc.collect()

    assert module() is None


def test_a_module_is_as_large_as_its_weights_and_some_kilobytes():
    assert len(render(linear(np.ones((64, 64))))) < 4 * 64 * 64 + 4_096
