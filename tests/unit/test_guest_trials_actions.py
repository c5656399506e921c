"""Actions of actors as floats of a guest, valid whatever was sent."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from arkml.envs.core.specs import Actions
from arkml.guest_trials.behavior_actions import ActionRule, varint
from arkml.trials.wire.guest_pb2 import Action

HYBRID = Actions(2, (-1.0, 0.5), (1.0, 2.0), (3, 2))


def content(continuous=(), choices=()):
    return Action(continuous=continuous, choices=choices).SerializeToString()


def applied(message, allowed=None, actions=HYBRID):
    allowed = None if allowed is None else np.array(allowed, bool)
    return ActionRule(actions).applied(message, allowed).tolist()


@pytest.mark.parametrize(
    ("continuous", "expected"),
    [
        ((0.25, 1.0), (0.25, 1.0)),
        ((-7.0, 9.0), (-1.0, 2.0)),
        ((0.5,), (0.5, 0.5)),
        ((), (0.0, 0.5)),
        ((math.nan, math.nan), (0.0, 0.5)),
        ((math.inf, -math.inf), (0.0, 0.5)),
        ((0.25, 1.0, 5.0), (0.25, 1.0)),
    ],
)
def test_continuous_actions_are_clipped_and_others_are_the_default(continuous, expected):
    assert tuple(applied(content(continuous))[:2]) == expected


@pytest.mark.parametrize(
    ("choices", "allowed", "expected"),
    [
        ((2, 1), None, (2, 1)),
        ((), None, (0, 0)),
        ((3, 2), None, (0, 0)),
        ((2, 1), (0, 1, 0, 1, 0), (1, 0)),
        ((), (0, 0, 1, 0, 1), (2, 1)),
        ((1, 1), (0, 0, 0, 0, 1), (1, 1)),
        ((4_000_000_000, 1, 1), None, (0, 1)),
    ],
)
def test_a_choice_that_cannot_be_taken_is_the_lowest_that_can(choices, allowed, expected):
    assert tuple(applied(content(choices=choices), allowed)[2:]) == expected


def test_a_message_that_cannot_be_read_is_the_default_action():
    assert applied(b"\xff\xff") == [0.0, 0.5, 0.0, 0.0]


def test_the_default_message_is_the_default_action():
    rule = ActionRule(HYBRID)

    assert rule.applied(rule.default_content, None).tolist() == rule.default.tolist()


@given(
    rows=npst.arrays(np.float32, (3, 4), elements=st.floats(width=32)),
    allowed=st.none() | npst.arrays(bool, (3, 5)),
)
@settings(deadline=None)
def test_no_masked_choice_is_ever_made(rows, allowed):
    settled = ActionRule(HYBRID).settled(rows, allowed)

    assert np.isfinite(settled).all()
    assert ((settled[:, :2] >= HYBRID.low) & (settled[:, :2] <= HYBRID.high)).all()
    for row, chosen in enumerate(settled[:, 2:].astype(int).tolist()):
        for choice, start, stop in zip(chosen, (0, 3), (3, 5), strict=True):
            mask = np.ones(stop - start, bool) if allowed is None else allowed[row, start:stop]
            assert mask[choice] or not mask.any()


@given(message=st.binary(max_size=40), allowed=st.none() | npst.arrays(bool, 5))
@settings(deadline=None)
def test_any_bytes_are_a_valid_action(message, allowed):
    action = ActionRule(HYBRID).applied(message, allowed)

    HYBRID.check(action, "anyone")


@given(
    count=st.integers(0, 3),
    branches=st.lists(st.integers(1, 400), max_size=2),
    data=st.data(),
)
@settings(deadline=None)
def test_messages_are_written_as_protobuf_writes_them_and_read_back(count, branches, data):
    actions = Actions(count, (-5.0,) * count, (5.0,) * count, tuple(branches))
    rule = ActionRule(actions)
    shape = (2, actions.width)
    drawn = data.draw(npst.arrays(np.float32, shape, elements=st.floats(0, 400, width=32)))
    settled = rule.settled(np.floor(drawn), None)
    messages = rule.contents(settled)

    assert len(messages) == len(settled)
    for message, row in zip(messages, settled, strict=True):
        assert Action.FromString(message).SerializeToString() == message
        assert rule.applied(message, None).tolist() == row.tolist()


@pytest.mark.parametrize("number", [0, 127, 128, 16_383, 16_384, 2**32])
def test_numbers_are_written_as_protobuf_writes_them(number):
    decoded = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(varint(number)))

    assert decoded == number
