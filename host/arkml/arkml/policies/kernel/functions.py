"""
Functions of float32, such as exp, with the same bits on every machine, four numbers at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from arkml.policies.kernel.assembler import V128, FunctionCode, Module

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.4286067653e-6
_LOWEST, _HIGHEST = -104.0, 89.0  # beyond these the exponential is 0 and infinite
_SIGN, _SMALLEST_NORMAL = 0x8000_0000, 1.17549435e-38
_QUARTER_HIGH, _QUARTER_LOW = 1.5707963109016418, 1.5893254773528197e-08  # of a turn, in two parts
_EIGHTH = 0.7854  # of a turn, and a little more
_TANH_SMALL, _ERF_SMALL = 0.625, 0.927734375

EXPONENTIAL = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2,
               1.6666665459e-1, 5.0000001201e-1)  # fmt: skip
LOGARITHM = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
             -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)  # fmt: skip
TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
ERF_NEAR = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1,
            1.28379166e-1)  # fmt: skip
ERF_FAR = (-1.72853470e-5, 3.83197126e-4, -3.88396438e-3, 2.42546219e-2, -1.06777877e-1,
           -6.34846687e-1, -1.28717512e-1)  # fmt: skip


class Functions:
    """
    The float32 functions of one module, added to it at the first request.

    Each takes four float32 and returns four. NaN gives NaN.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self._indices: dict[str, int] = {}

    def index(self, name: str) -> int:
        """Return the index of a function, named as in `KNOWN`."""
        if name not in self._indices:
            function = FunctionCode([V128], [V128])
            if name in _ALONE:
                _ALONE[name](function)
            else:
                _BY_OTHERS[name](self, function)
            self._indices[name] = self._module.add(function)
        return self._indices[name]


def _polynomial(f: FunctionCode, x: int, factors: Sequence[float]) -> None:
    """Push a polynomial of a local; `factors` begin with that of the highest power."""
    f.floats(factors[0])
    for factor in factors[1:]:
        f.get(x)
        f.op("f32x4.mul")
        f.floats(factor)
        f.op("f32x4.add")


def _exp(f: FunctionCode) -> None:
    x, n, r = 0, f.local(V128), f.local(V128)
    f.get(x)
    f.floats(_HIGHEST)
    f.op("f32x4.min")
    f.floats(_LOWEST)
    f.op("f32x4.max")
    f.tee(x)
    f.floats(_LOG2_E)
    f.op("f32x4.mul", "f32x4.nearest")
    f.set(n)
    f.get(x, n)
    f.floats(_LN2_HIGH)
    f.op("f32x4.mul", "f32x4.sub")
    f.get(n)
    f.floats(_LN2_LOW)
    f.op("f32x4.mul", "f32x4.sub")
    f.set(r)
    _polynomial(f, r, EXPONENTIAL)
    f.get(r, r)
    f.op("f32x4.mul", "f32x4.mul")
    f.get(r)
    f.op("f32x4.add")
    f.floats(1.0)
    f.op("f32x4.add")
    f.get(n)
    f.op("i32x4.trunc_sat_f32x4_s")
    f.set(n)
    # By two powers of two, so that results of all sizes are rounded once.
    f.get(n)
    f.i32(1)
    f.op("i32x4.shr_s")
    f.tee(r)
    _power_of_two(f)
    f.op("f32x4.mul")
    f.get(n, r)
    f.op("i32x4.sub")
    _power_of_two(f)
    f.op("f32x4.mul")


def _power_of_two(f: FunctionCode) -> None:
    f.integers(127)
    f.op("i32x4.add")
    f.i32(23)
    f.op("i32x4.shl")


