"""The module that calls a guest's frame again and again, in one call of the host."""

from __future__ import annotations

from arkml.runtime.shim import control as at

MODULE, FRAME = "arkml-repeat", "frame"
FUNCTION, BASE = "frames", "base"

TEXT = f"""
;; Each frame is counted in the control block. The host says there up to which one to go on: to
;; begin a call costs it more than to go on with one.
(module
  (import "arkml" "columns" (memory $c 1 65536 shared))
  (import "{MODULE}" "{FRAME}" (func $frame))
  (global $base (export "{BASE}") (mut i32) (i32.const 0))
  (func (export "{FUNCTION}") (local $done i32)
    (loop $next
      (call $frame)
      (local.set $done (i32.add (i32.load offset={at.FRAMES} (global.get $base)) (i32.const 1)))
      (i32.store offset={at.FRAMES} (global.get $base) (local.get $done))
      (br_if $next (i32.ne (local.get $done)
        (i32.load offset={at.LAST_FRAME} (global.get $base)))))))
"""
