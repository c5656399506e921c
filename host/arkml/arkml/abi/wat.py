"""The WebAssembly text of imports, and of a proxy module that forwards to them."""

from __future__ import annotations

from collections.abc import Sequence

from arkml.abi.layout import results, slots
from arkml.abi.schema import Api, Function


def proxy(apis: Sequence[Api], *, pages: int = 1) -> str:
    """
    Render a guest that imports all of `apis` and exports each function as `MODULE.SYMBOL`.

    The guest exports its memory, which begins with `pages` pages and may grow. Through it a test
    can call each import, without a compiler.
    """
    rows = [(api, function) for api in apis for function in api.functions]
    lines = ["(module"]
    lines += [f"  {import_(api, function)}" for api, function in rows]
    lines += [f'  (memory (export "memory") {pages})']
    lines += [line for api, function in rows for line in _forward(api, function)]
    return "\n".join([*lines, ")", ""])


def import_(api: Api, function: Function) -> str:
    """Return the import declaration of a function as wasm text."""
    symbol = api.symbol(function)
    name = f"${api.module}.{symbol}"
    return f'(import "{api.module}" "{symbol}" (func {name}{signature(function)}))'


def signature(function: Function) -> str:
    """Return a function's parameters and results as wasm text, each with a space before it."""
    params = "".join(f" (param ${slot.name} {slot.wasm})" for slot in slots(function))
    return params + "".join(f" (result {wasm})" for wasm in results(function))


def _forward(api: Api, function: Function) -> list[str]:
    name = f"{api.module}.{api.symbol(function)}"
    arguments = "".join(f" (local.get ${slot.name})" for slot in slots(function))
    return [
        f'  (func (export "{name}"){signature(function)}',
        f"    (call ${name}{arguments}))",
    ]
