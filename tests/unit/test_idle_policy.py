"""The policy that the helpers for guests make for rows of any width."""

import re

import numpy as np
import pytest
from tests.unit.policy_models import acted, load

from arkml.cli.sdk_command import SDK

C = (SDK / "c" / "ark_idle_policy.h").read_text()
RUST = (SDK / "rust" / "ark_idle_policy.rs").read_text()
ASSEMBLYSCRIPT = (SDK / "assemblyscript" / "idle_policy.ts").read_text()


def numbers_of(pattern, text):
    return [int(number) for number in re.search(pattern, text, re.DOTALL)[1].split(",")]


MODEL = numbers_of(r"\] = \{\n(.*?),\n\}", C)
FEATURES = numbers_of(r"ARK_IDLE_FEATURES \{(.*?)\}", C)
ACTIONS = numbers_of(r"ARK_IDLE_ACTIONS \{(.*?)\}", C)


@pytest.mark.parametrize(
    ("features", "actions"), [(1, 1), (127, 128), (300, 2), (4_000, 17), (65_536, 1)]
)
def test_it_takes_rows_of_any_widths_and_answers_zeros(features, actions):
    model = bytearray(MODEL)
    for (number, varint), width in ((FEATURES, features), (ACTIONS, actions)):
        model[number : number + 4] = width.to_bytes(4, "little")
        model[varint : varint + 3] = width & 0x7F | 0x80, width >> 7 & 0x7F | 0x80, width >> 14
    answers = acted(load(bytes(model), features, actions), np.ones((3, features), np.float32))

    assert np.array_equal(answers, np.zeros((3, actions)))


@pytest.mark.parametrize("text", [RUST, ASSEMBLYSCRIPT])
def test_it_is_the_same_in_all_languages(text):
    assert numbers_of(r"MODEL.*?= \[\n(.*?),\n\]", text) == MODEL
    assert numbers_of(r"FEATURES.*?= \[(.*?)\]", text) == FEATURES
    assert numbers_of(r"ACTIONS.*?= \[(.*?)\]", text) == ACTIONS
