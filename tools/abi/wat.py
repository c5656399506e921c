"""The WebAssembly text of all imports."""

from __future__ import annotations

from collections.abc import Sequence

from arkml.abi.schema import Api
from arkml.abi.wat import import_
from tools.abi.text import NOTICE, comment


def imports(apis: Sequence[Api]) -> str:
    """Render a module that consists of imports, to copy lines from."""
    lines = [f";; {NOTICE}", "(module"]
    for api in apis:
        lines += ["", *comment(f"{api.module}: {api.doc}", ";;", "  ")]
        lines += [f"  {import_(api, function)}" for function in api.functions]
    return "\n".join([*lines, ")", ""])
