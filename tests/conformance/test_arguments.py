"""Numbers and texts: unknown enum members, ports, invalid UTF-8, and random calls."""

import json
import logging
import random
import re
from enum import IntEnum

import pytest
from tests.conformance.arguments import arrange, expected_code
from tests.conformance.checked_guest import CODES, ROWS, name_of

from arkml.abi.codes import ErrorCode
from arkml.abi.layout import slots
from arkml.abi.schema import Lane, Outcome, Str
from arkml.guests.guest import calls_of


def parameters(wanted):
    return [
        pytest.param(api, function, param, id=f"{name_of(api, function)}-{param.name}")
        for api, function in ROWS
        for param in function.params
        if wanted(param)
    ]


ENUMS = parameters(lambda p: isinstance(p.type, type) and issubclass(p.type, IntEnum))
TEXTS = parameters(lambda p: isinstance(p.type, Str))
PORTS = parameters(lambda p: p.name == "hive_port")
JSON = parameters(lambda p: p.name in ("config", "configuration"))
INVALID_UTF8 = [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80", b"\x80x"]


@pytest.mark.parametrize(("api", "function", "param"), ENUMS)
def test_a_number_that_is_no_member_is_an_invalid_argument(make_checked, api, function, param):
    known = set(param.type)
    wrong = {max(known) + 1, 6, 0x80, 0x100, 0x8000_0000, 0xFFFF_FFFF} - known
    for number in wrong:
        checked = make_checked()
        call = arrange(checked, api, function)
        call.values[param.name] = number
        call.rooms.clear()
        alive = checked.alive()
        none = function.outcome is Outcome.NONE

        assert checked.make(api, function, call) == (None if none else ErrorCode.INVALID_ARGUMENTS)
        assert checked.alive() == alive


@pytest.mark.parametrize(("api", "function", "param"), ENUMS)
def test_every_member_is_taken(make_checked, api, function, param):
    for member in param.type:
        if (param.type.__name__, member.name) in {
            ("SnapshotFormat", "TENSORFLOW"),
            ("SnapshotFormat", "CERVO"),
        }:
            continue
        checked = make_checked()
        call = arrange(checked, api, function)
        call.values[param.name] = member

        assert checked.make(api, function, call) == expected_code(function)


@pytest.mark.parametrize(("api", "function", "param"), PORTS)
def test_a_port_has_sixteen_bits(make_checked, api, function, param):
    for port in (0, 1, 0xFFFF):
        checked = make_checked()
        call = arrange(checked, api, function)
        call.values[param.name] = port

        assert checked.make(api, function, call) == expected_code(function)
    for port in (0x1_0000, 0x1_3044, 0x8000_0000, 0xFFFF_FFFF):
        checked = make_checked()
        call = arrange(checked, api, function)
        call.values[param.name] = port
        call.rooms.clear()

        assert checked.make(api, function, call) == ErrorCode.INVALID_ARGUMENTS
        assert checked.alive() == (0, 0)


@pytest.mark.parametrize(("api", "function", "param"), TEXTS)
def test_text_that_is_not_utf8_is_refused_except_where_people_read_it(
    make_checked, api, function, param
):
    for text in INVALID_UTF8:
        checked = make_checked()
        call = arrange(checked, api, function)
        call.values[f"{param.name}_ptr"] = checked.put(text)
        call.values[f"{param.name}_len"] = len(text)
        expected = ErrorCode.INVALID_ARGUMENTS
        if api.prefix == "core":
            expected = expected_code(function)
        if expected == ErrorCode.INVALID_ARGUMENTS:
            call.rooms.clear()

        assert checked.make(api, function, call) == expected


@pytest.mark.parametrize(("api", "function", "param"), TEXTS)
def test_text_may_hold_zeros_and_every_character(make_checked, api, function, param):
    text = 'ä\0語"\U0001f600'
    if param.name in ("config", "configuration"):
        text = json.dumps(text, ensure_ascii=False)
    checked = make_checked()
    call = arrange(checked, api, function)
    call.values[f"{param.name}_ptr"] = checked.put(text.encode())
    call.values[f"{param.name}_len"] = len(text.encode())

    assert checked.make(api, function, call) == expected_code(function)


@pytest.mark.parametrize(("api", "function", "param"), JSON)
def test_a_configuration_must_be_json(make_checked, api, function, param):
    for text in (b"{", b"nothing", b"{'a': 1}", b"[" * 5000):
        checked = make_checked()
        call = arrange(checked, api, function)
        call.values[f"{param.name}_ptr"] = checked.put(text)
        call.values[f"{param.name}_len"] = len(text)
        call.rooms.clear()

        assert checked.make(api, function, call) == ErrorCode.INVALID_ARGUMENTS


def random_calls(checked, chance):
    """Arguments by kind that a broken guest may give."""
    numbers = [0, 1, 2, 3, 4, 7, 8, 64, 255, 256, 65_532, 65_535, 65_536, 0x4000_0000]
    numbers += [0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFC, 0xFFFF_FFFF]
    live = [checked.inference(), checked.training(), checked.future(("ark-ml-v1", "vec_u8"))]
    runtime = checked.runtime()
    live += [runtime, checked.brain(runtime), checked.load(runtime)]
    floats = [0.0, -1.0, 0.5, 1e38, float("inf"), float("-inf"), float("nan")]

    def draw(slot):
        if slot.wasm == "f32":
            return chance.choice(floats)
        if "handle" in slot.name or slot.name == "context":
            return chance.choice([*live, *live, *numbers, (1 << 64) - 1])
        return chance.choice(numbers)

    return draw


def cut(slot, number):
    """The number as a slot of that type holds it."""
    return number & 0xFFFF_FFFF if slot.wasm == "i32" else number


@pytest.mark.parametrize("seed", range(3))
def test_whatever_a_guest_gives_only_codes_come_back_and_nothing_breaks(make_checked, caplog, seed):
    chance = random.Random(seed)
    functions = [row for row in ROWS if row[1].outcome is Outcome.CODE]
    silent = ("log", "register_panic", "add_debug_context")
    checked = make_checked()
    draw = random_calls(checked, chance)
    seen = set()
    with caplog.at_level(logging.ERROR):
        for _ in range(20_000):
            if calls_of(checked.guest).services.live_handles < 4:
                checked = make_checked()
                draw = random_calls(checked, chance)
            api, function = chance.choice(functions)
            if function.name in silent:
                continue
            arguments = [cut(slot, draw(slot)) for slot in slots(function)]
            seen.add(checked.guest.call(name_of(api, function), *arguments))

    assert seen <= CODES - {ErrorCode.INTERNAL_ERROR}
    assert [record for record in caplog.records if re.search("bug|Error", record.message)] == []


def test_the_lanes_do_not_show(make_checked):
    # Pushes and submits are answered in the shim, others by the host: unknown handles alike.
    checked = make_checked()
    for api, function in ROWS:
        if function.lane not in {Lane.HOST, Lane.LOG}:  # lines of a level that is off have none
            arguments = [0 for _ in slots(function)]

            assert checked.call(name_of(api, function), *arguments) == ErrorCode.NOT_FOUND
