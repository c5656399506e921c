"""Values to be recorded: numbers, texts, times and arrays, by name."""

from __future__ import annotations


class Record:
    """Values by name."""
