"""Models that run as WebAssembly beside onnxruntime, in tests of kernels."""

import numpy as np

from arkml.policies.model_cache import ModelCache
from arkml.policies.run_limit import RunLimit
from arkml.policies.workspace import PolicyWorkspace
from arkml.runtime.row_modules import RowModule

ONNXRUNTIME = ModelCache()
WASM = ModelCache(load_module=RowModule)
NEAR = 1e-6
"""The largest error, as a share of the largest number of an output in all rows of a test."""


def answers(cache, data, feeds):
    """The outputs of a model: float32, [n, *shape], by name."""
    model = cache.onnx(data).load(None)
    count = len(next(iter(feeds.values())))
    fetches = {p.name: np.full((count, *p.shape), 7, np.float32) for p in model.outputs}
    for call in model.prepare(count, feeds, fetches, RunLimit(PolicyWorkspace())):
        call()
    return fetches


def random_feeds(data, rows, *, seed=0, scale=1.0):
    """Normal numbers for each input: float32, [rows, *shape]."""
    random = np.random.default_rng(seed)
    ports = WASM.onnx(data).layout.inputs
    return {p.name: (scale * random.standard_normal((rows, *p.shape))).astype("f4") for p in ports}


def error(found, expected):
    """The largest error of float32, [n, ...], as NEAR measures it."""
    count = len(expected)
    found, expected = (one.reshape(count, -1).astype("f8") for one in (found, expected))
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    found, expected = np.nan_to_num(found), np.nan_to_num(expected)
    if not expected.size:
        return 0.0
    largest = np.abs(expected).max()
    return float(np.abs(found - expected).max() / max(largest, 1e-30))


def errors(data, rows=1000, *, feeds=None, **options):
    """The error of each output of a model, by name."""
    feeds = random_feeds(data, rows, **options) if feeds is None else feeds
    found, expected = answers(WASM, data, feeds), answers(ONNXRUNTIME, data, feeds)
    return {name: error(found[name], expected[name]) for name in expected}
