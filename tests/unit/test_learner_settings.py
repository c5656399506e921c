"""The keywords of a learner's settings, beside the settings themselves."""

from importlib.metadata import entry_points
from typing import get_type_hints

import pytest

from arkml import HiveGrant
from arkml.errors import InvalidSettings
from arkml.hive.protocol.settings import Settings
from arkml.learning.learner import make_algorithm
from arkml.learning.normalizer import Normalizer
from arkml.learning.ppo import Ppo
from arkml.learning.sac import Sac
from arkml.runs.learner_settings import LearnerSettings, doubts


def test_the_keywords_are_the_fields_that_a_host_may_set():
    keywords, fields = get_type_hints(LearnerSettings), get_type_hints(Settings)
    of_the_guest = ("features", "actions", "branches", "parts")
    for name in (*of_the_guest, "max_episode_steps", "other", "refusal"):
        del fields[name]

    assert keywords == fields


@pytest.mark.parametrize(
    "settings",
    [
        {"memory_min_size": 2_000_000},
        {"memory_max_size": 1_000},
        {"features": 4, "actions": 2},
        {"a key of the guest": []},
    ],
)
def test_a_grant_takes_settings_that_fit_some_guest(settings):
    assert HiveGrant(settings=settings).settings == settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": 0}, "hidden is 0"),
        ({"memory_min_size": 2_000, "memory_max_size": 1_000}, "memory_min_size 2000 is over"),
        ({"device": "tpu"}, "device is 'tpu'"),
        (
            {"rows_per_update": 8},
            "rows_per_update is not used any more: write updates_per_row, the",
        ),
        ({"max_updates_per_row": 1}, r"write updates_per_row, .* \(8 rows per update are 0.125\)"),
    ],
)
def test_a_grant_refuses_settings_that_fit_none(settings, message):
    with pytest.raises(InvalidSettings, match=message):
        HiveGrant(settings=settings)


def test_a_setting_that_there_is_not_is_told_unless_its_learner_is_another_packages():
    given = Settings(8, 3).changed({"gama": 0.9, "spec": {}, "\x1b" * 500: 1})
    told = doubts(given)
    many = doubts(Settings(8, 3).changed({f"key {number}": 1 for number in range(10_000)}))

    assert list(told) == list(many) == ["other"]
    assert told["other"].startswith("'gama' (did you mean gamma?), '\\x1b")
    assert told["other"].isprintable()
    assert max(len(told["other"]), len(many["other"])) < 1_000
    assert doubts(given.changed({"algorithm": "drawn"})) == {}


def test_settings_that_make_a_guest_learn_badly_are_named_and_defaults_are_not():
    crate = Settings(
        8, 3, hidden=1_024, batch_size=4_000, learning_rate_init=1e-2, rollout_length=5
    )
    told = doubts(crate)

    assert doubts(Settings(8, 3)) == {}
    assert told["rollout_length"].startswith("rollout_length 5: ")
    assert told["learning_rate_init"].startswith("learning_rate_init 0.01: ")
    assert told["hidden"].startswith("hidden 1024 with batch_size 4000: ")


class Theirs(Ppo):
    """A learner of another package."""


@pytest.mark.parametrize(("name", "made"), [("sac", Sac), ("theirs", Theirs)])
def test_a_package_brings_learners_and_takes_no_name_of_ours(name, made, tmp_path, monkeypatch):
    installed = tmp_path / "theirs-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    points = "".join(f"{one} = {__name__}:Theirs\n" for one in ("sac", "theirs"))
    (installed / "entry_points.txt").write_text(f"[arkml.learners]\n{points}")
    monkeypatch.syspath_prepend(tmp_path)
    settings = Settings(2, 1, hidden=4, layers=1, memory_max_size=1_000, algorithm=name)

    assert type(make_algorithm(settings, Normalizer(2, active=True))) is made


@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_our_learners_are_installed_as_those_of_any_package(name):
    points = entry_points(group="arkml.learners", name=name)

    assert {point.module for point in points} == {f"arkml.learning.{name}"}