def _log(f: FunctionCode) -> None:
    x, e, m, z = 0, f.local(V128), f.local(V128), f.local(V128)
    small = f.local(V128)
    f.get(x)
    f.floats(_SMALLEST_NORMAL)
    f.op("f32x4.lt")
    f.set(small)
    f.get(x)
    f.floats(2.0**23)
    f.op("f32x4.mul")
    f.get(x, small)
    f.op("v128.bitselect")
    f.set(m)
    # Exponent and mantissa, the latter between the roots of 1/2 and 2.
    f.get(m)
    f.integers(0x3F35_04F3)
    f.op("i32x4.sub")
    f.tee(z)
    f.i32(23)
    f.op("i32x4.shr_s", "f32x4.convert_i32x4_s")
    f.floats(23.0)
    f.get(small)
    f.op("v128.and", "f32x4.sub")
    f.set(e)
    f.get(z)
    f.integers(0x007F_FFFF)
    f.op("v128.and")
    f.integers(0x3F35_04F3)
    f.op("i32x4.add")
    f.floats(1.0)
    f.op("f32x4.sub")
    f.tee(m)
    f.get(m)
    f.op("f32x4.mul")
    f.set(z)
    _polynomial(f, m, LOGARITHM)
    f.get(m)
    f.op("f32x4.mul")
    f.get(z)
    f.op("f32x4.mul")
    f.get(e)
    f.floats(-2.12194440e-4)
    f.op("f32x4.mul", "f32x4.add")
    f.floats(-0.5)
    f.get(z)
    f.op("f32x4.mul", "f32x4.add")
    f.get(m)
    f.op("f32x4.add")
    f.get(e)
    f.floats(0.693359375)
    f.op("f32x4.mul", "f32x4.add")
    f.set(m)
    # Of 0, of infinity, and of what has no logarithm.
    for number, answer in ((0.0, -math.inf), (math.inf, math.inf)):
        f.floats(answer)
        f.get(m, x)
        f.floats(number)
        f.op("f32x4.eq", "v128.bitselect")
        f.set(m)
    f.get(m)
    f.floats(math.nan)
    f.get(x)
    f.floats(0.0)
    f.op("f32x4.ge", "v128.bitselect")


def _log1p_of_exp(functions: Functions, f: FunctionCode, x: int) -> None:
    """Push log(1 + exp(x)) for x up to 0, to the last bit also where it is tiny."""
    e, u = f.local(V128), f.local(V128)
    f.get(x)
    f.call(functions.index("exp"))
    f.tee(e)
    f.floats(1.0)
    f.op("f32x4.add")
    f.tee(u)
    f.call(functions.index("log"))
    f.get(e)
    f.op("f32x4.mul")
    f.get(u)
    f.floats(1.0)
    f.op("f32x4.sub", "f32x4.div")
    f.get(e)
    f.get(u)
    f.floats(1.0)
    f.op("f32x4.ne", "v128.bitselect")


def _softplus(functions: Functions, f: FunctionCode) -> None:
    x, negative = 0, f.local(V128)
    f.get(x)
    f.op("f32x4.abs", "f32x4.neg")
    f.set(negative)
    f.get(x)
    f.floats(0.0)
    f.op("f32x4.max")
    _log1p_of_exp(functions, f, negative)
    f.op("f32x4.add")


def _sigmoid(functions: Functions, f: FunctionCode) -> None:
    x, e = 0, f.local(V128)
    f.get(x)
    f.op("f32x4.abs", "f32x4.neg")
    f.call(functions.index("exp"))
    f.set(e)
    f.floats(1.0)
    f.get(e, x)
    f.floats(0.0)
    f.op("f32x4.ge", "v128.bitselect")
    f.get(e)
    f.floats(1.0)
    f.op("f32x4.add", "f32x4.div")


def _with_sign_of(f: FunctionCode, x: int) -> None:
    """Give the vector on the stack, which has no signs, the signs of a local."""
    f.get(x)
    f.integers(_SIGN)
    f.op("v128.and", "v128.or")


def _tanh(functions: Functions, f: FunctionCode) -> None:
    x, a, z = 0, f.local(V128), f.local(V128)
    f.get(x)
    f.op("f32x4.abs")
    f.tee(a)
    f.get(a)
    f.op("f32x4.mul")
    f.set(z)
    _polynomial(f, z, TANH)
    f.get(z)
    f.op("f32x4.mul")
    f.get(a)
    f.op("f32x4.mul")
    f.get(a)
    f.op("f32x4.add")
    f.floats(1.0)
    f.floats(2.0)
    f.get(a, a)
    f.op("f32x4.add")
    f.call(functions.index("exp"))
    f.floats(1.0)
    f.op("f32x4.add", "f32x4.div", "f32x4.sub")
    f.get(a)
    f.floats(_TANH_SMALL)
    f.op("f32x4.lt", "v128.bitselect")
    _with_sign_of(f, x)


