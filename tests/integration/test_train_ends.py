"""The ends of trainings whose guest waits, whose run is stopped, or whose learner dies."""

import contextlib
import math
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.integration.command_line import GUESTS
from tests.tracked import RUN

import arkml
from arkml.errors import ArkmlError, GuestTrap, NotFound, NothingLearned, RunAborted, RunGone
from arkml.hive.client import HiveClient
from arkml.hive.embedded import EmbeddedHive
from arkml.policies.constant import zeros
from arkml.training import outcome
from arkml.training.guest_trainer import GuestTrainer
from arkml.training.results import TrainingFailed
from arkml.training.training_options import TrainingOptions

REACH = GUESTS / "c_reach.wasm"
PENDULUM = GUESTS / "c_pendulum.wasm"
CMDLET = GUESTS / "ark_api" / "cmdlet_train_016.wasm"
LEARNER = str(Path(__file__).with_name("ppo_learner.py"))
REFUSED = b"""
(module
  (import "ark-ml-v2" "ml__start_training"
    (func $start (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "elsewhere")
  (func (export "ark_initialize")
    (if (call $start (i32.const 0) (i32.const 9) (i32.const 7) (i32.const 0) (i32.const 4)
          (i32.const 0) (i32.const 4) (i32.const FEATURES) (i32.const 1) (i32.const 0)
          (i32.const 0) (i32.const 0) (i32.const 64))
      (then unreachable)))
  (func (export "ark_applet_update")))
"""
"""A guest that traps when its start is refused, as by `expect` in Rust."""

LONG = 60.0  # minutes, which no test lasts


@pytest.fixture(scope="module")
def hive(tmp_path_factory):
    data = tmp_path_factory.mktemp("hive")
    options = {"learner": [LEARNER], "spare": False, "timeouts": {"restart": 0.1}}
    with EmbeddedHive(data, options) as made:
        yield made


@pytest.fixture
def train(hive, tmp_path, monkeypatch):
    """Train by a learner that misbehaves, on a hive that may be slow, and is there."""
    monkeypatch.setattr(outcome, "_PATIENCE_GONE", outcome._PATIENCE)
    address = hive.locate()

    def train(misbehavior, guest=REACH, settings=(), **options):
        return arkml.train(
            guest, hive=f"{address.host}:{address.port}", token=address.token,
            settings={"misbehavior": misbehavior, **dict(settings)}, directory=tmp_path / "out",
            **{"eval_every": None} | options,
        )  # fmt: skip

    return train


def waits(state):
    """Return whether the guest has played frames, and will play no more: its learner holds it."""
    return state.rows > 0 and state.updates > 0


def train_for(train, *what, minutes, **options):
    """Train for these minutes, or as many times more as the machine takes to begin to learn."""
    while True:
        with contextlib.suppress(NotFound):
            return train(*what, minutes=minutes, **options)
        minutes *= 2


@pytest.mark.parametrize("options", [{}, {"instances": 2}], ids=["guest", "fleet"])
def test_minutes_end_a_submit_that_waits(train, options):
    result = train_for(train, "learns, and holds", minutes=0.05, **options)

    assert result.end_reason == "minutes"
    assert result.updates > 0
    assert result.best.path.exists()


def test_minutes_end_a_cmdlet(train, hive):
    address = hive.locate()
    words = f"{address.host} {address.port} 2000000000 x"
    result = train_for(train, "learns", CMDLET, minutes=0.02, cmdlet=words)

    assert result.end_reason == "minutes"


def test_progress_that_answers_false_ends_a_submit_that_waits(train):
    result = train("learns, and holds", minutes=LONG, progress=lambda state: not waits(state))

    assert result.end_reason == "stopped"


def test_progress_that_answers_false_ends_a_guest_that_runs_once(train, hive):
    address = hive.locate()
    words = f"{address.host} {address.port} 2000000000 x"
    result = train("learns", CMDLET, cmdlet=words, progress=lambda state: not waits(state))

    assert result.end_reason == "stopped"


@pytest.mark.parametrize("misbehavior", ["learns", "learns, and holds"])
def test_a_run_that_is_stopped_at_its_hive_ends_its_training_with_the_reason(
    train, hive, misbehavior
):
    def stop(state):
        if waits(state):
            with HiveClient(hive.locate) as client:
                client.stop(state.run_id).result(30)

    with pytest.raises(TrainingFailed, match="was stopped at its hive") as failed:
        train(misbehavior, minutes=LONG, progress=stop)

    assert isinstance(failed.value.__cause__, RunGone)
    assert failed.value.result.best.path.exists()


