"""The catalog of every API that the host implements, in a fixed order."""

from __future__ import annotations

from functools import cache

from arkml.abi.core import CORE_V0, CORE_V1, CORE_V2, CORE_V3, CORE_V4
from arkml.abi.env_imports import ENV
from arkml.abi.ml_inference_v0 import ML_INFERENCE_V0
from arkml.abi.ml_v1 import ML_V1
from arkml.abi.ml_v2 import ML_V2
from arkml.abi.ml_v3 import ML_V3
from arkml.abi.ml_v4 import ML_V4
from arkml.abi.ml_v5 import ML_V5
from arkml.abi.schema import Api, Function
from arkml.abi.time import TIME_V1
from arkml.abi.wasi import WASI

APIS: tuple[Api, ...] = (
    CORE_V0,
    CORE_V1,
    CORE_V2,
    CORE_V3,
    CORE_V4,
    TIME_V1,
    ML_V1,
    ML_V2,
    ML_V3,
    ML_V4,
    ML_V5,
    ML_INFERENCE_V0,
)
"""The ark APIs; 85 functions."""

FOREIGN: tuple[Api, ...] = (ENV,)
"""Modules that compilers import on their own, beside the ark APIs."""

INTERNAL: tuple[Api, ...] = (WASI,)
"""Modules that the host's own generated wasm imports; a guest cannot import them."""


def find(module: str, symbol: str) -> tuple[Api, Function] | None:
    """Return the table entry of an import, such as `core__log` of `ark-core-v3`, or None."""
    return _by_import().get((module, symbol))


@cache
def _by_import() -> dict[tuple[str, str], tuple[Api, Function]]:
    return {
        (api.module, api.symbol(function)): (api, function)
        for api in (*APIS, *FOREIGN)
        for function in api.functions
    }
