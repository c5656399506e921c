// The module `env`, whose functions the compilers of AssemblyScript and Emscripten import.

const MILLISECOND = 1_000_000n; // nanoseconds
const MOST_TIMERS = 100;

/** Return a number as `%g` of C writes it, with six digits. */
export function shortest(value) {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value < 0 ? "-inf" : "inf";
  if (value === 0) return Object.is(value, -0) ? "-0" : "0";
  const [digits, power] = value.toExponential(5).split("e");
  const exponent = Number(power);
  const trimmed = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
  if (exponent >= -4 && exponent < 6) return trimmed(value.toFixed(5 - exponent));
  return `${trimmed(digits)}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
}

/** Return the handlers of `env` for a guest: its memory, log, world, and `stop(text)`, which throws. */
export function envHandlers({ memory, log, world, limits, panic, stop }) {
  const text = (pointer) => memory.assemblyScriptText(pointer, limits.log);
  const timers = new Map();
  const reading = () => Number(world.now / MILLISECOND) + Number(world.now % MILLISECOND) / Number(MILLISECOND);
  const line = (level) => (pointer) => log.say(level, text(pointer));
  const passed = (pointer) => {
    const name = text(pointer);
    if (!timers.has(name)) log.say("warning", `${name}: no timer of this name was started`);
    else log.say("info", `${name}: ${shortest(reading() - timers.get(name))} ms`);
    return name;
  };
  return {
    abort: (message, file, row, column) => stop(panic(text(message), text(file), row, column)),
    process_exit: (status) => stop(panic(`process.exit(${status})`, "", 0, 0)),
    seed: () => world.bits(),
    math_random: () => world.bits() / 2 ** 53,
    date_now: () => Number(world.now / MILLISECOND),
    performance_now: reading,
    trace: (pointer, count, ...numbers) =>
      log.say("info", `${text(pointer)} ${numbers.slice(0, Math.min(count, 5)).map(shortest).join(", ")}`.trimEnd()),
    console_log: line("info"),
    console_info: line("info"),
    console_debug: line("debug"),
    console_warn: line("warning"),
    console_error: line("error"),
    console_assert: (condition, pointer) => condition || log.say("error", `assertion failed: ${text(pointer)}`),
    console_time: (pointer) => timers.size < MOST_TIMERS && timers.set(text(pointer), reading()),
    console_timelog: passed,
    console_timeend: (pointer) => timers.delete(passed(pointer)),
    emscripten_notify_memory_growth: () => {},
  };
}
