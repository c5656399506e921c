"""
The part of the shim that is the same for all imports: suspending, growing, submits, the frame loop.
"""

from __future__ import annotations

from arkml.abi.codes import EpisodeState, ErrorCode, LogLevel
from arkml.abi.ml_v5 import MAX_ACTIONS, MAX_ROWS
from arkml.batches import ROW, row_offset
from arkml.runtime.shim import control_block as at
from arkml.runtime.shim.control_block import Moved, Reason, RefusalReason

BLOCK_BYTES = 256  # copied or looked at between two epoch checks
LOOP = "frames"
"""Name of the loop of frames, as an export."""
LOOPED = "frame"
"""Name of the table whose one slot holds the frame that the loop calls."""


def _field(offset: int) -> str:
    return f"(i32.load $c offset={offset} (local.get $r))"


def _vector_block(name: str, body: str) -> str:
    """Return a loop over whole blocks of 64 floats and then over single vectors, at $from."""
    at_offsets = "\n".join(body.format(o=o) for o in range(0, BLOCK_BYTES, 16))
    return f"""
  (block $no_block_{name} (br_if $no_block_{name} (i32.lt_u (local.get $left) (i32.const 64)))
    (loop $block_{name} {at_offsets}
      (local.set $from (i32.add (local.get $from) (i32.const {BLOCK_BYTES})))
      (local.set $to (i32.add (local.get $to) (i32.const {BLOCK_BYTES})))
      (local.set $left (i32.sub (local.get $left) (i32.const 64)))
      (br_if $block_{name} (i32.ge_u (local.get $left) (i32.const 64)))))
  (block $no_vector_{name} (br_if $no_vector_{name} (i32.lt_u (local.get $left) (i32.const 4)))
    (loop $vector_{name} {body.format(o=0)}
      (local.set $from (i32.add (local.get $from) (i32.const 16)))
      (local.set $to (i32.add (local.get $to) (i32.const 16)))
      (local.set $left (i32.sub (local.get $left) (i32.const 4)))
      (br_if $vector_{name} (i32.ge_u (local.get $left) (i32.const 4)))))"""


def _among(rule: int) -> str:
    """Return wasm text that tests whether a transition is in a set of the list's rules."""
    rules = f"(i32.load $c offset={rule} (local.get $l))"
    return f"(i32.and (i32.shr_u {rules} (local.get $code)) (i32.const 1))"


_STARTED, _TERMINATED, _TRUNCATED, _OVER, _UNLISTED = at.LIST_RULES
_ID, _REWARD, _MOVED = (row_offset(name) for name in ("id", "reward", "moved"))
_INFINITY = "0x7f800000"
_STATE = row_offset("state")
_REFUSED = [
    at.REFUSALS + field
    for field in (at.REFUSED_COUNT, at.REFUSED_FUNCTION, at.REFUSED_GIVEN, at.REFUSED_WANTED)
]

