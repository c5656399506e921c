(module ;; A mod that stands still, and never ends its two hundredth frame.
  (memory (export "memory") 1)
  (global (export "player") i32 (i32.const 64))
  (global (export "position") i32 (i32.const 72))
  (global $left (mut i32) (i32.const 200))
  (func (export "ark_applet_update")
    (global.set $left (i32.sub (global.get $left) (i32.const 1)))
    (loop $ever (br_if $ever (i32.eqz (global.get $left))))))
