(module ;; A mod that follows the player, and logs ten lines in each frame.
  (import "ark-core-v3" "core__log" (func $log (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 1024) "look at me!")
  (global (export "player") i32 (i32.const 64))
  (global (export "position") i32 (i32.const 72))
  (func (export "ark_applet_update") (local $left i32)
    (i64.store (i32.const 72) (i64.load (i32.const 64)))
    (local.set $left (i32.const 10))
    (loop $more
      (drop (call $log (i32.const 2) (i32.const 1024) (i32.const 11)))
      (local.set $left (i32.sub (local.get $left) (i32.const 1)))
      (br_if $more (local.get $left)))))
