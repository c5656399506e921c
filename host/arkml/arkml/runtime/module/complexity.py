"""An estimate of the processor time and the memory that compiling a module takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arkml.errors import ModuleTooComplex
from arkml.runtime.module.binary import Binary, ExternKind, SectionId
from arkml.runtime.module.body_bounds import FlowCounts, Numbers, bodies, bounds, values
from arkml.runtime.module.control_flow import ControlFlow, control_flow

_MB = 1 << 20
SECONDS_PER_MB, BYTES_PER_MB = 0.7, 300 << 20
"""
The limits for each MB of a module; a smaller module counts as one MB.

The seconds are for the processor on which the table was measured, so that a slower or busier one
takes no more than a second. Real code takes 0.04 s.
"""

QUICK_SECONDS, QUICK_BYTES = 0.1, 128 << 20
"""The cost up to which a module is compiled in this process."""

_CODE_SECONDS, _CODE_BYTES = 2.2e-6, 65.0  # for each byte of ordinary code
_FUNCTION = (31e-6, 5.8e3)
_ESCAPING = (57e-6, 6.5e3)  # a function that is exported or an element of a table
_SIGNATURE = (80e-6, 7e3)  # a type that a function has
_LOCAL_SECONDS = 60e-9
_MOST_MERGED = 100  # locals whose values meet at a block cost up to here


@dataclass(frozen=True, slots=True)
class _Cost:
    """Seconds of processor time and bytes of memory for compiling a module."""

    seconds: float
    bytes: float


def check(binary: Binary) -> bool:
    """
    Return whether compiling `binary` surely takes less than QUICK_SECONDS and QUICK_BYTES.

    Raises ModuleTooComplex for a module that takes more than SECONDS_PER_MB or BYTES_PER_MB beyond
    ordinary code of its size, for example because of 5,000 nested loops. The table of costs was
    measured with wasmtime 50. Bounds are tightened only as far as the decision needs.
    """
    size = len(binary.data)
    most = _Cost(*(max(1.0, size / _MB) * each for each in (SECONDS_PER_MB, BYTES_PER_MB)))
    estimate = _Estimate(binary)
    code = _CODE_SECONDS * size
    if code < QUICK_SECONDS:
        estimate.refine(_Cost(QUICK_SECONDS - code, most.bytes))
    estimate.refine(most)
    if estimate.seconds > most.seconds:
        raise _too_complex(estimate.reason(), estimate.seconds, most.seconds, "s of processor time")
    if estimate.bytes > most.bytes:
        raise _too_complex(
            estimate.reason(), estimate.bytes / _MB, most.bytes / _MB, "MiB of memory"
        )
    return (
        estimate.seconds + code < QUICK_SECONDS
        and estimate.bytes + estimate.merged_bytes < QUICK_BYTES
        and None not in binary.types  # objects of the garbage collector: not in the table
    )


def _too_complex(reason: str, value: float, limit: float, unit: str) -> ModuleTooComplex:
    return ModuleTooComplex(
        f"compiling the module would take about {value:,.1f} {unit}, the limit for its size is"
        f" {limit:,.1f}; most of it is due to {reason}: split it up"
    )


class _Estimate:
    """The bound of the cost of one module, which `refine` tightens body by body."""

    def __init__(self, binary: Binary) -> None:
        self._binary = binary
        self._bodies = bodies(binary)
        self._module = _module_parts(binary, int(self._bodies.locals.sum()))
        self._types = [values(kind) for kind in binary.types]
        by_type = {id(kind): number for kind, number in zip(binary.types, self._types, strict=True)}
        self._functions = [by_type[id(kind)] for kind in binary.functions]
        counts = bounds(binary, self._bodies, self._types, self._functions)
        self._seconds = _seconds(counts, self._bodies.used)
        self._bytes = _bytes(counts, self._bodies.used)
        self._merged_bytes = _merged_bytes(counts, self._bodies.used)
        self._reasons: dict[int, ControlFlow] = {}
        self._fixed = [sum(part[i] for part in self._module.values()) for i in range(2)]
        self._fixed[1] += _CODE_BYTES * len(binary.data)
        self._least = list(self._fixed)
        self._order: list[int] | None = None

    @property
    def seconds(self) -> float:
        return self._fixed[0] + float(self._seconds.sum())

    @property
    def bytes(self) -> float:
        return self._fixed[1] + float(self._bytes.sum())

    @property
    def merged_bytes(self) -> float:
        """Memory for the values of locals where branches meet, if all locals are live there."""
        return float(self._merged_bytes.sum())

    def refine(self, most: _Cost) -> None:
        """
        Read bodies, the most expensive ones first, until the bound is within `most`.

        Ends early if the bodies read so far exceed `most`.
        """
        now, held = self.seconds, self.bytes
        if self._order is None and (now > most.seconds or held > most.bytes):
            weight = self._seconds / SECONDS_PER_MB + self._bytes / BYTES_PER_MB
            self._order = np.argsort(weight).tolist()
        least = self._least
        while self._order and (now > most.seconds or held > most.bytes):
            if least[0] > most.seconds or least[1] > most.bytes:
                return
            body = self._order.pop()
            now -= float(self._seconds[body])
            held -= float(self._bytes[body])
            self._read(body)
            now += float(self._seconds[body])
            held += float(self._bytes[body])
            least[0] += float(self._seconds[body])
            least[1] += float(self._bytes[body])

    def reason(self) -> str:
        """Name the part of the module that costs most."""
        costs = {
            name: max(part[0] / SECONDS_PER_MB, part[1] / BYTES_PER_MB)
            for name, part in self._module.items()
        }
        if len(self._seconds):
            body = int(np.argmax(self._seconds / SECONDS_PER_MB + self._bytes / BYTES_PER_MB))
            imported = len(self._binary.functions) - len(self._seconds)
            costs[self._body_reason(body, imported + body)] = max(
                float(self._seconds[body]) / SECONDS_PER_MB,
                float(self._bytes[body]) / BYTES_PER_MB,
            )
        return max(costs, key=lambda name: costs[name])

    def _body_reason(self, body: int, function: int) -> str:
        flow = self._reasons.get(body)
        locals_ = int(self._bodies.locals[body])
        if flow is None:
            return f"function {function}, with {locals_:,} locals"
        return (
            f"function {function}, with {locals_:,} locals, {flow.blocks:,} blocks,"
            f" {flow.depth:,} loops in each other, {flow.edges:,} branches,"
            f" {flow.block_values + flow.call_values:,} values of blocks and calls,"
            f" {flow.indirect_calls:,} indirect calls and {flow.growths:,} growths"
        )

    def _read(self, body: int) -> None:
        start, end = int(self._bodies.starts[body]), int(self._bodies.ends[body])
        flow = control_flow(self._binary.data, start, end, self._types, self._functions)
        if flow is not None:
            used = self._bodies.used[body]
            self._reasons[body] = flow
            self._seconds[body] = _seconds(FlowCounts.of(flow), used)
            self._bytes[body] = _bytes(FlowCounts.of(flow), used)
            self._merged_bytes[body] = _merged_bytes(FlowCounts.of(flow), used)


def _seconds(counts: FlowCounts, used: Numbers) -> Numbers:
    merged = np.minimum(used, _MOST_MERGED)
    return (
        counts.merges * (16e-9 + 5.5e-9 * merged)
        + counts.table_merges * 2.5e-9 * merged
        + counts.depth * 1.4e-6 * used
        + counts.squared_depths * 60e-9
        + counts.indirect_calls * (65e-6 + 12.5e-9 * counts.indirect_calls)
        + counts.loop_branches * counts.indirect_calls * (10e-9 + 2.7e-9 * used)
        + counts.growths * (100e-6 + 72e-9 * counts.growths)
        + counts.call_values * 10e-6
        + counts.block_values * (1e-6 + 15e-9 * counts.blocks)
        + counts.blocks * used * 90e-9
    )


def _bytes(counts: FlowCounts, used: Numbers) -> Numbers:
    return (
        counts.depth * used * 90.0
        + counts.blocks * used * 25.0
        + counts.indirect_calls * 17e3
        + counts.growths * 23e3
        + counts.call_values * 600.0
        + counts.block_values * (1.5e3 + 26.0 * counts.blocks)
    )


def _merged_bytes(counts: FlowCounts, used: Numbers) -> Numbers:
    return (counts.edges + counts.blocks) * used * 125.0


def _module_parts(binary: Binary, locals_: int) -> dict[str, tuple[float, float]]:
    """Return seconds and bytes of all parts outside of bodies."""
    functions = len(binary.functions)
    elements = binary.section(SectionId.ELEMENT)
    exported = sum(export.kind is ExternKind.FUNCTION for export in binary.exports)
    escaping = exported + (0 if elements is None else elements.end - elements.payload)
    escaping = min(functions, escaping)
    signatures = len(set(map(id, binary.functions)))
    return {
        f"its {functions:,} functions": (_FUNCTION[0] * functions, _FUNCTION[1] * functions),
        f"its {escaping:,} functions that are exported or in tables": (
            _ESCAPING[0] * escaping,
            _ESCAPING[1] * escaping,
        ),
        f"the {locals_:,} locals of its functions": (_LOCAL_SECONDS * locals_, 0.0),
        f"the {signatures:,} types of its functions": (
            _SIGNATURE[0] * signatures,
            _SIGNATURE[1] * signatures,
        ),
    }