def _erf(functions: Functions, f: FunctionCode) -> None:
    """By Juffa's polynomials, see his answer in https://stackoverflow.com/q/35148198."""
    x, t, s = 0, f.local(V128), f.local(V128)
    f.get(x)
    f.op("f32x4.abs")
    f.tee(t)
    f.get(t)
    f.op("f32x4.mul")
    f.set(s)
    _polynomial(f, s, ERF_NEAR)
    f.get(t)
    f.op("f32x4.mul")
    f.get(t)
    f.op("f32x4.add")
    f.floats(1.0)
    _polynomial(f, t, ERF_FAR)
    f.get(t)
    f.op("f32x4.mul")
    f.get(t)
    f.op("f32x4.sub")
    f.call(functions.index("exp"))
    f.op("f32x4.sub")
    f.get(t)
    f.floats(_ERF_SMALL)
    f.op("f32x4.lt", "v128.bitselect")
    _with_sign_of(f, x)


def _around_the_circle(turn: int) -> Callable[[FunctionCode], None]:
    """Return a writer of the sine of x plus `turn` quarters of a turn."""

    def write(f: FunctionCode) -> None:
        x, n, r = 0, f.local(V128), f.local(V128)
        high = f.local(V128)
        _quarters(f, x, n, r, high)
        z = high
        f.get(r, r)
        f.op("f32x4.mul")
        f.set(z)
        f.get(n)
        f.integers(turn)
        f.op("i32x4.add")
        f.set(n)
        _polynomial(f, z, COSINE)
        f.get(z, z)
        f.op("f32x4.mul", "f32x4.mul")
        f.floats(-0.5)
        f.get(z)
        f.op("f32x4.mul", "f32x4.add")
        f.floats(1.0)
        f.op("f32x4.add")
        _polynomial(f, z, SINE)
        f.get(z)
        f.op("f32x4.mul")
        f.get(r)
        f.op("f32x4.mul")
        f.get(r)
        f.op("f32x4.add")
        f.get(n)
        f.integers(1)
        f.op("v128.and")
        f.integers(1)
        f.op("i32x4.eq", "v128.bitselect")
        f.get(n)
        f.i32(30)
        f.op("i32x4.shl")
        f.integers(_SIGN)
        f.op("v128.and", "v128.xor")

    return write


def _quarters(f: FunctionCode, x: int, n: int, r: int, high: int) -> None:
    """Set `n` to the nearest number of quarters of a turn in x, and `r` to the rest."""
    wide, count = f.local(V128), f.local(V128)
    halves = ((r, n, [0, 1, 2, 3]), (high, count, [2, 3, 0, 1]))
    for rest, number, lanes in halves:
        f.get(x, x)
        f.shuffle(lanes)
        f.op("f64x2.promote_low")
        f.tee(wide)
        f.get(wide)
        f.doubles(2.0 / math.pi)
        f.op("f64x2.mul", "f64x2.nearest")
        f.tee(number)
        f.doubles(_QUARTER_HIGH)
        f.op("f64x2.mul", "f64x2.sub")
        f.get(number)
        f.doubles(_QUARTER_LOW)
        f.op("f64x2.mul", "f64x2.sub", "f64x2.demote_zero")
        f.set(rest)
        f.get(number)
        f.op("i32x4.trunc_sat_f64x2_s_zero")
        f.set(number)
    for low, other in ((r, high), (n, count)):
        f.get(low, other)
        f.shuffle([0, 1, 4, 5])
        f.set(low)
    f.get(r)  # of a number of more turns than can be counted it is anything
    f.floats(_EIGHTH)
    f.op("f32x4.min")
    f.floats(-_EIGHTH)
    f.op("f32x4.max")
    f.set(r)


_ALONE: dict[str, Callable[[FunctionCode], None]] = {
    "exp": _exp,
    "log": _log,
    "sin": _around_the_circle(0),
    "cos": _around_the_circle(1),
}
_BY_OTHERS: dict[str, Callable[[Functions, FunctionCode], None]] = {
    "softplus": _softplus,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "erf": _erf,
}

KNOWN = (*_ALONE, *_BY_OTHERS)
"""The names of the functions."""
