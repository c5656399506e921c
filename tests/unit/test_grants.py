"""Grants of WASI and of hives are checked when they are made."""

import pytest

from arkml import HiveGrant, WasiGrant
from arkml.errors import UsageError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("arguments", "abc"),
        ("arguments", 5),
        ("arguments", b"abc"),
        ("arguments", ["program", "a\0b"]),
        ("environment", {"a": 5}),
        ("environment", {"a=b": "c"}),
        ("environment", {"": "c"}),
        ("environment", {"a": "\0"}),
        ("environment", [("a", "b")]),
        ("directories", "/tmp"),
        ("directories", ["/tmp"]),
        ("directories", 5),
    ],
)
def test_a_grant_of_wasi_takes_texts_and_directories(name, value):
    with pytest.raises(UsageError, match=f"^{name} is .*: it takes a (sequence|mapping) of"):
        WasiGrant(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hive", 5),
        ("allowed", "localhost:1"),
        ("allowed", [5]),
        ("checkpoint", 5),
        ("join_run", 5),
        ("wait_for_learner", 5),
        ("shared", 5),
        ("resume", "x"),
        ("upload_modules", None),
        ("keep_module", "yes"),
        ("settings", 5),
        ("expect_run", "a run"),
        ("page", -1),
        ("page", 70_000),
        ("page", True),
    ],
)
def test_a_grant_of_a_hive_takes_values_of_its_kinds(name, value):
    with pytest.raises(UsageError, match=f"^{name} is .*: it takes "):
        HiveGrant(**{name: value})


def test_a_token_is_in_no_text_of_a_grant():
    with pytest.raises(UsageError, match=r"^token is a bytes: it takes a text, or None") as refusal:
        HiveGrant(hive="localhost:1", token=b"tok3n")

    assert "tok3n" not in repr(HiveGrant(token="tok3n")) + str(refusal.value)
