"""Handlers of `ark-time-v1`: the time of day, and times rendered as text."""

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

# (upper bound in seconds, seconds of one unit, singular, plural)
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
    """Handlers of the import module `ark-time-v1`."""

    __slots__ = ()

    def time_utc(self) -> int:
        return self._guest.clock()

    def format_time_for_display(self, ns_since_epoch: int, time_format: TimeFormat) -> str:
        return display(ns_since_epoch, time_format, now=self._guest.clock())


def display(nanoseconds: int, form: TimeFormat, *, now: int, zone: tzinfo | None = None) -> str:
    """
    Render a time since the Unix epoch in English, such as "March 1, 2026" for DATE.

    All formats but ISO_DATE_TIME_UTC use the time zone `zone`, or the machine's own if that is
    None.
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
    """Drop the seconds of a UTC offset, which ISO 8601 cannot write, from times before 1900."""
    offset = local.utcoffset() or timedelta()
    odd = offset % timedelta(minutes=1)
    return local.astimezone(timezone(offset - odd)) if odd else local


def _relative(seconds: float) -> str:
    """Return `seconds` from now as a phrase: `in 5 minutes`, `yesterday`, `a year ago`."""
    span = _span(abs(seconds))
    if span == "a day":
        return "tomorrow" if seconds > 0 else "yesterday"
    return f"in {span}" if seconds > 0 else f"{span} ago"


def _span(seconds: float) -> str:
    for below, unit, one, many in _SPANS:
        if seconds < below:
            return one or f"{round(seconds / unit)} {many}"
    return f"{round(seconds / (365.25 * 86_400))} years"