def test_evaluations_of_each_frame_do_not_hide_that_a_run_was_stopped(train, hive):
    def stop(state):
        if state.evaluations:
            with HiveClient(hive.locate) as client:
                client.stop(state.run_id).result(30)

    with pytest.raises(TrainingFailed, match="was stopped at its hive") as failed:
        train("learns", PENDULUM, minutes=LONG, eval_every=1, progress=stop)

    assert isinstance(failed.value.__cause__, RunGone)
    assert failed.value.result.best.path.exists()


def test_a_learner_that_dies_in_each_first_update_ends_the_training_with_its_reason(train):
    with pytest.raises(TrainingFailed, match="5 times without an update between") as failed:
        train("dies", minutes=LONG)

    assert isinstance(failed.value.__cause__, RunAborted)
    assert "my loss divides by zero" in str(failed.value)


def test_a_training_that_learned_nothing_has_failed(train):
    with pytest.raises(TrainingFailed, match=r"sac begins with 2,00. rows \(memory_min") as failed:
        train("", frames=3)

    assert isinstance(failed.value.__cause__, NothingLearned)
    assert failed.value.result.updates == 0
    assert failed.value.result.last.path.exists()


def test_a_learner_that_died_without_an_update_is_not_waited_for(train, monkeypatch):
    monkeypatch.setattr(outcome, "_PATIENCE_UPDATE", math.inf)
    with pytest.raises(TrainingFailed, match=r"made no update of .* my loss divides") as failed:
        train("dies once", settings={"memory_min_size": 64}, frames=60)

    assert isinstance(failed.value.__cause__, NothingLearned)
    assert failed.value.result.updates == 0


def test_how_often_a_learner_died_is_told_with_the_reason(train):
    result = train("learns, dies once", minutes=LONG, progress=lambda state: not state.updates)

    reason = "the learner ended with status 1: ZeroDivisionError: my loss divides by zero"
    assert result.end_reason == "stopped"
    assert (result.learner_ends, result.learner_end) == (1, reason)
    assert (
        f"the learner ended once, and another one took its place, at last with: {reason}"
        in result.health
    )


@pytest.fixture
def mute():
    """The address of a hive that takes connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_run_that_is_not_there_within_the_minutes_is_named(mute, tmp_path):
    with pytest.raises(NotFound, match=r"c_reach.wasm asked for was not there within 0.001 m"):
        arkml.train(REACH, hive=mute, minutes=0.001, directory=tmp_path / "out")


def test_a_hive_that_answers_nothing_is_warned_of_and_is_why_there_is_no_training(
    mute, tmp_path, caplog
):
    def said():
        return [one.getMessage() for one in caplog.records if one.name == "arkml.hive.presence"]

    with pytest.raises(NotFound, match=f"no training: the hive at {mute} has not answered for"):
        arkml.train(
            REACH, hive=mute, minutes=LONG, directory=tmp_path / "out",
            progress=lambda _: not said(),
        )  # fmt: skip

    assert [one.partition(" for ")[0] for one in said()] == [
        f"the hive at {mute} does not answer: it has not answered"
    ]


def test_an_interrupt_before_the_first_policy_keeps_nothing_and_says_why(tmp_path, monkeypatch):
    """It said that what was learned is kept, and then that there is no policy."""

    def gather(*_, **__):
        raise NotFound("run 'reach' has no policy yet: its learner had not begun")

    monkeypatch.setattr("arkml.training.guest_trainer.gather", gather)
    options = TrainingOptions(name=REACH.name, directory=tmp_path)
    with GuestTrainer(REACH.read_bytes(), options) as trainer:
        trainer._monitor = SimpleNamespace(close=lambda: None)
        trainer._hives = SimpleNamespace(started=[(None, RUN)], is_training=False)
        trainer._end_reason = "interrupted"

        assert not trainer.has_policy
        with pytest.raises(NotFound) as told:
            trainer.finish()
        trainer._hives.is_training = True
        assert trainer.has_policy

    assert str(told.value) == (
        "nothing was learned: interrupted, and run 'reach' has no policy yet: its learner had not"
        " begun"
    )


def train_it(guest, directory):
    arkml.train(guest, frames=9, directory=directory)


def evaluate_it(guest, _):
    arkml.evaluate(guest, zeros(3, 1), frames=9)


def record_it(guest, directory):
    arkml.record(guest, zeros(3, 1), directory / "a.npz", frames=9)


@pytest.mark.parametrize(
    ("play", "features", "reason"),
    [
        (train_it, b"3", "not allowed here"),
        (evaluate_it, b"0", "features"),
        (evaluate_it, b"4", "features"),
        (record_it, b"4", "features"),
    ],
)
def test_a_start_that_is_refused_is_the_error_and_not_the_trap_that_follows(
    tmp_path, play, features, reason
):
    with pytest.raises(ArkmlError, match=reason) as failed:
        play(REFUSED.replace(b"FEATURES", features), tmp_path)

    assert not isinstance(failed.value, GuestTrap)
    assert isinstance(failed.value.__cause__, GuestTrap)
