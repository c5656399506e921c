"""YAML documents, and those that are hostile."""

from __future__ import annotations

import datetime
import re

import pytest

from arkml.base import yaml_documents
from arkml.base.files import MOST_OF_SETTINGS
from arkml.base.yaml_documents import load_yaml


def multiplied(levels, line):
    """A document in which each line repeats the one before it ten times."""
    lines = ["a0: &a0 {k: 1}"]
    for level in range(1, levels + 1):
        aliases = ",".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} {line.format(aliases)}")
    return "\n".join(lines).encode()


def test_a_document_has_the_values_of_its_text():
    text = b"a: 1\nb: [x, 2.5, true, null]\nc: 2001-02-03\nd: !!binary YQ==\n"

    assert load_yaml(text) == {
        "a": 1,
        "b": ["x", 2.5, True, None],
        "c": datetime.date(2001, 2, 3),
        "d": b"a",
    }
    assert load_yaml(b"") is None


def test_anchors_and_merge_keys_repeat_values():
    text = b"a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: [*a, *a]\n"

    assert load_yaml(text) == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 1, "y": 3},
        "c": [{"x": 1, "y": 2}] * 2,
    }


def test_a_long_text_is_taken():
    assert load_yaml(b"x" * MOST_OF_SETTINGS) == "x" * MOST_OF_SETTINGS


def test_as_many_values_are_taken_as_there_may_be(monkeypatch):
    monkeypatch.setattr(yaml_documents, "MOST_VALUES", 1_000)  # 100,000 take seconds

    assert load_yaml(b"- 1\n" * 999) == [1] * 999
    with pytest.raises(ValueError, match="it expands to more than 1,000 values"):
        load_yaml(b"- 1\n" * 1_000)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (multiplied(7, "[{}]"), "it expands to more than 100,000 values"),
        (multiplied(7, "{{<<: [{}]}}"), "it expands to more than 100,000 values"),
        (b"- &a " + b"x" * 500_000 + b"\n- *a" * 20, "it expands to more than 100,000 values"),
        (b"a: &a [*a]", "an alias repeats the value that it is part of"),
        (b"a: &a {<<: *a}", "an alias repeats the value that it is part of"),
        (b"[" * 100_000, "it has more than 50 levels"),
        (b"#" * (MOST_OF_SETTINGS + 1), "it has more than 1,048,576 bytes"),
        (b"a: 2001-99-99", "'2001-99-99' is not of type 'timestamp'"),
        (b"a: !!timestamp x", "'x' is not of type 'timestamp'"),
        (b"a: !!int zz", "'zz' is not of type 'int'"),
        (b"a: !!int ''", "'' is not of type 'int'"),
        (b"a: !!float x", "'x' is not of type 'float'"),
        (b"a: !!bool x", "'x' is not of type 'bool'"),
        (b"a: " + b"1" * 5000, "has more than 1000 characters, and is not a text"),
        (b"a: 1" + b":59" * 300_000, "has more than 1000 characters, and is not a text"),
        (b"a: 1" + b":59" * 300 + b".5", "is not of type 'float'"),
        (b'a: "\\uD800"', "is not Unicode text"),
        (b"? [a]\n: c", "found unhashable key"),
        (b"a: !!python/name:os.system x", "could not determine a constructor"),
        (b"a: !" + b"x" * 5000 + b" y", "could not determine a constructor"),
        (b"a: *" + b"x" * 5000, "found undefined alias"),
        (b"a: \xff\xfe", "invalid start byte"),
        (b"a: \0", "special characters are not allowed"),
        (b"--- a\n--- b", "expected a single document"),
    ],
)
def test_what_no_honest_document_has_is_refused_in_one_short_sentence(text, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)) as refused:
        load_yaml(text)

    message = str(refused.value)
    assert "\n" not in message
    assert len(message) < 500
