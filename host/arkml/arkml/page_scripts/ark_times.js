// Times as text, in English, as a host of guests renders them.

const MONTHS = [
  "January", "February", "March", "April", "May", "June",
  "July", "August", "September", "October", "November", "December",
];
// [upper bound in seconds, seconds of one unit, singular, plural]
const SPANS = [
  [45, 1, "a few seconds", ""],
  [90, 60, "a minute", ""],
  [45 * 60, 60, "", "minutes"],
  [90 * 60, 3600, "an hour", ""],
  [22 * 3600, 3600, "", "hours"],
  [36 * 3600, 86_400, "a day", ""],
  [26 * 86_400, 86_400, "", "days"],
  [46 * 86_400, 30 * 86_400, "a month", ""],
  [320 * 86_400, 30.44 * 86_400, "", "months"],
  [548 * 86_400, 365.25 * 86_400, "a year", ""],
];

/** Return the nearest whole number, of halves the even one. */
export function halfEven(value) {
  const near = Math.round(value);
  return near - value === 0.5 && near % 2 !== 0 ? near - 1 : near;
}

function relative(seconds) {
  const size = Math.abs(seconds);
  const [, unit, one, many] = SPANS.find(([below]) => size < below) ?? [0, 365.25 * 86_400, "", "years"];
  const span = one || `${halfEven(size / unit)} ${many}`;
  if (span === "a day") return seconds > 0 ? "tomorrow" : "yesterday";
  return seconds > 0 ? `in ${span}` : `${span} ago`;
}

/**
 * Return a time since the Unix epoch as text; `nanoseconds` and `now` are BigInts.
 *
 * `format` is the name of a TimeFormat. Times are in the zone of the machine, or in UTC.
 */
export function timeText(nanoseconds, format, now) {
  if (format === "RELATIVE_FRIENDLY") return relative(Number(nanoseconds - now) / 1e9);
  const micro = nanoseconds / 1_000n - (nanoseconds % 1_000n < 0n ? 1n : 0n);
  const milli = micro / 1_000n - (micro % 1_000n < 0n ? 1n : 0n);
  const time = new Date(Number(milli));
  const two = (number) => String(number).padStart(2, "0");
  const year = String(time.getFullYear()).padStart(4, "0");
  const date = `${year}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  const minutes = -time.getTimezoneOffset();
  const away = Math.abs(minutes);
  const zone = `${minutes < 0 ? "-" : "+"}${two(Math.trunc(away / 60))}:${two(away % 60)}`;
  const clock = `${two(time.getHours())}:${two(time.getMinutes())}`;
  const seconds = `${clock}:${two(time.getSeconds())}`;
  const texts = {
    YEAR: () => `${time.getFullYear()}`,
    YEAR_MONTH: () => `${MONTHS[time.getMonth()]} ${time.getFullYear()}`,
    DATE: () => `${MONTHS[time.getMonth()]} ${time.getDate()}, ${time.getFullYear()}`,
    HOUR_MINUTE: () => clock,
    HOUR_MINUTE_SECOND: () => seconds,
    ISO_DATE: () => date,
    ISO_DATE_TIME: () => `${date}T${seconds}${zone}`,
    ISO_DATE_TIME_UTC: () => time.toISOString().replace(/\.\d+Z$/, "Z"),
  };
  return texts[format]();
}
