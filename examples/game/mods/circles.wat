(module ;; A mod that does as it should: it walks in circles around the player.
  (memory (export "memory") 1)
  (global (export "player") i32 (i32.const 64))
  (global (export "position") i32 (i32.const 72))
  (global $dx (mut f32) (f32.const 1))
  (global $dy (mut f32) (f32.const 0))
  (func (export "ark_applet_update") (local $dx f32)
    ;; turn by a thirtieth of a radian
    (local.set $dx (f32.sub (global.get $dx) (f32.mul (global.get $dy) (f32.const 0.0333))))
    (global.set $dy (f32.add (global.get $dy) (f32.mul (local.get $dx) (f32.const 0.0333))))
    (global.set $dx (local.get $dx))
    (f32.store (i32.const 72) (f32.add (f32.load (i32.const 64)) (global.get $dx)))
    (f32.store (i32.const 76) (f32.add (f32.load (i32.const 68)) (global.get $dy)))))