# Two accumulators, so that two vectors are looked at at once.
_SCAN_BLOCK = "\n".join(
    f"(local.set ${name} (i32x4.max_u (local.get ${name})"
    f" (v128.and (local.get $sign) (v128.load $c offset={offset} (local.get $from)))))"
    for name, offset in zip("ab" * (BLOCK_BYTES // 32), range(0, BLOCK_BYTES, 16), strict=True)
)

# x - x is zero for a finite x and NaN otherwise; equality with itself makes that a mask.
_DELIVER = """
      (local.set $d (f32x4.sub (local.tee $x (v128.load $c offset={o} (local.get $from)))
        (local.get $x)))
      (local.set $d (f32x4.eq (local.get $d) (local.get $d)))
      (local.set $good (v128.and (local.get $good) (local.get $d)))
      (v128.store $g offset={o} (local.get $to) (v128.and (local.get $x) (local.get $d)))"""

TEXT = f"""
(import "arkml" "columns" (memory $c 1 65536 shared))
(import "arkml" "suspend" (func $suspend (param i64)))
(memory $g (export "memory") 0)
(global $base (export "base") (mut i32) (i32.const 0))
(global $continuation (export "continuation") (mut i64) (i64.const 0))

(func $wait (param $reason i32) (result i32)
  (i32.store $c offset={at.ANSWER} (global.get $base) (i32.const 0))
  (i32.store $c offset={at.PAGES} (global.get $base) (memory.size $g))
  (i32.store $c offset={at.REASON} (global.get $base) (local.get $reason))
  (call $suspend (global.get $continuation))
  (i32.store $c offset={at.REASON} (global.get $base) (i32.const {Reason.RUNNING}))
  (i32.sub (i32.load $c offset={at.ANSWER} (global.get $base)) (i32.const 1)))

;; Frames of the guest, one after another in one call: to resume it is cheaper than to begin a call.
;; The guest is suspended at the end of a frame, so that nothing of the next one has run. There the
;; host drops the call where the guest has to be called otherwise.
(table $frame (export "{LOOPED}") 1 1 funcref)
(func ${LOOP} (export "{LOOP}") (local $ahead i32)
  (loop $next
    (call_indirect $frame (i32.const 0))
    (call $count (i32.const {at.FRAMES}) (i32.const 1))
    (local.set $ahead (i32.load $c offset={at.FRAMES_AHEAD} (global.get $base)))
    (if (local.get $ahead)
      (then (i32.store $c offset={at.FRAMES_AHEAD} (global.get $base)
        (i32.sub (local.get $ahead) (i32.const 1))))
      (else (drop (call $wait (i32.const {Reason.FRAME_END})))))
    (br $next)))

(func $count (param $field i32) (param $by i32)
  (local.set $field (i32.add (global.get $base) (local.get $field)))
  (i32.store $c (local.get $field) (i32.add (i32.load $c (local.get $field)) (local.get $by))))

(func $fail (param $code i32) (result i32)
  (call $count (i32.add (i32.const {at.ERRORS}) (i32.shl (local.get $code) (i32.const 2)))
    (i32.const 1))
  (local.get $code))

(func $note (param $news i32)
  (i32.store $c offset={at.NOTED} (global.get $base) (local.get $news)))

;; Refuse a call of a function, and leave the reason with two numbers: see `RefusalReason`.
(func $refuse (param $code i32) (param $reason i32) (param $function i32) (param $given i64)
    (param $wanted i64) (result i32) (local $at i32)
  (local.set $at (i32.add (global.get $base)
    (i32.mul (i32.sub (local.get $reason) (i32.const 1)) (i32.const {at.REFUSAL_SIZE}))))
  (i32.store $c offset={_REFUSED[0]} (local.get $at)
    (i32.add (i32.load $c offset={_REFUSED[0]} (local.get $at)) (i32.const 1)))
  (i32.store $c offset={_REFUSED[1]} (local.get $at) (local.get $function))
  (i64.store $c offset={_REFUSED[2]} (local.get $at) (local.get $given))
  (i64.store $c offset={_REFUSED[3]} (local.get $at) (local.get $wanted))
  (call $note (i32.or (local.get $reason) (i32.and (i32.const {at.NON_FINITE})
    (i32.load $c offset={at.NOTED} (global.get $base)))))
  (call $fail (local.get $code)))

;; Return whether a log line is of a level that is off; an unknown level is that of errors.
(func $is_off (param $level i32) (result i32) (local $on i32)
  (local.set $on (i32.load $c offset={at.LOGGED} (global.get $base)))
  (if (i32.gt_u (local.get $level) (i32.const {max(LogLevel)}))
    (then (local.set $level (i32.const {LogLevel.ERROR}))))
  (i32.and (i32.ne (local.get $on) (i32.const 0))
    (i32.ge_u (i32.add (local.get $level) (i32.const 1)) (local.get $on))))

(func $index (param $r i32) (result i32)
  (i32.div_u (i32.sub (local.get $r) (i32.load $c offset={at.RECORDS} (global.get $base)))
    (i32.const {at.RECORD_SIZE})))

(func $grow (param $r i32) (param $need i32) (result i32)
  (i32.store $c offset={at.RECORD} (global.get $base) (call $index (local.get $r)))
  (i32.store $c offset={at.WANTED_ROWS} (global.get $base)
    (i32.add {_field(at.COUNT)} (i32.const 1)))
  (i32.store $c offset={at.WANTED_BYTES} (global.get $base)
    (i32.add {_field(at.METADATA_USED)} (local.get $need)))
  (call $wait (i32.const {Reason.GROW})))

(func $clear (param $r i32)
  (i32.store $c offset={at.COUNT} (local.get $r) (i32.const 0))
  (i32.store $c offset={at.ENDED} (local.get $r) (i32.const 0))
  (i32.store $c offset={at.METADATA_USED} (local.get $r) (i32.const 0))
  (i32.store $c offset={at.SUSPECT} (local.get $r) (i32.const 0)))

;; Rows that are not followed: the next ones are compared with none.
(func $lose (param $r i32)
  (call $clear (local.get $r))
  (i32.store $c offset={at.FOLLOWED} (local.get $r) (i32.const 0)))

(func $refuse_submit (param $r i32) (param $reason i32) (param $function i32) (param $given i64)
    (param $wanted i64) (result i32)
  (call $lose (local.get $r))
  (call $refuse (i32.const {ErrorCode.INVALID_ARGUMENTS}) (local.get $reason)
    (local.get $function) (local.get $given) (local.get $wanted)))

(func $memory (result i64) (i64.shl (i64.extend_i32_u (memory.size $g)) (i64.const 16)))
(func $end (param $ptr i32) (param $floats i32) (result i64)
  (i64.add (i64.extend_i32_u (local.get $ptr))
    (i64.shl (i64.extend_i32_u (local.get $floats)) (i64.const 2))))

(func $outside (param $ptr i32) (param $floats i32) (result i32)
  (i32.and (i32.ne (local.get $floats) (i32.const 0))
    (i64.gt_u (call $end (local.get $ptr) (local.get $floats)) (call $memory))))

;; Return whether these floats of the columns are finite, by the largest magnitude as an integer.
(func $finite (param $from i32) (param $left i32) (result i32)
  (local $sign v128) (local $a v128) (local $b v128) (local $s i32)
  (local.set $sign (v128.const i32x4 0x7fffffff 0x7fffffff 0x7fffffff 0x7fffffff))
  (if (i32.ge_u (local.get $left) (i32.const 64)) (then (loop $block {_SCAN_BLOCK}
    (local.set $from (i32.add (local.get $from) (i32.const {BLOCK_BYTES})))
    (local.set $left (i32.sub (local.get $left) (i32.const 64)))
    (br_if $block (i32.ge_u (local.get $left) (i32.const 64))))))
  (block $done (loop $rest (br_if $done (i32.eqz (local.get $left)))
    (local.set $s (i32.and (i32.load $c (local.get $from)) (i32.const 0x7fffffff)))
    (if (i32.ge_u (local.get $s) (i32.const {_INFINITY})) (then (return (i32.const 0))))
    (local.set $from (i32.add (local.get $from) (i32.const 4)))
    (local.set $left (i32.sub (local.get $left) (i32.const 1))) (br $rest)))
  (i32x4.all_true (i32x4.lt_u (i32x4.max_u (local.get $a) (local.get $b))
    (v128.const i32x4 {_INFINITY} {_INFINITY} {_INFINITY} {_INFINITY}))))

;; Copy floats from the columns to the guest, zero for each that is not finite.
(func $deliver (param $to i32) (param $from i32) (param $left i32)
  (local $x v128) (local $d v128) (local $good v128) (local $s f32)
  (local $start i32) (local $floats i32)
  (local.set $start (local.get $from)) (local.set $floats (local.get $left))
  (local.set $good (v128.const i64x2 -1 -1))
  {_vector_block("copy", _DELIVER)}
  (block $done (loop $rest (br_if $done (i32.eqz (local.get $left)))
    (local.set $s (f32.load $c (local.get $from)))
    (if (f32.ne (f32.sub (local.get $s) (local.get $s)) (f32.const 0))
      (then (local.set $s (f32.const 0)) (local.set $good (v128.const i64x2 0 0))))
    (f32.store $g (local.get $to) (local.get $s))
    (local.set $from (i32.add (local.get $from) (i32.const 4)))
    (local.set $to (i32.add (local.get $to) (i32.const 4)))
    (local.set $left (i32.sub (local.get $left) (i32.const 1))) (br $rest)))
  (if (i32x4.all_true (local.get $good)) (then (return)))
  (call $note (i32.or (i32.const {at.NON_FINITE})
    (i32.load $c offset={at.NOTED} (global.get $base))))
  (block $counted (loop $count (br_if $counted (i32.eqz (local.get $floats)))
    (local.set $s (f32.load $c (local.get $start)))
    (if (f32.ne (f32.sub (local.get $s) (local.get $s)) (f32.const 0)) (then
      (i32.store $c offset={at.BAD_ACTIONS} (global.get $base)
        (i32.add (i32.load $c offset={at.BAD_ACTIONS} (global.get $base)) (i32.const 1)))))
    (local.set $start (i32.add (local.get $start) (i32.const 4)))
    (local.set $floats (i32.sub (local.get $floats) (i32.const 1))) (br $count))))

;; Rows that ended are answered with zeros.
(func $zero_ended (param $r i32) (local $n i32) (local $state i32) (local $width i32)
  (local.set $width (i32.shl {_field(at.NUM_ACTIONS)} (i32.const 2)))
  (loop $row
    (local.set $state (i32.load $c offset={_STATE} (i32.add {_field(at.ROWS)}
      (i32.mul (local.get $n) (i32.const {ROW.itemsize})))))
    (if (i32.or (i32.eq (local.get $state) (i32.const {EpisodeState.TERMINAL}))
          (i32.eq (local.get $state) (i32.const {EpisodeState.INTERRUPTED}))) (then
      (memory.fill $c (i32.add {_field(at.ACTIONS)} (i32.mul (local.get $n) (local.get $width)))
        (i32.const 0) (local.get $width))
      (f32.store $c (i32.add {_field(at.VALUES)} (i32.shl (local.get $n) (i32.const 2)))
        (f32.const 0))))
    (local.set $n (i32.add (local.get $n) (i32.const 1)))
    (br_if $row (i32.lt_u (local.get $n) {_field(at.COUNT)}))))

;; List the rows of a submit by what they do; nothing where one of them needs a search.
(func $list (param $r i32) (param $l i32)
  (local $n i32) (local $count i32) (local $capacity i32) (local $row i32) (local $moved i32)
  (local $code i32) (local $rewards i32) (local $begun i32) (local $over i32) (local $marks i32)
  (local $rewarded i32) (local $highest i64)
  (local.set $count {_field(at.COUNT)})
  (if (i32.ne {_field(at.FOLLOWED)} (local.get $count)) (then (return)))
  (local.set $capacity {_field(at.CAPACITY)})
  (local.set $row {_field(at.ROWS)})
  (local.set $rewards (i32.add (local.get $l) (i32.const {at.LIST_HEADER})))
  (local.set $begun
    (i32.add (local.get $rewards) (i32.shl (local.get $capacity) (i32.const 2))))
  (local.set $over (i32.add (local.get $begun) (i32.shl (local.get $capacity) (i32.const 2))))
  (local.set $marks (i32.add (local.get $over) (i32.shl (local.get $capacity) (i32.const 2))))
  (memory.fill $c (local.get $marks) (i32.const 0)
    (i32.mul (local.get $capacity) (i32.const 3)))
  (local.set $highest (i64.load $c offset={at.LIST_HIGHEST} (local.get $l)))
  (loop $next
    (f32.store $c (local.get $rewards) (f32.load $c offset={_REWARD} (local.get $row)))
    (local.set $moved (i32.load $c offset={_MOVED} (local.get $row)))
    (if (local.get $moved) (then
      (local.set $code (i32.and (local.get $moved) (i32.const 7)))
      (if (i32.or {_among(_UNLISTED)} (i32.and (local.get $moved) (i32.const {Moved.LEFT})))
        (then (return)))
      (if (i32.and (local.get $moved) (i32.const {Moved.NEW})) (then
        (if (i64.le_u (i64.load $c offset={_ID} (local.get $row)) (local.get $highest))
          (then (return)))
        (local.set $highest (i64.load $c offset={_ID} (local.get $row)))))
      (if {_among(_STARTED)} (then (local.set $rewarded (i32.or (local.get $rewarded)
        (i32.load $c offset={_REWARD} (local.get $row))))))
      (i32.store $c (local.get $begun) (local.get $n))
      (i32.store $c (local.get $over) (local.get $n))
      (local.set $begun (i32.add (local.get $begun) (i32.shl {_among(_STARTED)} (i32.const 2))))
      (local.set $over (i32.add (local.get $over) (i32.shl {_among(_OVER)} (i32.const 2))))
      (i32.store8 $c (local.get $marks) {_among(_STARTED)})
      (i32.store8 $c (i32.add (local.get $marks) (local.get $capacity)) {_among(_TERMINATED)})
      (i32.store8 $c (i32.add (local.get $marks) (i32.shl (local.get $capacity) (i32.const 1)))
        {_among(_TRUNCATED)})))
    (local.set $rewards (i32.add (local.get $rewards) (i32.const 4)))
    (local.set $marks (i32.add (local.get $marks) (i32.const 1)))
    (local.set $row (i32.add (local.get $row) (i32.const {ROW.itemsize})))
    (br_if $next (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1)))
      (local.get $count))))
  (local.set $capacity (i32.shl (local.get $capacity) (i32.const 2)))
  (local.set $row (i32.add (local.get $l) (i32.add (i32.const {at.LIST_HEADER})
    (local.get $capacity))))
  (i32.store $c offset={at.LIST_BEGUN} (local.get $l)
    (i32.shr_u (i32.sub (local.get $begun) (local.get $row)) (i32.const 2)))
  (i32.store $c offset={at.LIST_OVER} (local.get $l) (i32.shr_u (i32.sub (local.get $over)
    (i32.add (local.get $row) (local.get $capacity))) (i32.const 2)))
  (i32.store $c offset={at.LIST_REWARDED} (local.get $l) (local.get $rewarded))
  (i64.store $c offset={at.LIST_HIGHEST} (local.get $l) (local.get $highest))
  (i32.store $c offset={at.LISTED} (local.get $l)
    (i32.add (i32.load $c offset={at.SUBMITS} (global.get $base)) (i32.const 1))))

;; Suspend until the policy has answered the rows of a session; the queue is emptied if it cannot.
(func $ask (param $r i32) (result i32) (local $code i32) (local $reason i32)
  (if (i32.eqz {_field(at.COUNT)}) (then (return (i32.const {ErrorCode.SUCCESS}))))
  (i32.store $c offset={at.RECORD} (global.get $base) (call $index (local.get $r)))
  (if {_field(at.LIST)} (then (call $list (local.get $r) {_field(at.LIST)})
    (i32.store $c offset={at.LIST} (local.get $r) (i32.const 0))))
  (local.set $reason (i32.const {Reason.SUBMIT}))
  (if {_field(at.SUSPECT)} (then
    (if (i32.eqz (call $finite {_field(at.FEATURES)}
          (i32.mul {_field(at.COUNT)} {_field(at.NUM_FEATURES)})))
      (then (local.set $reason (i32.const {Reason.SUBMIT_NON_FINITE}))))))
  (local.set $code (call $wait (local.get $reason)))
  (if (local.get $code) (then (call $lose (local.get $r)) (return (local.get $code))))
  (call $count (i32.const {at.SUBMITS}) (i32.const 1))
  (call $count (i32.const {at.ANSWERED_ROWS}) {_field(at.COUNT)})
  (i32.const {ErrorCode.SUCCESS}))

;; The same, unless the answer is bytes that cannot count so much: the handler refuses that then.
(func $ask_countable (param $r i32) (result i32)
  (if (i32.or (i32.gt_u {_field(at.COUNT)} (i32.const {MAX_ROWS}))
        (i32.gt_u {_field(at.NUM_ACTIONS)} (i32.const {MAX_ACTIONS})))
    (then (i32.store $c offset={at.FOLLOWED} (local.get $r) (i32.const 0))
      (return (i32.const {ErrorCode.SUCCESS}))))
  (call $ask (local.get $r)))

(func $submit (param $r i32) (param $actions i32) (param $num_actions i32)
    (param $values i32) (param $num_values i32) (param $function i32) (result i32)
  (local $n i32) (local $code i32) (local $due i64)
  (local.set $n {_field(at.COUNT)})
  (local.set $due
    (i64.mul (i64.extend_i32_u (local.get $n)) (i64.extend_i32_u {_field(at.NUM_ACTIONS)})))
  (if (i64.ne (i64.extend_i32_u (local.get $num_actions)) (local.get $due))
    (then (return (call $refuse_submit (local.get $r) (i32.const {RefusalReason.ACTIONS})
      (local.get $function) (i64.extend_i32_u (local.get $num_actions)) (local.get $due)))))
  (if (i32.ne (local.get $num_values) (local.get $n))
    (then (return (call $refuse_submit (local.get $r) (i32.const {RefusalReason.VALUES})
      (local.get $function) (i64.extend_i32_u (local.get $num_values))
      (i64.extend_i32_u (local.get $n))))))
  (if (call $outside (local.get $actions) (local.get $num_actions))
    (then (return (call $refuse_submit (local.get $r) (i32.const {RefusalReason.OUTSIDE})
      (local.get $function) (call $end (local.get $actions) (local.get $num_actions))
      (call $memory)))))
  (if (call $outside (local.get $values) (local.get $num_values))
    (then (return (call $refuse_submit (local.get $r) (i32.const {RefusalReason.OUTSIDE})
      (local.get $function) (call $end (local.get $values) (local.get $num_values))
      (call $memory)))))
  (if (i32.eqz (local.get $n)) (then (return (i32.const {ErrorCode.SUCCESS}))))
  (local.set $code (call $ask (local.get $r)))
  ;; The host may have moved the region or closed the session; memory only grows.
  (if (i32.eqz (local.get $code)) (then
    (if {_field(at.ENDED)} (then (call $zero_ended (local.get $r))))
    (call $deliver (local.get $actions) {_field(at.ACTIONS)} (local.get $num_actions))
    (call $deliver (local.get $values) {_field(at.VALUES)} (local.get $num_values))))
  (call $clear (local.get $r))
  (if (local.get $code) (then (return (call $refuse (local.get $code)
    (i32.const {RefusalReason.HOST}) (local.get $function) (i64.const 0) (i64.const 0)))))
  (i32.const {ErrorCode.SUCCESS}))
"""
