"""Tests for the table of the suite and for the runs that a file already has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks import defaults
from tests.benchmarks.default_table import table


def result(game: str, seed: int, rows: int | None, held: int = 5, **settings: Any) -> Any:
    ratings = [-900.0, -150.0 if rows else -400.0]
    found = {"rows": rows, "held": held if rows else None, "ratings": ratings}
    return {**found, **defaults.Run(game, seed, settings).identity}


def test_a_line_has_the_seeds_in_order_and_how_many_reach_and_hold_the_goal_in_time() -> None:
    results = [
        result("pendulum", 1, 2_048, held=3),
        result("pendulum", 0, 3_072),
        result("pendulum", 2, 6_144),
        result("pendulum", 3, None),
    ]

    (line,) = table(results).splitlines()[2:]

    assert line == (
        "| pendulum | -200 | 5,000 | 2 of 4 | 1 of 4 | 4,608 | 3,072 2,048 6,144 (-400) |"
    )


def test_a_hard_form_is_compared_with_the_plain_game() -> None:
    results = [result("pendulum, nan features", 0, 3_072), result("pendulum", 0, 2_048)]

    assert "| 3,072 (1.50 x pendulum) |" in table(results).splitlines()[3]


def test_a_learner_that_diverged_has_no_rating() -> None:
    results = [{**result("pendulum", 0, None), "ratings": []}]

    assert "| (diverged) |" in table(results)


def test_a_median_without_a_goal_is_not_reached() -> None:
    results = [result("lander", seed, rows) for seed, rows in enumerate((None, None, 20_480))]

    assert "| not reached | (-400) (-400) 20,480 |" in table(results)


def test_runs_that_the_file_has_are_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "there.jsonl"
    path.write_text(json.dumps(result("reach", 7, 4_096)) + "\n")

    status = defaults.main(["--seeds", "7", "--games", "reach", "--file", str(path)])

    assert status == 0
    assert "| reach | -13 | 9,000 | 1 of 1 | 1 of 1 | 4,096 | 4,096 |" in capsys.readouterr().out


def test_a_result_of_other_settings_is_another_one() -> None:
    there = result("reach", 7, 4_096, tau=0.02)

    assert not defaults.Run("reach", 7, {}).is_of(there)
    assert not defaults.Run("reach", 7, {"tau": 0.02}, defaults.THEIRS).is_of(there)
    assert defaults.Run("reach", 7, {"tau": 0.02}).is_of(there)


def test_a_game_of_ppo_is_learned_by_it() -> None:
    assert defaults.Run("point mass", 0, {}).identity["settings"]["algorithm"] == "ppo"
    assert defaults.Run("reach", 0, {}).identity["settings"]["algorithm"] == "auto"


def test_seeds_are_a_range_or_a_list() -> None:
    assert list(defaults.seeds("5-9")) == [5, 6, 7, 8, 9]
    assert list(defaults.seeds("1,4")) == [1, 4]


def test_another_learner_has_a_table_of_its_own() -> None:
    other = {**result("reach", 0, 8_192), "learner": defaults.THEIRS}

    ours, theirs = table([result("reach", 0, 4_096), other]).split("\n\n")

    assert "| 4,096 |" in ours
    assert "| 8,192 |" in theirs
