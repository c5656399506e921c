// The range of one value, on which a bar or a color is placed.

/** A range: declared, or grown to what its value has been, around 0 where it is open. */
export class Range {
  constructor(low, high) {
    this.isLowOpen = !Number.isFinite(low);
    this.isHighOpen = !Number.isFinite(high);
    this.low = this.isLowOpen ? Math.min(-1, high - 1) : low;
    this.high = this.isHighOpen ? Math.max(1, low + 1) : high;
  }

  reach(value) {
    if (!Number.isFinite(value)) return;
    const size = this.isLowOpen && this.isHighOpen ? Math.abs(value) : null;
    if (this.isLowOpen) this.low = Math.min(this.low, size === null ? value : -size);
    if (this.isHighOpen) this.high = Math.max(this.high, size ?? value);
  }

  /** The distance of the declared bounds, 0 if one is open. */
  get extent() {
    return this.isLowOpen || this.isHighOpen ? 0 : this.high - this.low;
  }

  /** Return where a value is, from 0 to 1; what is beyond the range is at its end. */
  place(value) {
    return Math.min(Math.max((value - this.low) / (this.high - this.low || 1), 0), 1);
  }
}

/**
 * Return a part of values with a number as each bound.
 *
 * Documents have null for those without, and one for all values that have the same.
 */
export function boundedPart({ low, high, ...part }) {
  const count = part.shape.reduce((product, side) => product * side, 1);
  const numbers = (bounds, open) => Array.from({ length: count }, (_, at) => bounds[bounds.length > 1 ? at : 0] ?? open);
  return { ...part, low: numbers(low, -Infinity), high: numbers(high, Infinity) };
}
