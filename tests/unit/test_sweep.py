"""Searches for settings: what they choose from, and what they keep."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.pipes import endless_pipe

from arkml.cli import sweep_command, train_command
from arkml.cli.exits import GOOD
from arkml.cli.sweep_command import SweepOptions, TrialRunner, _document_of, _show, best_of
from arkml.errors import UsageError
from arkml.training import search_space
from arkml.training.search_space import Range, read_space
from arkml.training.sweep import Sweep, TrialResult, draw_trials

SUBJECT = {"guest": "walker.wasm"}
SPACE = {"tau": [0.005, 0.05], "hidden": {"low": 16, "high": 64, "int": True}}


@pytest.fixture
def space(tmp_path):
    """A function that reads these settings as a search space."""

    def read(document):
        path = tmp_path / "space.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return read_space(path)

    return read


def test_choices_and_ranges_are_read_by_the_names_of_settings(space):
    read = space({**SPACE, "learning_rate_init": {"low": 1e-4, "high": 1e-2, "log": True}})

    assert read.settings == {
        "tau": (0.005, 0.05),
        "hidden": Range(16, 64, is_int=True),
        "learning_rate_init": Range(1e-4, 1e-2, is_log=True),
    }


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "is not JSON"),
        ('{"tau": [0.1], "tau": [0.2]}', "the key 'tau' comes twice"),
        ("[1]", "takes an object of settings"),
        ("{}", "takes an object of settings"),
        ({"tua": [0.1]}, "there is no setting 'tua'"),
        ({"features": [3]}, "there is no setting 'features'"),
        ({"tau": 0.1}, "takes a list of choices, or a range"),
        ({"tau": []}, "takes a list of choices, or a range"),
        ({"tau": [[0.1]]}, r"\[0.1\] is not a number"),
        ({"tau": [0.1, 2]}, "tau"),
        ({"hidden": [16.5]}, "hidden"),
        ({"device": ["gpu"]}, "device"),
        ({"tau": {"low": 0.1}}, "from 0.1 to None"),
        ({"tau": {"low": 0.2, "high": 0.1}}, "from 0.2 to 0.1"),
        ({"tau": {"low": True, "high": 2}}, "from True to 2"),
        ({"tau": {"low": 0.1, "high": 0.2, "step": 0.1}}, "has 'step'"),
        ({"tau": {"low": 0.0, "high": 0.2, "log": True}}, "begins above 0"),
        ({"tau": {"low": 0.1, "high": 0.2, "log": 1}}, "true or false"),
        ({"tau": {"low": 0.1, "high": 20}}, "tau"),
        ({"hidden": {"low": 16, "high": 64}}, 'takes whole numbers: add "int": true'),
        ({"hidden": {"low": 16, "high": 64.5, "int": True}}, "int takes whole numbers"),
    ],
)
def test_what_no_learner_takes_is_refused_with_the_setting(space, document, message):
    with pytest.raises(UsageError, match=message):
        space(document)


@pytest.mark.parametrize(
    ("module", "limit", "read"),
    [
        (search_space, "MOST_OF_SETTINGS", read_space),
        (train_command, "MOST_OF_SETTINGS", train_command.read_settings),
    ],
)
def test_a_file_of_settings_is_read_up_to_a_limit(tmp_path, monkeypatch, module, limit, read):
    monkeypatch.setattr(module, limit, 100)
    with (
        endless_pipe(tmp_path / "pipe", b" " * 101) as pipe,
        pytest.raises(UsageError, match="pipe cannot be read: it has more than 100 bytes"),
    ):
        read(pipe)


def test_settings_that_are_nested_without_end_are_refused(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text("[" * 100_000)

    with pytest.raises(UsageError, match="is not JSON"):
        train_command.read_settings(path)


def test_a_sweep_proposes_settings_of_its_space_and_keeps_what_came_of_them(tmp_path, space):
    read = space(SPACE)
    with Sweep(tmp_path / "out", read, SUBJECT, 0) as sweep:
        for value in (1.0, None, 3.0):
            number, settings = sweep.ask()
            sweep.tell(number, value, {"rows": 10})
    with Sweep(tmp_path / "out", read, SUBJECT, 0) as again:
        results = again.results()
        begun = again.begun

    assert begun == 3
    assert [one.value for one in results] == [1.0, None, 3.0]
    assert [one.document for one in results] == [{"rows": 10}] * 3
    assert results[-1].settings == settings
    assert settings["tau"] in (0.005, 0.05)
    assert 16 <= settings["hidden"] <= 64
    assert isinstance(settings["hidden"], int)
    assert draw_trials(results).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("versions", "updates", "value"),
    [([1, 1], 900, None), ([1, 2], 900, 4.0), ([1], 0, 4.0), ([], 900, 4.0)],
)
def test_a_trial_that_rated_its_untrained_policy_alone_has_no_value(
    tmp_path, space, capsys, versions, updates, value
):
    words = ("a.wasm", "--frames=200", "--debug", "--eval-every=never")
    options = SweepOptions(Path("a.wasm"), Path("s"), tmp_path, 1, 1, 0, words, {}, as_json=False)
    document = {
        "mean_return": {"last": 4.0}, "updates": updates,
        "evaluations": [{"version": version} for version in versions],
    }  # fmt: skip
    with Sweep(tmp_path / "out", space(SPACE), SUBJECT, 0) as sweep:
        trials, (number, _) = TrialRunner(options, sweep), sweep.ask()
        ended = SimpleNamespace(poll=lambda: GOOD, document=document, folder=tmp_path / "trial")
        trials._running = {number: ended}
        trials._gather()
        (result,) = sweep.results()

    assert result.value == value
    assert result.document["options"] == ["--frames=200"]
    assert ("rated only version 1" in capsys.readouterr().err) is (value is None)


@pytest.mark.parametrize(
    ("words", "warning"),
    [
        (("a.wasm", "--frames=200", "--eval-every=never"), ""),
        (("a.wasm", "--frames=200", "--limit=run_seconds=2", "--debug"), ""),
        (("a.wasm", "--frames=300"), "with --frames=200, those to come with --frames=300: such"),
        (("a.wasm",), "trial 1 was made with --frames=200, those to come with no options: such"),
        (("a.wasm", "--frames=200", "--seed=4"), "those to come with --frames=200 --seed=4: such"),
    ],
)
def test_a_sweep_that_is_continued_with_other_options_is_warned_of_once(
    tmp_path, space, capsys, monkeypatch, words, warning
):
    monkeypatch.setattr(sweep_command, "TrainingProcess", lambda *_: None)
    before = ["--frames=200"]
    with Sweep(tmp_path / "out", space(SPACE), SUBJECT, 0) as sweep:
        sweep.tell(sweep.ask()[0], None, {"options": ["--frames=7"]})  # has no return to compare
        sweep.tell(sweep.ask()[0], 1.0, {"options": before})
        options = SweepOptions(
            Path("a.wasm"), Path("s"), tmp_path, 4, 1, 0, words, {}, as_json=False
        )
        trials = TrialRunner(options, sweep)
        trials._start()
        trials._start()
    said = capsys.readouterr().err

    assert warning in said
    assert said.count("do not compare") == bool(warning)


@pytest.mark.parametrize(
    ("values", "equal", "words"),
    [
        ((1.0, 3.0, None), [], ""),
        ((2.0, 1.0, 2.0), [2], "the first of equals: trial 2 has the same mean return"),
        ((2.0, 2.0, 2.0), [1, 2], "the first of equals: 2 other trials have the same mean return"),
        ((None, None, None), [], ""),
    ],
)
def test_a_best_trial_with_equals_is_shown_as_such(tmp_path, capsys, values, equal, words):
    results = [TrialResult(at, {"tau": 0.1 + at}, value, {}) for at, value in enumerate(values)]
    options = SweepOptions(Path("a.wasm"), Path("s"), tmp_path, 3, 1, 0, (), {}, as_json=False)
    document = _document_of(options, results, best_of(results))
    _show(document)
    said = capsys.readouterr().out

    assert document["equal"] == equal
    assert words in said
    assert bool(words) is ("first of equals" in said)


def test_a_trial_that_was_cut_off_is_repeated_with_its_settings(tmp_path, space):
    read = space(SPACE)
    with Sweep(tmp_path / "out", read, SUBJECT, 0) as sweep:
        _, cut_off = sweep.ask()
    with Sweep(tmp_path / "out", read, SUBJECT, 0) as again:
        before = again.begun
        number, settings = again.ask()
        result = again.tell(number, 1.0, {})

    assert before == 0
    assert settings == cut_off
    assert result.value == 1.0


@pytest.mark.parametrize("seed", [0, 1 << 40, -1])
def test_a_sweep_that_is_continued_chooses_other_settings(tmp_path, space, seed):
    read = space({"tau": {"low": 0.0, "high": 1.0}})
    chosen = []
    for part in range(3):
        with Sweep(tmp_path / "out", read, SUBJECT, seed) as sweep:
            for _ in range(2):
                number, settings = sweep.ask()
                sweep.tell(number, float(part), {})
                chosen.append(settings["tau"])
    with Sweep(tmp_path / "other", read, SUBJECT, seed) as sweep:
        again = sweep.ask()[1]["tau"]

    assert len(set(chosen)) == 6
    assert again == chosen[0]


def test_the_journal_of_a_sweep_is_text(tmp_path, space):
    with Sweep(tmp_path / "out", space(SPACE), SUBJECT, 0) as sweep:
        sweep.tell(sweep.ask()[0], 1.0, {})
    lines = (tmp_path / "out/trials.log").read_text().splitlines()

    assert all(isinstance(json.loads(line), dict) for line in lines)


def test_a_pipe_in_the_place_of_the_journal_is_not_waited_for(tmp_path, space):
    os.mkfifo(tmp_path / "trials.log")

    with pytest.raises(UsageError, match=r"trials\.log cannot be read: it is not a plain file"):
        Sweep(tmp_path, space(SPACE), SUBJECT, 0)


def test_the_directory_of_another_sweep_is_refused(tmp_path, space):
    with Sweep(tmp_path / "out", space(SPACE), SUBJECT, 0):
        pass

    with pytest.raises(UsageError, match="with another space: choose another --output"):
        Sweep(tmp_path / "out", space({"tau": [0.1]}), SUBJECT, 0)
    with pytest.raises(UsageError, match="holds a sweep with another guest"):
        Sweep(tmp_path / "out", space(SPACE), {"guest": "other.wasm"}, 0)


def test_two_processes_do_not_share_a_sweep(tmp_path, space):
    read = space(SPACE)
    with (
        Sweep(tmp_path / "out", read, SUBJECT, 0),
        pytest.raises(UsageError, match="in use by another sweep"),
    ):
        Sweep(tmp_path / "out", read, SUBJECT, 0)
    with Sweep(tmp_path / "out", read, SUBJECT, 0) as after:
        begun = after.begun

    assert begun == 0
