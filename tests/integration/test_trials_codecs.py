"""Messages in JavaScript, by generated modules, beside Python's protobuf."""

import importlib
import math
import random
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from tests.node import run_module

from arkml.trials.generate import generate

TESTS = Path(__file__).parents[1]
PROJECT = TESTS / "trials_project"
PROGRAM = Path(__file__).with_name("codecs.mjs")
EXACT = 2**53 - 1
SIGNED = (0, 1, -1, 127, 128, -129, 2**31 - 1, -(2**31))
UNSIGNED = (0, 1, 127, 128, 16384, 2**28 - 1, 2**28, 2**32 - 1)
WIDE = (*SIGNED, 2**32, -(2**32), EXACT, -EXACT, EXACT + 1, -EXACT - 1, 2**63 - 1, -(2**63))
WIDE_UNSIGNED = (*UNSIGNED, 2**32, 2**35, EXACT, EXACT + 1, 2**63, 2**64 - 1)
FLOATS = (0.0, -0.0, 1.5, -1e-40, 3e38, math.inf, -math.inf)
TEXTS = ("", "a", "Grüße, 世界 \U0001f600", "\x00", "x" * 200)
VALUES = {
    FieldDescriptor.TYPE_DOUBLE: (*FLOATS, 1e308, math.pi),
    FieldDescriptor.TYPE_FLOAT: FLOATS,
    FieldDescriptor.TYPE_INT64: WIDE,
    FieldDescriptor.TYPE_UINT64: WIDE_UNSIGNED,
    FieldDescriptor.TYPE_INT32: SIGNED,
    FieldDescriptor.TYPE_FIXED64: WIDE_UNSIGNED,
    FieldDescriptor.TYPE_FIXED32: UNSIGNED,
    FieldDescriptor.TYPE_BOOL: (False, True),
    FieldDescriptor.TYPE_STRING: TEXTS,
    FieldDescriptor.TYPE_BYTES: (b"", b"\x00\xff", bytes(range(256))),
    FieldDescriptor.TYPE_UINT32: UNSIGNED,
    FieldDescriptor.TYPE_ENUM: (0, 1, -2, 7),
    FieldDescriptor.TYPE_SFIXED32: SIGNED,
    FieldDescriptor.TYPE_SFIXED64: WIDE,
    FieldDescriptor.TYPE_SINT32: SIGNED,
    FieldDescriptor.TYPE_SINT64: WIDE,
}
WIDE_TYPES = {kind for kind, values in VALUES.items() if set(values) & {2**63 - 1, 2**64 - 1}}

