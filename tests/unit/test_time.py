from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from arkml.abi.codes import TimeFormat
from arkml.sessions.time_handlers import display

PACIFIC = timezone(timedelta(hours=-8))
SECOND = 1_000_000_000
THEN = 851_042_397 * SECOND + 987_654_321  # 1996-12-20T00:39:57.987654321Z


def shown(nanoseconds, form, *, now=0, zone=PACIFIC):
    return display(nanoseconds, form, now=now, zone=zone)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (TimeFormat.YEAR, "1996"),
        (TimeFormat.YEAR_MONTH, "December 1996"),
        (TimeFormat.DATE, "December 19, 1996"),
        (TimeFormat.HOUR_MINUTE, "16:39"),
        (TimeFormat.HOUR_MINUTE_SECOND, "16:39:57"),
        (TimeFormat.ISO_DATE, "1996-12-19"),
        (TimeFormat.ISO_DATE_TIME, "1996-12-19T16:39:57-08:00"),
        (TimeFormat.ISO_DATE_TIME_UTC, "1996-12-20T00:39:57Z"),
    ],
)
def test_a_time_is_shown_in_the_zone_of_the_machine(form, text):
    assert shown(THEN, form) == text


def test_every_format_is_shown():
    for form in TimeFormat:
        assert shown(THEN, form)


def test_iso_knows_utc_as_an_offset_and_as_a_letter():
    assert shown(0, TimeFormat.ISO_DATE_TIME, zone=UTC) == "1970-01-01T00:00:00+00:00"
    assert shown(0, TimeFormat.ISO_DATE_TIME_UTC, zone=UTC) == "1970-01-01T00:00:00Z"


def test_the_machines_own_zone_is_used_without_another():
    local = datetime.fromtimestamp(THEN // SECOND).astimezone()

    assert display(THEN, TimeFormat.ISO_DATE_TIME, now=0) == local.isoformat(timespec="seconds")


@pytest.mark.parametrize("nanoseconds", [-(2**63), 2**63 - 1])
def test_the_first_and_the_last_time_have_a_date(nanoseconds):
    expected = {-(2**63): "1677-09-21T00:12:43Z", 2**63 - 1: "2262-04-11T23:47:16Z"}

    assert shown(nanoseconds, TimeFormat.ISO_DATE_TIME_UTC) == expected[nanoseconds]
    for form in TimeFormat:
        assert display(nanoseconds, form, now=0)


def test_a_time_before_the_epoch_belongs_to_the_second_that_began():
    assert shown(-1, TimeFormat.ISO_DATE_TIME_UTC) == "1969-12-31T23:59:59Z"


def test_an_offset_with_seconds_is_cut_to_minutes():
    local_mean_time = ZoneInfo("Europe/Amsterdam")
    nanoseconds = int(datetime(1880, 1, 1, tzinfo=UTC).timestamp()) * SECOND
    text = shown(nanoseconds, TimeFormat.ISO_DATE_TIME, zone=local_mean_time)

    assert datetime.fromisoformat(text).timestamp() == nanoseconds // SECOND
    assert len(text) == len("1880-01-01T00:00:00+00:00")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "a few seconds ago"),
        (-44, "a few seconds ago"),
        (3, "in a few seconds"),
        (-50, "a minute ago"),
        (-120, "2 minutes ago"),
        (44 * 60, "in 44 minutes"),
        (-3600, "an hour ago"),
        (-5 * 3600, "5 hours ago"),
        (-86_400, "yesterday"),
        (86_400, "tomorrow"),
        (-3 * 86_400, "3 days ago"),
        (-30 * 86_400, "a month ago"),
        (-90 * 86_400, "3 months ago"),
        (-365 * 86_400, "a year ago"),
        (-5 * 365 * 86_400, "5 years ago"),
    ],
)
def test_a_relative_time_is_what_people_say(seconds, text):
    now = THEN

    assert shown(now + seconds * SECOND, TimeFormat.RELATIVE_FRIENDLY, now=now) == text
