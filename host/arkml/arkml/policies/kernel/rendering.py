"""Models compiled to WebAssembly SIMD: a module that computes one row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from arkml.policies.kernel.assembler import FunctionCode, Module
from arkml.policies.kernel.emission import Emission, KernelMemory
from arkml.policies.kernel.functions import Functions
from arkml.policies.kernel.graph import Given, NumberKind, Value, pointwise
from arkml.policies.kernel.normal import NoiseCode
from arkml.policies.kernel.plan import ordered, plan
from arkml.policies.kernel.reading import outputs_of_row
from arkml.policies.ports import Port, by_stem
from arkml.policies.vetting import Vetted

SECTION = "arkml.kernel"
"""Name of the custom section that says where inputs and outputs lie."""

VERSION = 1
"""Version of the section."""

NOISE = "epsilon"
"""The stem of the input that `noise` fills."""


class Kernel:
    """
    A module without imports that computes one row of a model.

    The module exports `memory`, which never grows; `run()`, which reads the inputs and writes the
    outputs; and `noise(stream: i64, step: i64, pink: i32)`, which fills the noise input, if there
    is one, as `policies.noise` does. Results have the same bits on every machine.

    Args:
        vetted: A graph whose rows are first in all inputs and outputs. With None there is no `run`:
            another runtime computes the outputs from the inputs, in the same memory.
        inputs: The inputs of the graph.
        outputs: The outputs that are computed.

    Raises:
        ModelRejected: The graph has operators that a kernel cannot compute.

    """

    def __init__(
        self, vetted: Vetted | None, inputs: Sequence[Port], outputs: Sequence[Port]
    ) -> None:
        found: Sequence[Value]
        if vetted is None:
            found = [Given((1, *port.shape), NumberKind.FLOAT, port.name) for port in outputs]
        else:
            found = outputs_of_row(vetted, inputs, outputs)
            found = [pointwise("settled", value) for value in found]
        self._module = Module()
        self._memory = KernelMemory(self._module)
        given = {} if vetted is None else {value.name: value for value in _given(found)}
        for port in inputs:
            shape = (1, *port.shape)
            given.setdefault(port.name, Given(shape, NumberKind.FLOAT, port.name))
        self.inputs: dict[str, int] = {
            port.name: self._memory.address(given[port.name]) for port in inputs
        }
        """Where each input lies, in bytes from the beginning of the memory."""
        self.outputs: dict[str, int] = {
            port.name: self._memory.address(value)
            for port, value in zip(outputs, found, strict=True)
        }
        """Where each output lies."""
        functions = Functions(self._module)
        if vetted is not None:
            emission = Emission(self._module, self._memory, functions)
            run = FunctionCode()
            for index in [emission.add(stage) for stage in plan(found)]:
                run.call(index)
            self._module.add(run, "run")
        epsilon = by_stem(inputs).get(NOISE)
        self.has_noise: bool = epsilon is not None
        """True if there is a function `noise`."""
        if epsilon is not None:
            address = self.inputs[epsilon.name]
            NoiseCode(self._module, functions, address, epsilon.width).add("noise")

    @property
    def size(self) -> int:
        """Bytes of memory that the module takes."""
        return self._memory.size

    def binary(self, notes: Mapping[str, object]) -> bytes:
        """Return the module, with `notes` as JSON in its custom section."""
        text = json.dumps({"version": VERSION, **notes}, separators=(",", ":"))
        return self._module.binary(self._memory.size, SECTION, text.encode())


def _given(outputs: Sequence[Value]) -> list[Given]:
    return [value for value in ordered(outputs) if isinstance(value, Given)]
