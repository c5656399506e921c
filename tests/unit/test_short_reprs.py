"""Public records are shown in a line, however large their arrays and files are."""

import re
from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from tests.unit.test_sealed import CLASSES

from arkml.base.short_reprs import cut_repr, cut_text

LARGE = (bytes(200_000), np.zeros((300, 700)), [0.125] * 100_000, dict.fromkeys(range(100_000)))
_LARGE = re.compile(
    r"\b(bytes|NDArray|Floats|Marks|tuple|list|Sequence|Mapping|dict|Any|Message)\b"
)
MOST = 2_000  # letters


def names_of(kind):
    """The fields of a record that may hold anything large."""
    if is_dataclass(kind):
        return [f.name for f in fields(kind) if f.repr and _LARGE.search(str(f.type))]
    return [name for name, hint in kind.__annotations__.items() if _LARGE.search(str(hint))]


def is_record(kind):
    return (is_dataclass(kind) or hasattr(kind, "_fields")) and names_of(kind)


def filled(kind, value):
    """A record all of whose fields are `value`, made without its constructor."""
    large = names_of(kind)
    if not is_dataclass(kind):
        return tuple.__new__(kind, [value if name in large else 0 for name in kind._fields])
    made = object.__new__(kind)
    for field in fields(kind):
        object.__setattr__(made, field.name, value if field.name in large else 0)
    return made


@pytest.mark.parametrize("kind", [each for each in CLASSES if is_record(each.values[0])])
@pytest.mark.parametrize("value", LARGE, ids=["bytes", "array", "list", "mapping"])
def test_a_public_record_is_shown_in_a_line(kind, value):
    text = repr(filled(kind, value))

    assert len(text) < MOST
    assert "\n" not in text


class Silent:
    def __repr__(self):
        raise RuntimeError("not now")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12, "12"),
        (10**40, "1" + 29 * "0" + "… (41 digits)"),
        (-(10**400), "-1" + 28 * "0" + "… (402 digits)"),
        pytest.param(10**5_000, "a number of 16,610 bits", id="more digits than Python writes"),
        ("name", "'name'"),
        (b"a" * 10, "<10 bytes>"),
        (Silent(), "<Silent instance at"),
    ],
)
def test_a_value_in_a_sentence_is_cut(value, text):
    assert cut_repr(value).startswith(text)
    assert len(cut_repr("x" * 1_000)) <= 200


def test_a_value_of_a_stranger_is_shown_in_a_few_letters():
    nested = [[["x" * 5000] * 100] * 100] * 100

    assert len(cut_repr(nested)) <= 501
    assert len(cut_text(ValueError("x \n" * 5000))) == 301
    assert cut_text(ValueError("one\n  two")) == "one two"
