"""Choices that are places of a grid: beside loops over cells, as ONNX, and from place to place."""

import numpy as np
import pytest
from tests.unit.test_learning_encoders import ppo_of, rows_of

from arkml.hive.protocol.parts import Part, PlaceChoices, choices_fault
from arkml.hive.protocol.settings import Settings
from arkml.learning.encoders import Views
from arkml.learning.maps import NUMPY
from arkml.learning.networks import mapped
from arkml.learning.place_choices import count_chooser_numbers, make_choosers, with_places
from arkml.learning.policy_graph import run
from arkml.learning.ppo_state import first_state

HEIGHT, WIDTH, CHANNELS = 4, 5, 2
CELLS = HEIGHT * WIDTH
SIZES = {"cells": CELLS, "rows": HEIGHT, "columns": WIDTH}


def board(are, branch=0, first=0):
    choices = PlaceChoices(are, branch, first)
    return Part("board", (HEIGHT, WIDTH, CHANNELS), "grid", choices=choices)


def settings_of(*parts, branches, continuous=0, **changes):
    width = sum(part.width for part in parts)
    return Settings(width, continuous + len(branches), branches, parts=parts, hidden=8, **changes)


def choosers_of(of):
    random = np.random.default_rng(4)
    made = make_choosers(random, of)
    return mapped(lambda leaf: leaf + random.normal(0, 0.2, leaf.shape).astype("f4"), made)


def by_loops(chooser, cells, are):
    """The logits of the places of one grid, cell by cell; cells: [height, width, channels]."""
    for layer in (chooser.inner, chooser.outer):
        height, width, channels = cells.shape
        weight = layer.weight.reshape(3, 3, channels, -1)
        after = np.zeros((height, width, weight.shape[-1]))
        for i in range(height):
            for j in range(width):
                total = layer.bias.astype(float)
                for down in (-1, 0, 1):
                    for across in (-1, 0, 1):
                        y, x = i + down, j + across
                        if 0 <= y < height and 0 <= x < width:
                            total = total + cells[y, x] @ weight[down + 1, across + 1]
                after[i, j] = np.maximum(total, 0.0)
        cells = after
    height, width, _ = cells.shape
    places = {
        "cells": [cells[i, j] for i in range(height) for j in range(width)],
        "rows": [cells[i].reshape(-1) for i in range(height)],
        "columns": [cells[:, j].reshape(-1) for j in range(width)],
    }[are]
    return [(place @ chooser.last.weight + chooser.last.bias)[0] for place in places]


@pytest.mark.parametrize("are", SIZES)
def test_the_logits_of_places_are_those_of_loops_over_cells(are):
    of = settings_of(board(are), branches=(SIZES[are],))
    (chooser,) = choosers_of(of)
    features = np.random.default_rng(1).normal(size=(3, of.features)).astype(np.float32)
    nothing = np.zeros((3, SIZES[are]), np.float32)

    found = with_places(NUMPY, Views.of(of), of.branches, [chooser], features, nothing)

    for row, logits in zip(features, found, strict=True):
        expected = by_loops(chooser, row.reshape(HEIGHT, WIDTH, CHANNELS), are)
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)


def test_only_the_logits_of_places_are_changed():
    """Behind two continuous actions, another branch and the choice to pass; one more follows."""
    parts = (Part("me", (3,)), board("cells", branch=1, first=1))
    of = settings_of(*parts, branches=(4, CELLS + 2), continuous=2)
    outputs = np.random.default_rng(2).normal(size=(6, 2 + 4 + CELLS + 2)).astype(np.float32)
    features = np.random.default_rng(1).normal(size=(6, of.features)).astype(np.float32)

    found = with_places(NUMPY, Views.of(of), of.branches, choosers_of(of), features, outputs)

    changed = found != outputs
    assert changed[:, 7 : 7 + CELLS].all()
    assert not changed[:, :7].any()
    assert not changed[:, 7 + CELLS :].any()


def test_a_pattern_speaks_for_a_place_wherever_it_is():
    of = settings_of(
        Part("board", (9, 9, 1), "grid", choices=PlaceChoices("cells")), branches=(81,)
    )
    boards = np.zeros((2, 9, 9), np.float32)
    pattern = np.random.default_rng(3).normal(size=(3, 3))
    boards[0, 2:5, 2:5] = boards[1, 4:7, 3:6] = pattern
    logits = with_places(
        NUMPY, Views.of(of), of.branches, choosers_of(of), boards.reshape(2, -1), np.zeros((2, 81))
    ).reshape(2, 9, 9)

    np.testing.assert_allclose(logits[0, 2:5, 2:5], logits[1, 4:7, 3:6], rtol=1e-5)


@pytest.mark.parametrize("memory", [0, 4])
@pytest.mark.parametrize("are", SIZES)
def test_an_export_chooses_as_the_learner(are, memory):
    parts = (Part("me", (3,)), board(are, branch=1, first=1))
    of = settings_of(*parts, branches=(3, SIZES[are] + 1), continuous=1, memory=memory)
    made = ppo_of(of)
    model = made.policy().model  # which is checked, too
    rows, count = rows_of(of, 20, seed=5), sum(of.branches)
    inputs = {
        "me": rows[:, :3],
        "board": rows[:, 3:].reshape(20, HEIGHT, WIDTH, CHANNELS),
        "epsilon": np.zeros((20, 3), np.float32),
        "action_masks": np.ones((20, count), np.float32),
    }
    if memory:
        inputs["h_in"] = np.zeros((20, memory), np.float32)
    (actions,) = run(model, inputs, ["actions"])
    heads = made.weights().heads(rows, np.zeros((20, memory), np.float32))

    np.testing.assert_array_equal(actions[:, 1], heads.logits[:, :3].argmax(1))
    np.testing.assert_array_equal(actions[:, 2], heads.logits[:, 3:].argmax(1))
    assert len(set(actions[:, 2].tolist())) > 1


@pytest.mark.parametrize("encoder", ["small", "large", "impala"])
@pytest.mark.parametrize("are", SIZES)
def test_numbers_are_counted(are, encoder):
    of = settings_of(board(are), branches=(SIZES[are],), encoder=encoder)
    numbers = sum(
        leaf.size
        for chooser in make_choosers(np.random.default_rng(0), of)
        for layer in chooser
        for leaf in layer
    )

    assert count_chooser_numbers(of) == numbers


def test_a_board_without_such_choices_has_no_chooser():
    plain = Part("board", (HEIGHT, WIDTH, CHANNELS), "grid")

    assert first_state(settings_of(plain, branches=(CELLS,))).weights.choosers == []


@pytest.mark.parametrize(
    ("part", "branches", "fault"),
    [
        (board("cells"), (CELLS,), ""),
        (board("rows", branch=1), (2, HEIGHT), ""),
        (board("cells", first=1), (CELLS + 1,), ""),
        (
            board("cells", first=1),
            (CELLS,),
            "its cells are the choices 1 to 20, and branch 0 has 0 to 19",
        ),
        (board("rows"), (HEIGHT - 1,), "its rows are the choices 0 to 3, and branch 0 has 0 to 2"),
        (
            board("columns", branch=1),
            (WIDTH,),
            "of branch 1, counted from 0, and the number of branches is 1",
        ),
        (board("columns"), (), "of branch 0, counted from 0, and the number of branches is 0"),
    ],
)
def test_places_have_to_fit_a_branch(part, branches, fault):
    assert fault in choices_fault([part], branches)
    assert bool(fault) == bool(choices_fault([part], branches))
