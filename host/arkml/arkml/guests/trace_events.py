"""The events of a trace: in order, all inputs of a guest from outside its wasm."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from arkml.runtime.saved_memory import PackedMemory

_Word = Annotated[int, Meta(ge=0, lt=1 << 32)]
_Long = Annotated[int, Meta(ge=0)]  # msgspec compares bounds of 63 bits only
_Size = Annotated[int, Meta(ge=0, lt=1 << 40)]
_Code = Annotated[int, Meta(ge=0, le=8)]  # the shim counts by it, in its control block
_Answer = Annotated[int, Meta(ge=1, le=9)]  # a guest without one would wait for ever
_Number: TypeAlias = int | float

# Written by the hundred in a frame: arrays, no garbage collection, and short tags.


class Called(Struct, array_like=True, tag=0, gc=False):
    """
    A call of an export begins.

    Calls that prepare another one, such as initializers and allocations, have the number of the
    frame before them. `is_command` says that an exit of the call is that of the guest.
    """

    function: str
    arguments: tuple[_Number, ...]
    data: bytes
    frame: _Size
    is_command: bool


class Returned(Struct, array_like=True, tag=1, gc=False):
    """A call has ended. A value of None also stands for an unknown result, as in a fleet."""

    value: _Number | tuple[_Number, ...] | None


class Failed(Struct, array_like=True, tag=2, gc=False):
    """The guest has failed in a call, by an error whose class is named `kind`."""

    kind: str
    text: str
    code: str


class Wrote(Struct, array_like=True, tag=3, gc=False):
    """The host wrote bytes into the guest's memory."""

    pointer: _Word
    data: bytes


class Imported(Struct, array_like=True, tag=4, gc=False):
    """
    A call of an import was answered.

    Attributes:
        index: Index of the import in the list `imports` in the head of the trace.
        answer: The word ANSWER: a code plus one.
        value: The word VALUE.
        number: The first argument's 8 bytes, where results of f64 lie.
        refusal: The sentence about an import that was refused.

    """

    index: _Word
    answer: _Answer
    value: _Word
    number: _Long
    refusal: str


class Settled(Struct, array_like=True, tag=5, gc=False):
    """The wait in the preceding import call has ended, and the call returned `value`."""

    value: _Word


class Asked(Struct, array_like=True, tag=6, gc=False):
    """A function of the embedder's game has answered; `results` has 8 bytes for each result."""

    index: _Word
    results: bytes


class Submitted(Struct, array_like=True, tag=7, gc=False):
    """
    A submit was answered.

    Attributes:
        index: The index of the session's record.
        code: The code that the guest gets.
        rows: Number of rows.
        sums: Checksums of `Region.checksums`.
        actions: float32, [rows, num_actions], as bytes; empty if the submit was refused.
        values: float32, [rows], as bytes; empty for zeros.

    """

    index: _Word
    code: _Code
    rows: _Word
    sums: tuple[_Word, _Word, _Word]
    actions: bytes
    values: bytes


class Opened(Struct, array_like=True, tag=8, gc=False):
    """The queue of a session was opened."""

    index: _Word
    handle: _Long
    training: bool
    num_features: _Word
    num_actions: _Word


class Closed(Struct, array_like=True, tag=9, gc=False):
    """The queue of a session was closed."""

    index: _Word


class Cleared(Struct, array_like=True, tag=10, gc=False):
    """The host emptied the queue of a session, without answering its rows."""

    index: _Word


class GrowthLimited(Struct, array_like=True, tag=11, gc=False):
    """The memory may grow to `size` bytes from now on."""

    size: _Size


class Ungrown(Struct, array_like=True, tag=12, gc=False):
    """A queue could not grow for new rows or metadata, and the guest got an error code."""

    rows: _Word
    size: _Word
    code: _Code


Effect: TypeAlias = Wrote | Opened | Closed | Cleared | GrowthLimited
"""What happens beside the answer that follows it."""

Event: TypeAlias = (
    Called | Returned | Failed | Imported | Settled | Asked | Submitted | Ungrown | Effect
)


class SavedQueue(Struct, array_like=True):
    """The queue of a session between two calls, with the rows that wait in it."""

    opened: Opened
    words: tuple[_Word, ...]
    columns: tuple[bytes, ...]
    metadata: bytes


class Start(Struct, array_like=True):
    """
    The state of a guest at the beginning of a segment.

    Attributes:
        frame: The number of frames before the segment.
        memory: The guest's memory, None for a new instance.
        globals: The values of the globals, packed.
        growth: The bytes to which the memory may grow, None for the limit itself.
        queues: The queues of the sessions.
        follows: True if the previous segment ends in this state.
        tables: The tables that change, in the form that an instance loads.

    """

    frame: _Size
    memory: PackedMemory | None
    globals: bytes
    growth: _Size | None
    queues: list[SavedQueue]
    follows: bool
    tables: tuple[bytes, ...] = ()


class Head(Struct, kw_only=True):
    """
    The head of a trace: the facts about its guest that a replay needs.

    Attributes:
        release: The release of arkml that wrote the trace.
        module: The digest of the module.
        name: Name of the guest.
        began: Nanoseconds since the Unix epoch.
        limits: The limits of the guest, by name.
        imports: The names of the imports of that release, by which events refer to imports.
        game: The functions of the game, by module and name.
        stub_missing: Whether unknown imports were stubs.
        wasi: Arguments and environment of the program, None without WASI.

    """

    release: str
    module: str
    name: str
    began: int
    limits: dict[str, int | float | None]
    imports: list[str]
    game: list[tuple[str, str]]
    stub_missing: bool
    wasi: tuple[list[str], dict[str, str]] | None


class End(Struct):
    """The end of a trace, with the reason: "closed", "failed" or "reloaded"."""

    reason: str
