"""The noise of `policies.noise` as wasm code, with the same bits on every machine."""

from __future__ import annotations

from arkml.policies.kernel.assembler import I32, I64, V128, FunctionCode, Module
from arkml.policies.kernel.functions import Functions
from arkml.policies.noise import FIRST, GOLDEN, OCTAVES, SECOND, TURN, UNIT

_FLOAT = 4


class NoiseCode:
    """
    Writes the function that fills an input of `width` numbers, at an address, with noise.

    Its parameters are an agent's stream (i64), its step (i64), and 1 for pink noise (i32).
    """

    def __init__(self, module: Module, functions: Functions, address: int, width: int) -> None:
        self._module, self._functions = module, functions
        self._address, self._width = address, width

    def add(self, export: str) -> None:
        """Add the function to the module, and export it."""
        mix = self._module.add(_mix())
        normal = self._module.add(self._normal(mix))
        f = FunctionCode([I64, I64, I32])
        stream, step, pink = 0, 1, 2
        place, octave, own = f.local(I32), f.local(I64), f.local(I64)
        if self._width:
            f.i32(0)
            f.set(place)
            with f.loop(self._width, (place, _FLOAT)):
                f.get(place)
                f.f32(0.0)
                f.memory("f32.store", self._address)
            f.get(pink)
            with f.branch():
                f.i64(0)
                f.set(octave)
                with f.loop(OCTAVES):
                    f.get(stream, octave)
                    f.i64(int(GOLDEN))
                    f.op("i64.mul", "i64.add")
                    f.call(mix)
                    f.tee(own)
                    f.get(step, own)
                    f.i64(32)
                    f.op("i64.shr_u", "i64.add")
                    f.get(octave)
                    f.op("i64.shr_u")
                    f.call(normal)
                    f.get(octave)
                    f.i64(1)
                    f.op("i64.add")
                    f.set(octave)
                f.i32(0)
                f.set(place)
                with f.loop(self._width, (place, _FLOAT)):
                    f.get(place, place)
                    f.memory("f32.load", self._address)
                    f.f32(OCTAVES**-0.5)
                    f.op("f32.mul")
                    f.memory("f32.store", self._address)
                f.otherwise()
                f.get(stream, step)
                f.call(normal)
        self._module.add(f, export)

    def _normal(self, mix: int) -> FunctionCode:
        """Return the function that adds to the input the numbers of a stream at a step."""
        f = FunctionCode([I64, I64])
        stream, step = 0, 1
        start, pair, word = f.local(I64), f.local(I64), f.local(I64)
        place, radius, angle = f.local(I32), f.local(V128), f.local(V128)
        f.get(stream, step)
        f.i64(int(GOLDEN))
        f.op("i64.mul", "i64.add")
        f.call(mix)
        f.set(start)
        f.i64(0)
        f.set(pair)
        f.i32(0)
        f.set(place)
        whole, rest = divmod(self._width, 2)
        for turns, numbers in ((whole, 2), (rest, 1)):
            if not turns:
                continue
            with f.loop(turns, (place, 2 * _FLOAT)):
                f.get(pair)
                f.i64(int(GOLDEN))
                f.op("i64.add")
                f.tee(pair)
                f.get(start)
                f.op("i64.add")
                f.call(mix)
                f.set(word)
                self._radius(f, word, radius)
                f.get(word)
                f.op("i32.wrap_i64", "f32.convert_i32_u", "f32x4.splat")
                f.floats(float(TURN))
                f.op("f32x4.mul")
                f.set(angle)
                for index, side in enumerate(("cos", "sin")[:numbers]):
                    f.get(place, place)
                    f.memory("f32.load", self._address + _FLOAT * index)
                    f.get(angle)
                    f.call(self._functions.index(side))
                    f.get(radius)
                    f.op("f32x4.mul")
                    f.lane(0)
                    f.op("f32.add")
                    f.memory("f32.store", self._address + _FLOAT * index)
        return f

    def _radius(self, f: FunctionCode, word: int, radius: int) -> None:
        f.get(word)
        f.i64(32)
        f.op("i64.shr_u", "i32.wrap_i64", "f32.convert_i32_u", "f32x4.splat")
        f.floats(0.5)
        f.op("f32x4.add")
        f.floats(float(UNIT))
        f.op("f32x4.mul")
        f.call(self._functions.index("log"))
        f.floats(-2.0)
        f.op("f32x4.mul", "f32x4.sqrt")
        f.set(radius)


def _mix() -> FunctionCode:
    """Return the function of `noise.mix`."""
    f = FunctionCode([I64], [I64])
    for shift, factor in ((30, FIRST), (27, SECOND), (31, None)):
        f.get(0, 0)
        f.i64(shift)
        f.op("i64.shr_u", "i64.xor")
        if factor is not None:
            f.i64(int(factor))
            f.op("i64.mul")
            f.set(0)
    return f
