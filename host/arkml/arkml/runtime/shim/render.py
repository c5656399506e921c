"""
The shim: the wasm module between a guest and the host, rendered from the ABI tables.

Theory of operation. A guest does not import functions of the host. It imports functions of the
shim, a wasm module of this package, which exports functions of the tables as `MODULE.SYMBOL`, but
only functions that the guest imports, because each instance has 32 bytes for each function, 3 KiB
for all. The shim owns the guest's memory, `$g`, and shares a second memory with the host, `$c`: the
column memory, with a control block for each guest and a record for each session (see `control`). So
the shim reads and writes both sides by plain loads and stores, and the host finds all it needs in
memory that numpy sees too. A push therefore reaches Python only to make its region larger.

The lane of a function (`abi.schema.Lane`: by whom it is answered) decides how its export is
rendered:

- PUSH appends one row to the columns of a session and returns: no suspension. `_push` checks the
  handle, the state, the widths and the bounds of each slice, asks for room, stores the scalars as
  one record of `ROW`, and copies features, given actions and metadata. A row without room suspends
  once in GROW, and the host makes the region larger.
- SUBMIT suspends until a policy has answered all rows of the session. `_submit` renders the checks
  of the handle and passes the rest to `$submit` of `frame`, which checks the room for the answer,
  suspends, and copies actions and values to the guest, with zeros for numbers that are not finite.
- HOST stores its arguments in the control block, one slot of 8 bytes each, and suspends with
  FIRST_IMPORT plus its index in `host_imports`. A Python handler answers.
- LOG is HOST, except that a line of a level that is off returns at once.
- ANSWER first suspends as a submit does and then as HOST, so that a handler makes the bytes.

Functions of the embedder's game are rendered like HOST, by the types of the guest's imports; their
results lie where their arguments were.

The shim's own refusals cost no suspension either. `$refuse` counts the code and leaves the
`RefusalReason`, the number of the function (its index in `noted`) and two numbers, such as a given
width and the wanted one; the host makes a sentence of them when it next looks. All checks of a call
come before its first store to a column, so that a refused push leaves no trace there. A submit that
is refused for its arguments empties the queue of its session.

Two parts of a push look odd and are there for speed. While features are copied, four vector sums
add them up; a sum that is finite proves that all its floats are, so that a submit scans the rows
again only if a sum was suspect. And before a row is stored, it is compared with the row that its
memory still holds from the previous submit (`_moved`): if the agent is the same and continues, the
bits of `moved` are zero, and an environment need not search for the agent.

The text is the same for all guests with the same imports: widths, capacities and addresses are
fields of records, not constants. One compiled module serves every session of these guests. Code
that depends on no table, such as the suspension and the loop of frames, is in `frame`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import assert_never

from arkml.abi.codes import EpisodeState, ErrorCode
from arkml.abi.layout import output_name, results, slots, struct_size
from arkml.abi.schema import F64, Api, Function, Lane, Outcome, Param, Slice, Struct
from arkml.batches import ROW, row_offset
from arkml.runtime.module.description import ImportInfo
from arkml.runtime.module.wasm_types import FunctionType
from arkml.runtime.shim import control_block as at
from arkml.runtime.shim import frame
from arkml.runtime.shim.control_block import Kind, Moved, Reason, RefusalReason

BLOCK = 64  # floats copied between two epoch checks
NAME = "arkml-shim"
"""Name of the module in backtraces."""


def module(
    apis: Sequence[Api], wanted: Collection[tuple[str, str]], game: Sequence[ImportInfo] = ()
) -> str:
    """
    Render the shim; import number k of the host lane suspends with FIRST_IMPORT + k.

    Args:
        apis: The tables.
        wanted: The functions of the tables that it exports, by module and symbol, as
            ("ark-core-v3", "core__log").
        game: Functions of the embedder's game; number k suspends with FIRST_GAME + k.

    """
    lines = [f"(module ${NAME}", frame.TEXT]
    numbers = {(api.module, one.name): number for number, (api, one) in enumerate(noted(apis))}
    for index, (api, function) in enumerate(host_imports(apis)):
        if (api.module, api.symbol(function)) not in wanted:
            continue
        number = numbers.get((api.module, function.name), 0)
        lines += _host_lane(api, function, Reason.FIRST_IMPORT + index, number)
    for api, function in noted(apis):
        if (api.module, api.symbol(function)) not in wanted:
            continue
        number = numbers[api.module, function.name]
        if function.lane is Lane.PUSH:
            lines += _push(api, function, number)
        elif function.lane is Lane.SUBMIT:
            lines += _submit(api, function, number)
    for index, entry in enumerate(game):
        lines += _of_game(entry, index)
    return "\n".join([*lines, ")"])


def host_imports(apis: Iterable[Api]) -> Iterator[tuple[Api, Function]]:
    """
    Yield the functions that a Python handler answers, in the order of their indices in the shim.
    """
    for api in apis:
        yield from ((api, f) for f in api.functions if f.lane.has_handler)


def noted(apis: Iterable[Api]) -> Iterator[tuple[Api, Function]]:
    """Yield the functions whose refusals the shim notes, in the order of their numbers there."""
    for api in apis:
        for function in api.functions:
            if function.lane in (Lane.PUSH, Lane.SUBMIT, Lane.ANSWER):
                yield api, function


def export_name(module: str, symbol: str) -> str:
    """Return the name of the export that a guest imports as `module` `symbol`."""
    return f"{module}.{symbol}"


def game_export(index: int) -> str:
    """Return the name of the shim's export for function `index` of the embedder's game."""
    return f"game:{index}"


def _of_game(entry: ImportInfo, index: int) -> Iterator[str]:
    """Store the arguments in the control block, where the results are after the suspension."""
    kind = entry.type
    assert isinstance(kind, FunctionType)
    params = " ".join(f"(param {each})" for each in kind.params)
    results = " ".join(f"(result {each})" for each in kind.results)
    yield f'(func (export "{game_export(index)}") {params} {results}'
    for place, each in enumerate(kind.params):
        offset = at.ARGUMENTS + 8 * place
        yield f"({each}.store $c offset={offset} (global.get $base) (local.get {place}))"
    yield f"(drop (call $wait (i32.const {Reason.FIRST_GAME + index})))"
    for place, each in enumerate(kind.results):
        yield f"({each}.load $c offset={at.ARGUMENTS + 8 * place} (global.get $base))"
    yield ")"


def _head(api: Api, function: Function, *locals_: str) -> str:
    name = export_name(api.module, api.symbol(function))
    params = " ".join(f"(param ${slot.name} {slot.wasm})" for slot in slots(function))
    result = "".join(f" (result {kind})" for kind in results(function))
    names = " ".join(f"(local ${name} i32)" for name in locals_)
    return f'(func (export "{name}") {params}{result} {names}'


def _host_lane(api: Api, function: Function, reason: int, number: int) -> Iterator[str]:
    if function.lane is Lane.ANSWER:
        yield _head(api, function, "r", "code")
        yield _session(function.params[0], number)
        size = output_name(function)
        yield f"(if (call $outside (local.get ${size}) (i32.const 1))"
        yield " (then (return (call $refuse_submit (local.get $r)"
        yield f" (i32.const {RefusalReason.OUTSIDE}) (i32.const {number})"
        yield f" (call $end (local.get ${size}) (i32.const 1)) (call $memory)))))"
        yield "(if (local.tee $code (call $ask_countable (local.get $r)))"
        yield f" (then (return {_refusal('(local.get $code)', RefusalReason.HOST, number)})))"
    else:
        yield _head(api, function)
    if function.lane is Lane.LOG:
        level = function.params[0].name
        yield f"(if (call $is_off (local.get ${level}))"
        yield f" (then (return (i32.const {ErrorCode.SUCCESS}))))"
    for index, slot in enumerate(slots(function)):
        offset = at.ARGUMENTS + 8 * index
        yield f"({slot.wasm}.store $c offset={offset} (global.get $base) (local.get ${slot.name}))"
    yield f"(call $wait (i32.const {reason}))"
    match function.outcome:
        case Outcome.NONE:
            yield "drop"
        case Outcome.NEVER:
            yield "drop unreachable"
        case Outcome.VALUE if function.returns is F64:
            yield f"drop (f64.load $c offset={at.ARGUMENTS} (global.get $base))"
        case Outcome.VALUE:
            yield f"drop (i32.load $c offset={at.VALUE} (global.get $base))"
        case Outcome.CODE:
            pass
        case _:
            assert_never(function.outcome)
    yield ")"


def _push(api: Api, function: Function, number: int) -> Iterator[str]:
    context, _, state, _, features, *rest = function.params
    given = next((p for p in rest if p.name == "actions"), None)
    metadata = next((p for p in rest if p.name == "metadata"), None)
    yield _head(api, function, "r", "n", "row", "from", "to", "left", "need")
    yield " ".join(f"(local ${name} v128)" for name in ("x", *_SUMS))
    yield _session(context, number)
    state_value, last = f"(local.get ${state.name})", f"(i32.const {max(EpisodeState)})"
    is_state = f"(i32.gt_u {state_value} {last})"
    yield _refuse(is_state, RefusalReason.STATE, number, state_value, last)
    yield _same(features, at.NUM_FEATURES, RefusalReason.FEATURES, number)
    yield _bounds(features, 4, number)
    if given:
        yield f"(if {_length(given)} (then"
        yield _same(given, at.NUM_ACTIONS, RefusalReason.GIVEN, number)
        yield "))"
        yield _bounds(given, 4, number)
    if metadata:
        yield _metadata_need(metadata, number)
    yield _room(metadata, number)
    yield from _store_row(function, given, metadata)
    yield from _copy_row(features, at.FEATURES, at.NUM_FEATURES, look=True)
    yield _SUSPECT
    if given:
        yield f"(if {_length(given)} (then"
        yield from _copy_row(given, at.GIVEN, at.NUM_ACTIONS, look=False)
        yield "))"
    if metadata:
        yield _append_metadata(metadata)
    yield f"(i32.store $c offset={at.COUNT} (local.get $r) (i32.add (local.get $n) (i32.const 1)))"
    yield "(i32.const 0))"


def _room(metadata: Param | None, number: int) -> str:
    """Suspend in a grow where the region, or its metadata log, has no room for one more row."""
    full = f"(i32.ge_u {_load(at.COUNT)} {_load(at.CAPACITY)})"
    if metadata:
        used = f"(i32.add {_load(at.METADATA_USED)} (local.get $need))"
        full = f"(i32.or {full} (i32.gt_u {used} {_load(at.METADATA_CAPACITY)}))"
    return (
        f"(if {full} (then (if (local.tee $to (call $grow (local.get $r) (local.get $need)))"
        f" (then (return {_refusal('(local.get $to)', RefusalReason.HOST, number)})))))"
    )


def _store_row(function: Function, given: Param | None, metadata: Param | None) -> Iterator[str]:
    """Set $n and $row, store the scalars of the row, and count the row if it ends its episode."""
    _, agent, state, reward, *rest = function.params
    has_length = any(param.name == "length" for param in rest)
    fields = (
        ("id", "i64", f"(local.get ${agent.name})"),
        ("state", "i32", f"(local.get ${state.name})"),
        ("reward", "f32", f"(local.get ${reward.name})"),
        ("length", "f32", "(local.get $length)" if has_length else "(f32.const 0)"),
        ("given", "i32", _length(given) if given else "(i32.const 0)"),
        ("metadata", "i32", _length(metadata) if metadata else "(i32.const 0)"),
    )
    yield f"(local.set $n {_load(at.COUNT)})"
    yield f"(local.set $row (i32.add {_load(at.ROWS)} (i32.mul (local.get $n)"
    yield f" (i32.const {ROW.itemsize}))))"
    yield _moved(agent.name, state.name)
    for name, kind, value in fields:
        yield f"({kind}.store $c offset={row_offset(name)} (local.get $row) {value})"
    ends = _is_end(f"(local.get ${state.name})")
    yield f"(i32.store $c offset={at.ENDED} (local.get $r) (i32.add {_load(at.ENDED)} {ends}))"


def _moved(agent: str, state: str) -> str:
    """Compare a row, before it is stored, with the row that its place still holds."""
    is_other = (
        f"(i64.ne (i64.load $c offset={row_offset('id')} (local.get $row)) (local.get ${agent}))"
    )
    has_ended = _is_end(f"(i32.load $c offset={row_offset('state')} (local.get $row))")
    bits = {
        Moved.ABSENT: "(i32.or (local.get $from) (local.get $to))",
        Moved.NEW: "(local.get $from)",
        Moved.LEFT: "(i32.gt_u (local.get $from) (local.get $to))",
    }
    moved = f"(local.get ${state})"
    for bit, is_set in bits.items():
        moved = f"(i32.or {moved} (i32.shl {is_set} (i32.const {bit.bit_length() - 1})))"
    place = f"offset={row_offset('moved')} (local.get $row)"
    return (
        f"(if (i32.lt_u (local.get $n) {_load(at.FOLLOWED)})"
        f" (then (local.set $from {is_other}) (local.set $to {has_ended})"
        f" (i32.store $c {place} {moved}))"
        f" (else (i32.store $c {place} (i32.const {sum(Moved)}))))"
    )


def _is_end(state: str) -> str:
    """Test for the states in which a row ends its episode."""
    first, last = EpisodeState.TERMINAL, EpisodeState.INTERRUPTED
    return f"(i32.lt_u (i32.sub {state} (i32.const {first})) (i32.const {last - first + 1}))"


def _copy_row(param: Param, column: int, width: int, *, look: bool) -> Iterator[str]:
    """Copy a row of floats: blocks in a loop, the tail by its bits; `look` adds them up as well."""
    yield f"(local.set $left (local.get ${param.name}_len))"
    yield f"(local.set $from (local.get ${param.name}_ptr))"
    row = f"(i32.mul (local.get $n) (i32.shl {_load(width)} (i32.const 2)))"
    yield f"(local.set $to (i32.add {_load(column)} {row}))"
    yield f"(if (i32.ge_u (local.get $left) (i32.const {BLOCK})) (then (loop $block"
    yield _vectors(BLOCK, look=look)
    yield f"(local.set $left (i32.sub (local.get $left) (i32.const {BLOCK})))"
    yield f"(br_if $block (i32.ge_u (local.get $left) (i32.const {BLOCK}))))))"
    for floats in (32, 16, 8, 4, 2, 1):
        moves = _vectors(floats, look=look)
        yield f"(if (i32.and (local.get $left) (i32.const {floats})) (then {moves}))"


def _vectors(floats: int, *, look: bool) -> str:
    """Move `floats` floats from the guest to the columns, unrolled, and advance."""
    load, store = {1: ("load32_zero", "store32_lane"), 2: ("load64_zero", "store64_lane")}.get(
        floats, ("load", "store")
    )
    lane = "" if floats >= 4 else " 0"
    moves = []
    for index, offset in enumerate(range(0, 4 * floats, 16)):
        place = f"offset={offset}"
        value = f"(v128.{load} $g {place} (local.get $from))"
        if look:
            value = f"(local.tee $x {value})"
        moves.append(f"(v128.{store} $c {place}{lane} (local.get $to) {value})")
        if look:
            total = f"${_SUMS[index % len(_SUMS)]}"
            moves.append(f"(local.set {total} (f32x4.add (local.get {total}) (local.get $x)))")
    step = f"(i32.const {4 * floats})"
    advance = (
        f"(local.set ${name} (i32.add (local.get ${name}) {step}))" for name in ("from", "to")
    )
    return " ".join([*moves, *(advance if floats > 1 else ())])


# A sum is finite only if all its floats are. Large ones may overflow it: a submit looks again.
_SUMS = ("sum0", "sum1", "sum2", "sum3")  # four, because one addition waits for another
_SUSPECT = (
    "(local.set $x (f32x4.add (f32x4.add (local.get $sum0) (local.get $sum1))"
    " (f32x4.add (local.get $sum2) (local.get $sum3))))"
    " (local.set $x (f32x4.sub (local.get $x) (local.get $x)))"
    " (if (v128.any_true (f32x4.ne (local.get $x) (local.get $x)))"
    f" (then (i32.store $c offset={at.SUSPECT} (local.get $r) (i32.const 1))))"
)


def _metadata_need(metadata: Param, number: int) -> str:
    """Set $need to the bytes that this call adds to the metadata log."""
    size = _item_size(metadata)
    length = _length(metadata)
    most = (1 << 31) // size
    is_much = f"(i32.gt_u {length} (i32.const {most}))"
    return (
        f"(if {length} (then"
        f" {_refuse(is_much, RefusalReason.METADATA, number, length, f'(i32.const {most})')}"
        f" {_bounds(metadata, size, number)} (local.set $need"
        f" (i32.add (i32.const {at.METADATA_HEADER}) (i32.mul {length} (i32.const {size}))))))"
    )


def _append_metadata(metadata: Param) -> str:
    size = _item_size(metadata)
    length = _length(metadata)
    return (
        f"(if {length} (then (if {_load(at.SAID)} (then (if (i32.eqz {_is_alike(metadata)})"
        f" (then (i32.store $c offset={at.SAID} (local.get $r) (i32.const 0))))"
        f" (f32.store $c offset={at.SAID_VALUE} (local.get $r)"
        f" (f32.load $g offset={size - 4} (local.get ${metadata.name}_ptr)))))"
        f" (local.set $to (i32.add {_load(at.METADATA)}"
        f" {_load(at.METADATA_USED)})) (i32.store $c (local.get $to) (local.get $n))"
        f" (i32.store $c offset=4 (local.get $to) {length})"
        f" (i32.store $c offset=8 (local.get $to) (i32.const {size}))"
        f" (memory.copy $c $g (i32.add (local.get $to) (i32.const {at.METADATA_HEADER}))"
        f" (local.get ${metadata.name}_ptr) (i32.mul {length} (i32.const {size})))"
        f" (i32.store $c offset={at.METADATA_USED} (local.get $r)"
        f" (i32.add {_load(at.METADATA_USED)} (local.get $need)))))"
    )


def _is_alike(metadata: Param) -> str:
    """
    Test whether metadata is one item, a number, with the name of the first entry of the log.

    Before the first entry is written, the log still holds the first entry of the previous submit.
    """
    name = _item_size(metadata) - 4
    value = f"(f32.load $g offset={name} (local.get ${metadata.name}_ptr))"
    log, given = _load(at.METADATA), f"(local.get ${metadata.name}_ptr)"
    head = (
        f"(i32.and (i32.eq {_length(metadata)} (i32.const 1))"
        f" (i64.eq (i64.load $c offset=4 {log}) (i64.const {(name + 4) << 32 | 1})))"
    )
    differs = "(i64.const 0)"
    for offset in range(0, name, 8):
        load = "i64.load" if name - offset >= 8 else "i64.load32_u"
        held = f"({load} $c offset={at.METADATA_HEADER + offset} {log})"
        differs = f"(i64.or {differs} (i64.xor {held} ({load} $g offset={offset} {given})))"
    return f"(i32.and (i32.and {head} (i64.eqz {differs})) (f32.eq {value} {value}))"


def _submit(api: Api, function: Function, number: int) -> Iterator[str]:
    context, actions, values = function.params
    yield _head(api, function, "r")
    yield _session(context, number)
    arguments = " ".join(
        f"(local.get ${param.name}_{part})"
        for param in (actions, values)
        for part in ("ptr", "len")
    )
    yield f"(call $submit (local.get $r) {arguments} (i32.const {number})))"


def _session(context: Param, number: int) -> str:
    """Set $r to the record that the handle names, or return NotFound."""
    handle, kind = f"(local.get ${context.name})", _kind(context)
    code = f"(i32.const {ErrorCode.NOT_FOUND})"
    missing, other = (
        f"(then (return {_refusal(code, reason, number, handle, f'(i64.const {wanted})')}))"
        for reason, wanted in ((RefusalReason.SESSION, 0), (RefusalReason.KIND, kind))
    )
    word = "(i32.load $c offset={} (global.get $base))"
    return (
        f"(local.set $r (i32.sub (i32.wrap_i64 {handle}) (i32.const 1)))"
        f" (if (i32.ge_u (local.get $r) {word.format(at.RECORD_COUNT)}) {missing})"
        f" (local.set $r (i32.add {word.format(at.RECORDS)}"
        f" (i32.mul (local.get $r) (i32.const {at.RECORD_SIZE}))))"
        f" (if (i64.ne (i64.load $c offset={at.HANDLE} (local.get $r)) {handle}) {missing})"
        f" (if (i32.ne {_load(at.KIND)} (i32.const {kind})) {other})"
    )


def _kind(context: Param) -> Kind:
    training = getattr(context.type, "name", "") == "TrainingHandle"
    return Kind.TRAINING if training else Kind.INFERENCE


def _bounds(param: Param, size: int, number: int) -> str:
    """Refuse a slice that ends outside the guest's memory; an empty one may point anywhere."""
    end = (
        f"(i64.add (i64.extend_i32_u (local.get ${param.name}_ptr))"
        f" (i64.mul (i64.extend_i32_u (local.get ${param.name}_len)) (i64.const {size})))"
    )
    memory = "(i64.shl (i64.extend_i32_u (memory.size $g)) (i64.const 16))"
    code = f"(i32.const {ErrorCode.INVALID_ARGUMENTS})"
    return (
        f"(if (i64.gt_u {end} {memory}) (then (if (local.get ${param.name}_len)"
        f" (then (return {_refusal(code, RefusalReason.OUTSIDE, number, end, memory)})))))"
    )


