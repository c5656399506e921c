"""Handlers of `ark-time-v1`: the time of day, and times rendered for people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import assert_never

from arkml.abi.codes import TimeFormat
from arkml.sessions.state import Family

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)

# (seconds below which it counts, seconds of one, name of one, name of many)
_SPANS = (
    (45, 1, "a few seconds", ""),
    (90, 60, "a minute", ""),
    (45 * 60, 60, "", "minutes"),
    (90 * 60, 3600, "an hour", ""),
    (22 * 3600, 3600, "", "hours"),
    (36 * 3600, 86_400, "a day", ""),
    (26 * 86_400, 86_400, "", "days"),
    (46 * 86_400, 30 * 86_400, "a month", ""),
    (320 * 86_400, 30.44 * 86_400, "", "months"),
    (548 * 86_400, 365.25 * 86_400, "a year", ""),
)


class TimeV1(Family):
    """The time of day."""

    __slots__ = ()

    def time_utc(self) -> int:
        return self._guest.clock()

    def format_time_for_display(self, ns_since_epoch: int, time_format: TimeFormat) -> str:
        return display(ns_since_epoch, time_format, now=self._guest.clock())


def display(nanoseconds: int, form: TimeFormat, *, now: int, zone: tzinfo | None = None) -> str:
    """
    Render a time since the Unix epoch in English.

    All but ISO_DATE_TIME_UTC are in `zone`, or where that is None, in the machine's own zone.
    """
    utc = _EPOCH + timedelta(microseconds=nanoseconds // 1000)
    local = _on_whole_minutes(utc.astimezone(zone))
    match form:
        case TimeFormat.RELATIVE_FRIENDLY:
            return _relative((nanoseconds - now) / 1e9)
        case TimeFormat.YEAR:
            return f"{local.year}"
        case TimeFormat.YEAR_MONTH:
            return f"{_MONTHS[local.month - 1]} {local.year}"
        case TimeFormat.DATE:
            return f"{_MONTHS[local.month - 1]} {local.day}, {local.year}"
        case TimeFormat.HOUR_MINUTE:
            return f"{local:%H:%M}"
        case TimeFormat.HOUR_MINUTE_SECOND:
            return f"{local:%H:%M:%S}"
        case TimeFormat.ISO_DATE:
            return local.date().isoformat()
        case TimeFormat.ISO_DATE_TIME:
            return local.isoformat(timespec="seconds")
        case TimeFormat.ISO_DATE_TIME_UTC:
            return f"{utc.replace(tzinfo=None).isoformat(timespec='seconds')}Z"
        case _:
            assert_never(form)


def _on_whole_minutes(local: datetime) -> datetime:
    """ISO 8601 knows no seconds in an offset; local times before about 1900 have them."""
    offset = local.utcoffset() or timedelta()
    odd = offset % timedelta(minutes=1)
    return local.astimezone(timezone(offset - odd)) if odd else local


def _relative(seconds: float) -> str:
    """`seconds` from now as people say it: `in 5 minutes`, `yesterday`, `a year ago`."""
    span = _span(abs(seconds))
    if span == "a day":
        return "tomorrow" if seconds > 0 else "yesterday"
    return f"in {span}" if seconds > 0 else f"{span} ago"


def _span(seconds: float) -> str:
    for below, unit, one, many in _SPANS:
        if seconds < below:
            return one or f"{round(seconds / unit)} {many}"
    return f"{round(seconds / (365.25 * 86_400))} years"
