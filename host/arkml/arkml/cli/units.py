"""Texts for sizes, durations, counts and curves."""

from __future__ import annotations

from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"


def times(median: float, p99: float, longest: float) -> str:
    """Return a text with three durations: median, 99th percentile and longest."""
    return f"median {duration(median)}, p99 {duration(p99)}, max {duration(longest)}"


def duration(seconds: float) -> str:
    """Return a duration in seconds as text in a suitable unit, such as `2.5 ms`."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:,.0f} s"


def size(count: int) -> str:
    """Return a number of bytes as text in a suitable unit, such as `64.0 MiB`."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:,.1f} {unit}"
    return f"{count:,} bytes"


def counted(count: int, what: str) -> str:
    """Return a count as text, such as `1 frame` or `3 frames` for the singular `frame`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """Return values as a curve in one line of text, at most `width` characters wide."""
    if not values:
        return ""
    count = min(width, len(values))
    picked = [values[place * (len(values) - 1) // max(1, count - 1)] for place in range(count)]
    low, high = min(picked), max(picked)
    steps = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round(steps * (v - low) / ((high - low) or 1.0))] for v in picked)
