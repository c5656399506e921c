"""Tables of `ark-core-v0` to `ark-core-v4`: return slices, logging, panics, pending vectors."""

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
    Lane,
    OutBlock,
    Outcome,
    OutSlice,
    Param,
    Str,
    Struct,
)

ALLOC_STATS = Struct(
    "AllocStats",
    "Allocations of a guest since its start; its export `ark_get_alloc_stats` points to one.",
    (
        Field("cumul_alloc_count", U64, "Number of allocations."),
        Field("cumul_alloc_size", U64, "Bytes allocated."),
        Field("cumul_free_count", U64, "Number of frees."),
        Field("cumul_free_size", U64, "Bytes freed."),
    ),
)

CORE_V0 = Api(
    module="ark-core-v0",
    prefix="core",
    doc="Input and result bytes of an entry point.",
    id=0x1,
    enums=(ErrorCode,),
    structs=(ALLOC_STATS,),
    functions=(
        Function(
            "return_slice",
            "Give the host the result of the current entry point. The host copies `size` bytes "
            "during the call. `len` is the number of items in the bytes; the host ignores it.",
            (Param("ptr", Block(size="size")), Param("len", U32), Param("size", U32)),
            returns=U32,
            outcome=Outcome.VALUE,
            errors=(ErrorCode.INVALID_ARGUMENTS,),
        ),
        Function(
            "get_input_slice",
            "Copy `size` bytes of the current entry point's input, starting at byte `offset`.",
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
    doc="Optional extensions of the host.",
    id=0x2,
    functions=(
        Function(
            "has_extension",
            "Check whether the host has the extension with this id. Always 0: there are none.",
            (Param("id", U64),),
            returns=U32,
            outcome=Outcome.VALUE,
            leaves_nothing=True,
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
            "Report the message and location of a panic. The guest traps right afterwards, and the "
            "host shows both. Invalid UTF-8 is replaced.",
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
            "Write one log line. `level` is a LogLevel; an unknown one counts as Error. Invalid "
            "UTF-8 is replaced. The result is always Success.",
            (Param("level", U32), Param("str", Str(lossy=True))),
            lane=Lane.LOG,
            leaves_nothing=True,
        ),
    ),
)

CORE_V4 = Api(
    module="ark-core-v4",
    prefix="core",
    doc="Vector results, and context shown with panics.",
    id=0x5,
    functions=(
        Function(
            "take_host_return_vec",
            "Move the pending vector of the last import that returned one into guest memory. "
            "`out` must have exactly the size that this import announced, also where it is 0.",
            (Param("out", OutSlice(U8)),),
            errors=(ErrorCode.INVALID_ARGUMENTS, ErrorCode.NOT_FOUND),
        ),
        Function(
            "add_debug_context",
            "Add a named value to the report that the host shows when the guest panics.",
            (Param("name_str", Str(lossy=True)), Param("value_str", Str(lossy=True))),
            outcome=Outcome.NONE,
        ),
        Function(
            "remove_debug_context",
            "Remove a value added by `add_debug_context`.",
            (Param("name_str", Str(lossy=True)),),
            outcome=Outcome.NONE,
        ),
    ),
)