def _same(param: Param, field: int, reason: RefusalReason, number: int) -> str:
    """Refuse a slice whose length differs from the session's."""
    given, wanted = _length(param), _load(field)
    return _refuse(f"(i32.ne {given} {wanted})", reason, number, given, wanted)


def _refuse(condition: str, reason: RefusalReason, number: int, given: str, wanted: str) -> str:
    """Return InvalidArguments if a condition holds, and leave two numbers, i32."""
    code = f"(i32.const {ErrorCode.INVALID_ARGUMENTS})"
    numbers = (f"(i64.extend_i32_u {each})" for each in (given, wanted))
    return f"(if {condition} (then (return {_refusal(code, reason, number, *numbers)})))"


def _refusal(
    code: str, reason: RefusalReason, number: int, given: str = "(i64.const 0)", wanted: str = ""
) -> str:
    """Refuse a call of the noted function `number` by a code, and leave two numbers, i64."""
    return (
        f"(call $refuse {code} (i32.const {reason}) (i32.const {number})"
        f" {given} {wanted or '(i64.const 0)'})"
    )


def _load(field: int) -> str:
    return f"(i32.load $c offset={field} (local.get $r))"


def _length(param: Param) -> str:
    return f"(local.get ${param.name}_len)"


def _item_size(param: Param) -> int:
    match param.type:
        case Slice(item=Struct() as item):
            return struct_size(item)
        case _:
            raise ValueError(f"{param.name} is not a slice of records")
