"""Traces of the evaluations of a training: which are kept, and that they replay equal."""

import os

import numpy as np
import pytest
from tests.integration.command_line import arkml
from tests.integration.guest_text import function, module
from tests.integration.test_train_evaluations import COIN, QUICK, REACH

import arkml as library
from arkml import Replay
from arkml.errors import UsageError
from arkml.hive.protocol.replay_messages import ReplayDocument
from arkml.training import evaluation_traces
from arkml.training.evaluation_traces import EvaluationTraces


def replayed(path, source=REACH):
    """The frames of a trace, compared with it."""
    with Replay(path, source) as replay:
        frames = list(replay)
        assert not replay.ending
        assert replay.first == 1
    return frames


def test_evaluations_of_a_training_replay_equal(tmp_path):
    result = library.train(
        REACH, frames=300, eval_every=60, trace_every=2, settings={**QUICK, "sync": True},
        directory=tmp_path,
    )  # fmt: skip

    folder = result.files["traces"]
    kept = EvaluationTraces(tmp_path, 1).kept()
    assert folder == tmp_path / "traces"
    assert {one.path.parent for one in kept} == {folder}
    recorded = result.evaluations[::2]
    assert [one.version for one in kept] == [one.version for one in recorded]
    for one, evaluation in zip(kept, recorded, strict=True):
        frames = replayed(one.path)
        rewards = np.concatenate([f.submits[0].rows["reward"] for f in frames if f.submits])
        assert len(frames) >= 50
        assert np.isfinite(rewards).all()
        if len(evaluation.returns) == 10:  # a version that seems to be the best plays on
            assert one.mean_return == pytest.approx(evaluation.mean_return, abs=1e-3)


def test_the_run_keeps_replays_for_its_page(tmp_path):
    library.train(
        REACH, frames=120, eval_every=60, trace_every=1, settings={**QUICK, "sync": True},
        directory=tmp_path,
    )  # fmt: skip

    kept = {path.stem: path.read_bytes() for path in tmp_path.rglob("*.replay")}
    assert set(kept) == {"best", "worst", "latest"}
    document = ReplayDocument.unpack(kept["latest"].partition(b"\n")[2])
    assert document.last >= 50
    assert document.frames


def test_the_command_line_says_where_traces_lie(tmp_path):
    done = arkml(
        "train", REACH, "--frames", "60", "--eval-every", "60", "--trace-every", "1", "--sync",
        "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert done.status == 0, done.err
    folder = tmp_path / "run" / "traces"
    assert done.json["traces"] == str(folder)
    (file,) = folder.iterdir()
    shown = arkml("replay", file, REACH, "--json").json
    assert shown["equal"]
    assert shown["submits"][0]["training"]


def test_with_a_limit_of_steps_the_first_guest_is_recorded(tmp_path):
    result = library.train(
        COIN, frames=120, eval_every=120, trace_every=1, max_episode_steps=20,
        settings={**QUICK, "sync": True}, directory=tmp_path,
    )  # fmt: skip
    (file,) = result.files["traces"].iterdir()

    assert len(replayed(file, COIN)) == 21


def test_a_training_without_traces_has_no_folder(tmp_path):
    result = library.train(REACH, frames=60, eval_every=60, settings=QUICK, directory=tmp_path)

    assert "traces" not in result.files
    assert not (tmp_path / "traces").exists()


TABLES = module(
    '(type $calls (func)) (table (export "t") 1 (ref null $calls))',
    function("ark_applet_update", "(table.set (i32.const 0) (ref.null $calls))"),
    uses=("ark-ml-v1.ml__start_training",),
)


@pytest.mark.parametrize(
    ("source", "options", "sentence"),
    [
        (TABLES, {"trace_every": 1}, "cannot be recorded from an evaluation on: it has instruct"),
        (REACH, {"trace_every": 0}, "trace_every is 0"),
        (REACH, {"trace_every": 2, "eval_every": None}, "there are no evaluations to record"),
    ],
)
def test_what_cannot_be_recorded_is_refused(tmp_path, source, options, sentence):
    with pytest.raises(UsageError, match=sentence):
        library.train(source, frames=60, directory=tmp_path, **options)


@pytest.fixture
def traces(tmp_path):
    made = EvaluationTraces(tmp_path, 1)
    made.make_folder()
    return made


def keep(traces, version, returns, size=10):
    """Keep a file of `size` bytes as the trace of a version, later than all before."""
    playing = traces.begin()
    playing.write_bytes(bytes(size))
    traces.keep(playing, version, returns)
    for path in traces.folder.glob(f"version-{version}_*"):
        os.utime(path, (version, version))


def test_the_best_the_worst_and_the_latest_are_kept(traces, monkeypatch):
    monkeypatch.setattr(evaluation_traces, "MOST_FILES", 4)
    returns = [0, -3.5, 1, 9.25, 2, 3, 4, 5]
    for version, value in enumerate(returns, 1):
        keep(traces, version, [value])
    assert [(one.version, one.mean_return) for one in traces.kept()] == [
        (2, -3.5),
        (4, 9.25),
        (7, 4.0),
        (8, 5.0),
    ]


def test_their_bytes_are_bounded(traces, monkeypatch):
    monkeypatch.setattr(evaluation_traces, "MOST_BYTES", 350)
    for version, value in enumerate([1, 5, 0, 2, 3], 1):
        keep(traces, version, [value], size=100)
    assert [one.version for one in traces.kept()] == [2, 3, 5]


def test_a_failed_evaluation_is_kept_without_a_return(traces, monkeypatch):
    monkeypatch.setattr(evaluation_traces, "MOST_FILES", 2)
    keep(traces, 1, [1.0])
    keep(traces, 2, [])
    assert sorted(path.name for path in traces.folder.iterdir()) == [
        "version-1_return1.0000.trace",
        "version-2_unrated.trace",
    ]


def test_one_of_several_evaluations_is_recorded(tmp_path):
    traces = EvaluationTraces(tmp_path, 3)

    assert [traces.begin() is not None for _ in range(7)] == [True, False, False] * 2 + [True]
