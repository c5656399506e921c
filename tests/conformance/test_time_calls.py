"""The time of day through wasm."""

import time

import pytest
from tests.conformance.scripted_guest import step

from arkml.abi.codes import ErrorCode, TimeFormat

UTC = "ark-time-v1.time__time_utc"
FORMAT = "ark-time-v1.time__format_time_for_display"
TAKE = "ark-core-v4.core__take_host_return_vec"
MOMENT = 1_700_000_000_123_456_789


def rendered(run, nanoseconds, form):
    """The text of a time: the size first, then the bytes, in one call as a guest does it."""
    run.put(64, b"\0" * 8)
    run(step(FORMAT, nanoseconds, form, 64))
    size = run.u32(64)
    assert run(step(FORMAT, nanoseconds, form, 64), step(TAKE, 128, size)) == [0, 0]
    return run.guest.read_memory(128, size).decode()


@pytest.fixture
def zone(monkeypatch):
    def enter(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield enter
    monkeypatch.undo()
    time.tzset()


def test_the_time_of_day_is_nanoseconds_since_1970(checked):
    before = time.time_ns()
    found = int.from_bytes(checked.fetch(UTC), "little", signed=True)

    assert before <= found <= time.time_ns()


def test_a_bad_pointer_for_the_time_is_no_trap_and_writes_nothing(checked):
    for pointer in (checked.size - 7, checked.size, 0xFFFF_FFFF):
        assert checked.call(UTC, pointer) is None


@pytest.mark.parametrize("offset", ["UTC0", "XYZ-5:30", "ABC8"])
def test_iso_formats_are_exact(run, zone, offset):
    zone(offset)
    local = {"UTC0": "22:13:20+00:00", "ABC8": "14:13:20-08:00", "XYZ-5:30": "03:43:20+05:30"}
    day = "2023-11-15" if offset == "XYZ-5:30" else "2023-11-14"

    assert rendered(run, MOMENT, TimeFormat.ISO_DATE) == day
    assert rendered(run, MOMENT, TimeFormat.ISO_DATE_TIME) == f"{day}T{local[offset]}"
    assert rendered(run, MOMENT, TimeFormat.ISO_DATE_TIME_UTC) == "2023-11-14T22:13:20Z"


@pytest.mark.parametrize("form", TimeFormat)
def test_all_nine_formats_render_every_time(run, form):
    for nanoseconds in (-(1 << 63), -1, 0, MOMENT, (1 << 63) - 1):
        assert rendered(run, nanoseconds, form)


def test_formats_for_people_read_like_english(run, zone):
    zone("UTC0")
    found = {form.name: rendered(run, MOMENT, form) for form in TimeFormat}

    assert found["YEAR"] == "2023"
    assert found["YEAR_MONTH"] == "November 2023"
    assert "14" in found["DATE"]
    assert found["HOUR_MINUTE"].startswith("22:13")
    assert found["HOUR_MINUTE_SECOND"] == "22:13:20"
    assert found["RELATIVE_FRIENDLY"].endswith("ago")


@pytest.mark.parametrize("number", [6, 10, 0xFFFF_FFFF])
def test_an_unknown_format_leaves_no_vector(run, number):
    run.put(64, b"?" * 8)

    assert run(step(FORMAT, MOMENT, number, 64), step(TAKE, 128, 4)) == [0, ErrorCode.NOT_FOUND]
    assert run.guest.read_memory(64, 8) == b"?" * 8