WITH_MAPS = (
    "by_name", "by_int64", "by_bool", "by_uint32", "by_sint64", "inner", "inners", "thing",
)  # fmt: skip
"""Fields whose bytes have no certain order."""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The folder with everything that is generated, and `Everything` of Python."""
    folder = tmp_path_factory.mktemp("project")
    generate(PROJECT / "cogment.yaml", python=folder, javascript=folder)
    (folder / "package.json").write_text('{"type": "module"}')
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    yield folder, importlib.import_module("grid_pb2").Everything
    sys.path.remove(str(folder))
    for name in set(sys.modules) - before:
        del sys.modules[name]


def in_javascript(folder, **given):
    module = (folder / "grid_pb.js").as_uri()
    return run_module(PROGRAM, {"module": module, "path": ["grid", "world", "Everything"], **given})


def set_at_random(message, dice, depth=0):
    """Set about a third of all fields, members of a oneof one at most."""
    groups = set()
    for field in message.DESCRIPTOR.fields:
        group = field.containing_oneof
        if dice.random() > (0.35 if depth == 0 else 0.15) or (
            group is not None and group in groups
        ):
            continue
        groups.add(group)
        set_field(message, field, dice, depth)
    return message


def set_field(message, field, dice, depth):
    kind = field.message_type
    if kind is not None and depth > 2:
        return
    if kind is not None and kind.GetOptions().map_entry:
        set_entries(getattr(message, field.name), kind, dice, depth)
    elif kind is not None and field.is_repeated:
        for _ in range(dice.randint(1, 2)):
            set_at_random(getattr(message, field.name).add(), dice, depth + 1)
    elif kind is not None:
        child = getattr(message, field.name)
        child.SetInParent()
        set_at_random(child, dice, depth + 1)
    elif field.is_repeated:
        values = VALUES[field.type]
        getattr(message, field.name).extend(dice.choice(values) for _ in range(dice.randint(1, 5)))
    else:
        setattr(message, field.name, dice.choice(VALUES[field.type]))


def set_entries(entries, kind, dice, depth):
    keys = VALUES[kind.fields_by_name["key"].type]
    value = kind.fields_by_name["value"]
    for key in dice.sample(keys, min(2, len(keys))):
        if value.message_type is None:
            entries[key] = dice.choice(VALUES[value.type])
        else:
            set_at_random(entries[key], dice, depth + 1)


def camel(name):
    """The names that protobufjs gives to the fields of the project."""
    if name in ("type_url", "by_sint64"):
        return {"type_url": "type_url", "by_sint64": "bySint64"}[name]
    if name == "constructor":
        return "constructor_"
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def dumped(message):
    """A message as the program in JavaScript prints it: fields that are set, all lists and maps."""
    shown = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            item = kind.fields_by_name["value"]
            entries = {key_text(key): dumped_value(item, value[key]) for key in value}
            shown[camel(field.name)] = {"fields": entries}
        elif field.is_repeated:
            shown[camel(field.name)] = [dumped_value(field, item) for item in value]
        elif field.has_presence:
            if message.HasField(field.name):
                shown[camel(field.name)] = dumped_value(field, value)
        elif value or (isinstance(value, float) and math.copysign(1, value) < 0):
            shown[camel(field.name)] = dumped_value(field, value)
    return {"fields": shown}


def key_text(key):
    return str(key).lower() if isinstance(key, bool) else str(key)


def dumped_value(field, value):
    if field.message_type is not None:
        return dumped(value)
    if field.type in WIDE_TYPES and abs(value) > EXACT:
        return {"big": str(value)}
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, float) and math.isnan(value):
        return {"float": "NaN"}
    if isinstance(value, float) and math.isinf(value):
        return {"float": "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, float) and value == 0 and math.copysign(1, value) < 0:
        return {"float": "-0"}
    return value


def test_javascript_reads_what_python_writes(project):
    folder, everything = project
    messages = [set_at_random(everything(), random.Random(seed)) for seed in range(400)]

    answer = in_javascript(folder, decode=[each.SerializeToString().hex() for each in messages])

    assert answer["decoded"] == [dumped(each) for each in messages]


def test_python_reads_what_javascript_writes(project):
    folder, everything = project
    messages = [set_at_random(everything(), random.Random(seed)) for seed in range(1000, 1400)]

    answer = in_javascript(folder, encode=[dumped(each) for each in messages])

    for text, message in zip(answer["encoded"], messages, strict=True):
        assert everything.FromString(bytes.fromhex(text)) == message


def test_javascript_writes_the_bytes_of_python(project):
    folder, everything = project
    messages = [set_at_random(everything(), random.Random(seed)) for seed in range(100)]
    for message in messages:
        for field in WITH_MAPS:
            message.ClearField(field)

    answer = in_javascript(folder, encode=[dumped(each) for each in messages])

    for text, message in zip(answer["encoded"], messages, strict=True):
        assert text == message.SerializeToString().hex()


def test_messages_that_are_cut_or_changed_are_refused_or_read_as_python_reads_them(project):
    folder, everything = project
    dice = random.Random(5)
    mutants = []
    for seed in range(300):
        content = bytearray(set_at_random(everything(), random.Random(seed)).SerializeToString())
        for _ in range(dice.randint(1, 3)):
            if content:
                content[dice.randrange(len(content))] = dice.randrange(256)
        mutants.append(bytes(content[: dice.randint(0, len(content))]))

    answer = in_javascript(folder, decode=[mutant.hex() for mutant in mutants])

    refused = 0
    for mutant, decoded in zip(mutants, answer["decoded"], strict=True):
        try:
            expected = dumped(everything.FromString(mutant))
        except DecodeError:
            refused += 1
            assert "error" in decoded, mutant.hex()
        else:
            assert decoded == expected, mutant.hex()
    assert refused > 50


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"anInt32": 2**31}, "anInt32: expected an integer from -2147483648 to 2147483647, got"),
        ({"anInt64": 1e300}, "anInt64: expected an exact integer from -9223372036854775808 to"),
        ({"aUint64": -1}, "aUint64: expected an exact integer from 0 to 18446744073709551615"),
        ({"aString": 5}, "aString: expected a string, got 5"),
        ({"aBool": 1}, "aBool: expected true or false, got 1"),
        ({"someBytes": "x"}, 'someBytes: expected a Uint8Array, got "x"'),
        ({"doubles": 5}, "doubles: expected an array, got 5"),
        ({"inner": 5}, "inner: expected a message of type.googleapis.com/grid.world.Everything"),
        ({"word": "a", "yes": True}, "word: yes is set, too, of the oneof choiceOf"),
    ],
)
def test_a_value_that_its_field_cannot_hold_is_named(project, given, sentence):
    answer = in_javascript(project[0], encode=[{"fields": given}])

    assert f"grid.world.Everything.{sentence}" in answer["encoded"][0]["error"]
