"""The functions and the noise of kernels: how far they are off, and what they do at the ends."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.policy_models import noisy

from arkml.policies.kernel.assembler import I32, FunctionCode, Module
from arkml.policies.kernel.functions import KNOWN, Functions
from arkml.policies.model_cache import ModelCache
from arkml.policies.noise import PinkNoise, fill_normal
from arkml.policies.ports import Port
from arkml.runtime.row_modules import RowModule

COUNT, START = 1 << 12, 16
EXACT = {
    "exp": np.exp, "log": np.log, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "tanh": np.tanh,
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-abs(x))),
    "erf": np.vectorize(math.erf), "sin": np.sin, "cos": np.cos,
}  # fmt: skip
RANGES = {"log": [(1e-30, 1e30), (0.5, 2.0), (1e-44, 1e-38)]}
USUAL = [(-1.0, 1.0), (-10.0, 10.0), (-80.0, 80.0), (-1e4, 1e4)]
ULPS = {"softplus": 3.0, "sigmoid": 2.1}
HIGH = 3.0e38


def loop_of(name):
    """A module that puts a function of each number into the place behind the numbers."""
    module = Module()
    index = Functions(module).index(name)
    f = FunctionCode()
    place = f.local(I32)
    f.i32(0)
    f.set(place)
    with f.loop(COUNT // 4, (place, 16)):
        f.get(place, place)
        f.memory("v128.load", START)
        f.call(index)
        f.memory("v128.store", START + 4 * COUNT)
    module.add(f, "run")
    return RowModule(module.binary(START + 8 * COUNT, "none", b""))


def applied(name, numbers):
    rows = np.zeros((1, COUNT), np.float32)
    rows[0, : len(numbers)] = numbers
    out = np.zeros_like(rows)
    loop_of(name).runs([(rows, START)], [(out, START + 4 * COUNT)])()
    return out[0, : len(numbers)]


def test_each_function_is_measured():
    assert EXACT.keys() == set(KNOWN)


@pytest.mark.parametrize("name", KNOWN)
def test_a_function_is_off_by_some_units_in_the_last_place(name):
    for low, high in RANGES.get(name, USUAL):
        if name == "log":
            x = np.exp(np.random.default_rng(0).uniform(np.log(low), np.log(high), COUNT))
        else:
            x = np.random.default_rng(0).uniform(low, high, COUNT)
        x = x.astype(np.float32)
        with np.errstate(over="ignore"):
            expected = EXACT[name](x.astype(np.float64))
            unit = np.spacing(np.maximum(np.abs(expected.astype(np.float32)), 1.2e-38))
        within = np.abs(expected) < HIGH
        apart = np.abs(applied(name, x)[within] - expected[within]) / unit[within]

        assert apart.max() <= ULPS.get(name, 1.5), (low, high)


@pytest.mark.parametrize(
    ("name", "at", "expected"),
    [
        ("exp", [-math.inf, -104, 0, 89, math.inf], [0, 0, 1, math.inf, math.inf]),
        ("log", [-1, -math.inf, 0, -0.0, 1, math.inf],
         [math.nan, math.nan, -math.inf, -math.inf, 0, math.inf]),
        ("tanh", [-math.inf, -100, 0, 100, math.inf], [-1, -1, 0, 1, 1]),
        ("sigmoid", [-math.inf, -200, 0, 200, math.inf], [0, 0, 0.5, 1, 1]),
        ("softplus", [-math.inf, -200, 200, math.inf], [0, 0, 200, math.inf]),
        ("erf", [-math.inf, -9, 0, 9, math.inf], [-1, -1, 0, 1, 1]),
        ("sin", [-math.inf, math.inf, 0], [math.nan, math.nan, 0]),
        ("cos", [-math.inf, math.inf, 0], [math.nan, math.nan, 1]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_function_ends_where_it_has_to(name, at, expected):
    found = applied(name, [*at, math.nan])

    np.testing.assert_array_equal(found, np.float32([*expected, math.nan]))


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_a_number_of_too_many_turns_has_some_sine(name):
    assert np.abs(applied(name, [1e12, -1e20, HIGH, -HIGH])).max() <= 1


@pytest.mark.parametrize("is_pink", [False, True])
@given(width=st.integers(1, 9), seed=st.integers(0, 2**32))
def test_the_noise_of_a_kernel_is_that_of_the_host_but_for_the_last_bits(is_pink, width, seed):
    random = np.random.default_rng(seed)
    streams = random.integers(0, 2**64, 30, np.uint64)
    steps = random.integers(0, [[9], [2**40], [2**64 - 9]], (3, 10), np.uint64).ravel()
    model = ModelCache(load_module=RowModule).onnx(noisy(width)).load(None)
    found, expected = np.full((2, 30, width), 7, np.float32)
    port = next(port for port in model.inputs if port.name == "epsilon")
    model.fill_noise(port, found, streams, steps, is_pink=is_pink)
    (PinkNoise() if is_pink else fill_normal)(expected, streams, steps)

    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-6)
    assert isinstance(port, Port)
