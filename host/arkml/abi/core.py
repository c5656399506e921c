"""`ark-core-v0` … `ark-core-v4`, declared once: return slices, logging, panics, pending vectors."""

from __future__ import annotations

from arkml.abi.codes import ErrorCode, LogLevel
from arkml.abi.schema import (
    U8,
    U32,
    U64,
    Api,
    Block,
    Field,
    Function,
    OutBlock,
    Outcome,
    OutSlice,
    Param,
    Str,
    Struct,
)

ALLOC_STATS = Struct(
    "AllocStats",
    "What `ark_get_alloc_stats` of a guest points to: its allocations since it started.",
    (
        Field("cumul_alloc_count", U64, "Allocations."),
        Field("cumul_alloc_size", U64, "Bytes allocated."),
        Field("cumul_free_count", U64, "Frees."),
        Field("cumul_free_size", U64, "Bytes freed."),
    ),
)

CORE_V0 = Api(
    module="ark-core-v0",
    prefix="core",
    doc="Bytes in and out of an entry point.",
    id=0x1,
    enums=(ErrorCode,),
    structs=(ALLOC_STATS,),
    functions=(
        Function(
            "return_slice",
            "Give the host the result of the current entry point. The host copies `size` bytes "
            "at once. `len` counts the items the bytes hold; the host ignores it.",
            (Param("ptr", Block(size="size")), Param("len", U32), Param("size", U32)),
            returns=U32,
            outcome=Outcome.VALUE,
            errors=(ErrorCode.INVALID_ARGUMENTS,),
        ),
        Function(
            "get_input_slice",
            "Copy `size` bytes of the current entry point's input, from byte `offset` on.",
            (Param("ptr", OutBlock(size="size")), Param("size", U32), Param("offset", U32)),
            returns=U32,
            outcome=Outcome.VALUE,
            errors=(ErrorCode.INVALID_ARGUMENTS,),
        ),
    ),
)

CORE_V1 = Api(
    module="ark-core-v1",
    prefix="core",
    doc="Asking for extensions.",
    id=0x2,
    functions=(
        Function(
            "has_extension",
            "Whether the host has the extension with this id. Always 0: there are none.",
            (Param("id", U64),),
            returns=U32,
            outcome=Outcome.VALUE,
        ),
    ),
)

CORE_V2 = Api(
    module="ark-core-v2",
    prefix="core",
    doc="Reporting panics.",
    id=0x3,
    functions=(
        Function(
            "register_panic",
            "Report a panic's message and place. The guest traps right afterwards, and the host "
            "shows both. Invalid UTF-8 is replaced.",
            (
                Param("err_msg", Str(lossy=True)),
                Param("location_file", Str(lossy=True)),
                Param("location_line", U32),
                Param("location_column", U32),
            ),
            errors=(ErrorCode.INVALID_ARGUMENTS,),
        ),
    ),
)

CORE_V3 = Api(
    module="ark-core-v3",
    prefix="core",
    doc="Logging.",
    id=0x4,
    enums=(LogLevel,),
    functions=(
        Function(
            "log",
            "Write one log line. `level` is a LogLevel; an unknown one counts as Error, and "
            "invalid UTF-8 is replaced. Always answered with Success.",
            (Param("level", U32), Param("str", Str(lossy=True))),
        ),
    ),
)

CORE_V4 = Api(
    module="ark-core-v4",
    prefix="core",
    doc="Fetching vector results, and context for panics.",
    id=0x5,
    functions=(
        Function(
            "take_host_return_vec",
            "Move the pending vector of the last import that returned one into guest memory. "
            "`out` must have exactly the size that import announced, 0 included.",
            (Param("out", OutSlice(U8)),),
            errors=(ErrorCode.INVALID_ARGUMENTS, ErrorCode.NOT_FOUND),
        ),
        Function(
            "add_debug_context",
            "Attach a named value to what the host shows when the guest panics.",
            (Param("name_str", Str(lossy=True)), Param("value_str", Str(lossy=True))),
            outcome=Outcome.NONE,
        ),
        Function(
            "remove_debug_context",
            "Forget a value attached by `add_debug_context`.",
            (Param("name_str", Str(lossy=True)),),
            outcome=Outcome.NONE,
        ),
    ),
)
