"""`arkml.train` and `arkml.evaluate` as a program calls them."""

import asyncio
import inspect
import math
import os
import pickle
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
from tests.integration.command_line import GUESTS
from tests.integration.guest_text import asking, function, module

import arkml
from arkml import GuestEnv, Limits
from arkml.cli import train_command
from arkml.errors import (
    InvalidArguments,
    InvalidSettings,
    ModuleError,
    NotFound,
    PolicyFailed,
    UsageError,
)
from arkml.policies.cervo import is_cervo
from arkml.policies.constant import zeros
from arkml.training import origin
from arkml.training.origin import TrainingOrigin
from arkml.training.tasks import Task
from arkml.training.training_options import DEFAULT_MINUTES, Goal

REACH, PENDULUM, CHOOSERS, APPLET = (
    GUESTS / f"c_{name}.wasm" for name in ("reach", "pendulum", "choosers", "applet")
)
QUICK = {"algorithm": "drawn", "hidden": 32, "batch_size": 64, "memory_min_size": 640}
FILES = {"onnx", "crvo", "last", "curve"}
FEATURES, ACTIONS, AGENTS, STEPS = 4, 2, 64, 50


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The result of a training, all its progress, and the signal handlers before and after."""
    states = []
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    result = arkml.train(
        REACH, frames=110, eval_every=50, settings=QUICK, progress=states.append,
        directory=tmp_path_factory.mktemp("trained") / "out",
    )  # fmt: skip
    after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    return result, states, (before, after)


def acted(onnx):
    """The shape of what a policy answers to three observations."""
    feeds = {"observations": np.zeros((3, FEATURES), "f4"), "epsilon": np.zeros((3, ACTIONS), "f4")}
    return onnxruntime.InferenceSession(onnx).run(["actions"], feeds)[0].shape


def learns(state):
    return state.versions >= 3


def test_a_training_returns_its_policies_and_writes_them(trained):
    result, _, _ = trained

    assert (result.end_reason, result.frames, result.errors) == ("frames", 110, ())
    assert result.rows == 110 * AGENTS
    assert result.updates > 0
    assert result.run_name == "reach"
    assert (result.directory / "hive" / "runs" / result.run_id).is_dir()
    assert set(result.files) == FILES
    assert {path.parent for path in result.files.values()} == {result.directory}
    assert result.best.path == result.directory / "c_reach.onnx"
    assert result.best.path.read_bytes() == result.best.onnx
    assert result.last.path.read_bytes() == result.last.onnx
    assert (result.best.kind, result.last.kind) == ("best", "now")
    assert acted(result.best.onnx) == acted(result.last.onnx) == (3, ACTIONS)
    assert is_cervo(result.files["crvo"].read_bytes())


def test_a_training_returns_its_curves_as_arrays(trained):
    result, _, _ = trained
    curve = result.evaluation_curve

    assert result.learning_curve is curve
    assert (curve.rows.dtype, curve.mean_returns.dtype) == (np.int64, np.float64)
    assert curve.rows.shape == curve.mean_returns.shape == (2,)
    assert (np.diff(curve.rows) > 0).all()
    assert (np.diff(result.training_curve.rows) > 0).all()
    assert result.mean_return == curve.mean_returns[-1]
    assert result.evaluation_returns.dtype == np.float64
    assert len(result.evaluation_returns) == sum(len(one.returns) for one in result.evaluations)
    last = len(result.evaluations[-1].returns)
    assert result.evaluation_returns[-last:].mean() == pytest.approx(result.mean_return)


def test_progress_comes_about_once_a_second_and_grows(trained):
    result, states, _ = trained
    last = states[-1]

    assert 1 <= len(states) <= last.seconds + 1 + len(result.evaluations)
    assert [one for state in states for one in state.evaluations] == list(result.evaluations)
    assert {state.run_id for state in states} <= {None, result.run_id}
    assert [state.frames for state in states] == sorted(state.frames for state in states)
    assert 0 < last.frames <= result.frames
    assert 0 < last.rows <= result.rows
    assert 0 < last.updates <= result.updates
    # On a busy machine no policy but the first may have been rated, which is told.
    told = [text for state in states for text in state.warnings]
    assert all(text.startswith("only version 1 was rated") for text in told)


def test_progress_has_the_metrics_of_the_learner(tmp_path):
    seen = []

    def goes_on(state):
        seen.append(state.metrics.get("train/n_updates", 0))
        return not seen[-1]

    result = arkml.train(
        REACH, minutes=5, settings=QUICK, progress=goes_on, directory=tmp_path / "out"
    )

    assert result.end_reason == "stopped"
    assert 0 < seen[-1] <= result.updates


def test_a_result_and_a_failed_training_are_pickled(trained):
    result, _, _ = trained
    failure = arkml.TrainingFailed("the hive is gone", result)
    again, failed = pickle.loads(pickle.dumps((result, failure)))

    assert (again.run_id, again.best) == (result.run_id, result.best)
    assert again.training_curve.pairs() == result.training_curve.pairs()
    assert str(failed) == "the hive is gone"
    assert failed.result.files == result.files


def test_a_training_leaves_signal_handlers_as_they_were(trained):
    _, _, (before, after) = trained

    assert after == before


@pytest.mark.learns
def test_a_training_is_resumed_in_its_directory_only(trained):
    result, _, _ = trained
    with pytest.raises(UsageError, match="holds a training already"):
        arkml.train(REACH, frames=1, directory=result.directory)
    with pytest.raises(UsageError, match=r"holds the training of c_reach\.wasm"):
        arkml.train(PENDULUM, frames=1, directory=result.directory, resume=True)
    resumed = arkml.train(
        REACH, frames=20, directory=str(result.directory), resume=True, settings=QUICK
    )

    assert resumed.run_id == result.run_id
    assert resumed.rows > result.rows
    assert resumed.evaluation_curve.pairs() == result.evaluation_curve.pairs()


@pytest.mark.learns
def test_two_threads_train_at_a_time(tmp_path):
    def train(number):
        return arkml.train(
            REACH.read_bytes(), frames=30, settings=QUICK, directory=tmp_path / str(number)
        )

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(train, range(2))

    assert first.run_id != second.run_id
    for result in (first, second):
        assert result.end_reason == "frames"
        assert result.rows == 30 * AGENTS
        assert acted((result.directory / "guest.onnx").read_bytes()) == (3, ACTIONS)


def test_a_thread_with_a_running_event_loop_trains_and_prints_nothing(tmp_path, capfd):
    async def train():
        learning = QUICK | {"algorithm": "sac"}  # which compiles, and may print
        return arkml.train(REACH, frames=30, settings=learning, directory=tmp_path)

    result = asyncio.run(train())

    assert result.frames == 30
    assert capfd.readouterr() == ("", "")


def test_a_keyboard_interrupt_ends_a_training_and_keeps_what_was_made(tmp_path):
    def interrupt(state):
        if learns(state):
            os.kill(os.getpid(), signal.SIGINT)

    result = arkml.train(REACH, minutes=5, settings=QUICK, progress=interrupt, directory=tmp_path)

    assert (result.end_reason, result.errors) == ("interrupted", ())
    assert set(result.files) == FILES
    assert acted(result.best.path.read_bytes()) == (3, ACTIONS)


def test_a_keyboard_interrupt_before_there_is_a_run_is_raised(tmp_path):
    def interrupt(_):
        os.kill(os.getpid(), signal.SIGINT)

    waiting = module(function("ark_applet_update", ""), uses=("ark-ml-v1.ml__start_training",))
    with pytest.raises(KeyboardInterrupt):
        arkml.train(waiting, minutes=5, progress=interrupt, directory=tmp_path)


def test_a_guest_that_cannot_start_a_training_is_refused_before_it_runs(tmp_path):
    directory = tmp_path / "out"
    with pytest.raises(NotFound, match=r"c_applet\.wasm starts no training: it imports"):
        arkml.train(APPLET, minutes=5, directory=directory)

    assert not directory.exists()


@pytest.mark.parametrize(
    ("guest", "reason"),
    [
        (asking(80, 6), "INVALID_ARGUMENTS: text is not UTF-8 at byte 4"),
        (asking(80, 4, hive=b"mars.test"), "the hive mars.test:12356 is not allowed here"),
    ],
    ids=["arguments", "hive"],
)
def test_a_guest_that_was_refused_a_run_is_not_waited_for(tmp_path, monkeypatch, guest, reason):
    monkeypatch.setattr("arkml.training.loop._NO_RUN", math.inf)

    with pytest.raises(NotFound, match=reason):
        arkml.train(guest, frames=20, directory=tmp_path / "out")


def test_an_algorithm_that_no_package_brings_is_refused_before_anything_is_made(tmp_path):
    with pytest.raises(InvalidSettings, match="algorithm is 'nosuch': this hive has auto, drawn"):
        arkml.train(REACH, directory=tmp_path / "out", settings={"algorithm": "nosuch"})

    assert not (tmp_path / "out").exists()


def test_progress_stops_a_training(tmp_path):
    result = arkml.train(
        REACH, minutes=5, settings=QUICK, directory=tmp_path,
        progress=lambda state: not learns(state),
    )  # fmt: skip

    assert (result.end_reason, result.errors) == ("stopped", ())
    assert acted(result.best.onnx) == (3, ACTIONS)


def test_an_error_of_progress_fails_a_training_and_keeps_what_was_made(tmp_path):
    threads = set()

    def fail(state):
        threads.add(threading.current_thread())
        if learns(state):
            raise LookupError("no such plot")

    with pytest.raises(arkml.TrainingFailed, match="no such plot") as failure:
        arkml.train(REACH, minutes=5, settings=QUICK, progress=fail, directory=tmp_path)
    result = failure.value.result

    assert isinstance(failure.value.__cause__, LookupError)
    assert result.errors == (failure.value.__cause__,)
    assert result.end_reason == "failed"
    assert set(result.files) == FILES
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frames": 0}, "frames is 0: it takes a whole number from 1"),
        ({"frames": 1.5}, "frames is 1.5: it takes a whole number"),
        ({"minutes": -1}, "minutes is -1: it takes a number above 0"),
        ({"minutes": "ten"}, "minutes is 'ten': it takes a number above 0"),
        ({"until_return": "high"}, "until_return is 'high': it takes a number"),
        ({"fps": "fast"}, "fps is 'fast': it takes a number above 0"),
        ({"settings": [1]}, r"settings is \[1\]: it takes a dict"),
        ({"progress": 3}, "progress is 3: it takes a function"),
        ({"until_return": float("nan")}, "until_return is nan"),
        ({"fps": 0}, "fps is 0: it takes a number above 0"),
        ({"instances": 0}, "instances is 0: it takes a whole number from 1"),
        ({"eval_every": 0}, "eval_every is 0: it takes a whole number from 1"),
        ({"hive": "nowhere:0"}, "'nowhere:0' is not an address of a hive"),
        ({"allowed_hives": [":"]}, "':' is not an address of a hive"),
        ({"settings": {"hidden": 0}}, "hidden is 0: it takes a whole number from 1 to 8192"),
        ({"cmdlet": "x"}, "c_reach.wasm is not a cmdlet"),
        ({"checkpoint": "gone.safetensors"}, "the checkpoint gone.safetensors is not a file"),
        ({"checkpoint": REACH}, "c_reach.wasm cannot be read: its header has"),
        ({"checkpoint": "abc@12"}, "checkpoint is the run abc@12: the hive of a new training has"),
        ({"checkpoint": "a.safetensors", "hive": "somewhere:1"}, "is the file a.safetensors, and"),
        ({"checkpoint": "a.safetensors", "resume": True}, "checkpoint is a.safetensors and resume"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_is_made(tmp_path, options, message):
    with pytest.raises(arkml.ArkmlError, match=message):
        arkml.train(REACH, directory=tmp_path / "out", **options)

    assert not (tmp_path / "out").exists()


@pytest.mark.learns
def test_a_training_starts_from_the_file_of_another(trained, tmp_path):
    result, _, _ = trained
    file = max(result.directory.glob("hive/runs/*/checkpoints/*.safetensors"))
    source = tmp_path / "mine.safetensors"
    source.write_bytes(file.read_bytes())
    another = arkml.train(
        REACH, frames=20, settings=QUICK, checkpoint=source, directory=tmp_path / "out"
    )

    assert int(file.stem) > 0
    assert another.updates >= int(file.stem)
    assert another.rows == 20 * AGENTS
    assert (tmp_path / "out" / "hive" / "origin.safetensors").read_bytes() == source.read_bytes()


def test_a_training_of_other_shapes_is_refused_with_both_values(trained, tmp_path):
    result, _, _ = trained
    file = max(result.directory.glob("hive/runs/*/checkpoints/*.safetensors"))
    reason = rf"hidden is 64: the checkpoint {result.run_id}@\d+ was learned with 32"

    with pytest.raises(arkml.ArkmlError, match=reason):
        arkml.train(
            REACH, frames=20, settings=QUICK | {"hidden": 64}, checkpoint=file, directory=tmp_path
        )


def test_guests_that_cannot_be_trained_are_refused(tmp_path):
    with pytest.raises(ModuleError, match="cannot be read"):
        arkml.train(tmp_path / "gone.wasm", directory=tmp_path / "out")
    with pytest.raises(InvalidSettings, match='branches of 3, 2 choices; use "ppo"'):
        arkml.train(CHOOSERS, directory=tmp_path / "out", settings={"algorithm": "sac"})


def test_the_defaults_are_those_of_the_command():
    command, library = (
        {name: value.default for name, value in inspect.signature(function).parameters.items()}
        for function in (train_command.command, arkml.train)
    )
    shared = command.keys() & library.keys()

    assert shared >= {"minutes", "frames", "until_return", "fps", "instances", "eval_every",
                      "resume", "hive", "seed", "cmdlet"}  # fmt: skip
    assert {name: library[name] for name in shared} == {name: command[name] for name in shared}


def test_without_a_goal_applets_train_for_minutes_and_the_rest_runs_once():
    applet, cmdlet = (Task(arkml.ModuleKind(kind), "function") for kind in ("applet", "cmdlet"))

    assert Goal().of(applet) == Goal(minutes=DEFAULT_MINUTES)
    assert Goal().of(cmdlet).is_open
    assert Goal(frames=3).of(cmdlet) == Goal(frames=3)


def played_in_an_environment():
    """The returns of the first episodes, with actions of zero, as an environment adds them up."""
    totals, returns = {}, []
    with GuestEnv(REACH) as env:
        env.reset()
        while len(returns) < AGENTS:
            decision = env.decision
            for agent, reward, started, ended in zip(
                decision.agents.tolist(), decision.rewards.tolist(), decision.started.tolist(),
                decision.ended.tolist(), strict=True,
            ):  # fmt: skip
                totals[agent] = 0.0 if started else totals[agent] + reward
                if ended:
                    returns.append(totals[agent])
            env.step(np.zeros((len(decision.acting_agents), ACTIONS), "f4"))
    return returns


def test_an_evaluation_returns_what_the_episodes_returned():
    result = arkml.evaluate(REACH, zeros(FEATURES, ACTIONS), episodes=AGENTS)

    assert (result.returns.dtype, result.lengths.dtype) == (np.float64, np.int64)
    assert result.returns.shape == result.lengths.shape == (AGENTS,)
    assert (result.lengths == STEPS).all()
    assert result.frames == STEPS + 1
    assert sorted(result.returns) == pytest.approx(sorted(played_in_an_environment()))
    assert result.mean_return == pytest.approx(result.returns.mean())
    assert result.standard_deviation == pytest.approx(result.returns.std())


def test_an_evaluation_of_a_trained_policy_is_repeatable_and_takes_its_path(trained):
    result, _, _ = trained
    first = arkml.evaluate(REACH, result.best.path)
    again = arkml.evaluate(str(REACH), result.best.onnx, limits=Limits(run_seconds=2.0))
    noisy = arkml.evaluate(REACH, result.files["crvo"], deterministic=False, seed=1)

    assert first.returns.tolist() == again.returns.tolist()
    assert first.returns.tolist() != noisy.returns.tolist()


def test_an_evaluation_takes_a_function():
    shapes = set()

    def still(observations):
        shapes.add(observations.shape)
        return np.zeros((len(observations), ACTIONS), "f4")

    result = arkml.evaluate(REACH, still)

    assert shapes == {(AGENTS, FEATURES)}
    assert (
        result.returns.tolist() == arkml.evaluate(REACH, zeros(FEATURES, ACTIONS)).returns.tolist()
    )


def test_an_error_of_a_policy_ends_its_evaluation():
    with pytest.raises(PolicyFailed, match="returned actions of shape"):
        arkml.evaluate(REACH, lambda observations: observations)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((REACH, zeros(3, 2)), {}, InvalidArguments, "features"),
        ((REACH, zeros(FEATURES, ACTIONS)), {"frames": 9}, NotFound,
         "c_reach.wasm: no episode ended within 9 frames"),
        ((APPLET, zeros(1, 1)), {"frames": 9}, NotFound, "starts no training: it imports no"),
        ((REACH, None), {}, UsageError, "policy is None"),
        ((REACH, zeros(FEATURES, ACTIONS)), {"episodes": 0}, UsageError, "episodes is 0"),
        ((REACH, b"nonsense"), {"frames": 9}, InvalidArguments, "model"),
        ((GUESTS / "gone.wasm", zeros(1, 1)), {}, ModuleError, "cannot be read"),
    ],
)  # fmt: skip
def test_what_cannot_be_evaluated_is_an_error(arguments, options, error, message):
    with pytest.raises(error, match=message):
        arkml.evaluate(*arguments, **options)


def test_two_threads_evaluate_at_a_time():
    policy = zeros(FEATURES, ACTIONS)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: arkml.evaluate(REACH, policy), range(2))

    assert first.returns.tolist() == second.returns.tolist()


def test_a_result_is_a_line_without_its_policies(trained):
    result, _, _ = trained

    assert len(repr(result)) < 2_500  # with a path of any length
    assert len(repr(result.best)) < 500
    assert "reach" in repr(result)


def test_a_checkpoint_that_a_pipe_replaces_when_it_was_checked_is_refused(tmp_path, monkeypatch):
    source = tmp_path / "2000.safetensors"
    source.write_bytes(b"checked")

    def replace(path):
        path.unlink()
        os.mkfifo(path)

    reader = SimpleNamespace(load=lambda: replace)
    monkeypatch.setattr(origin, "entry_points", lambda **_: [reader])

    with pytest.raises(UsageError, match=r"2000.safetensors cannot be read: it is not a plain"):
        TrainingOrigin(source).place(tmp_path / "data")
    assert not (tmp_path / "data").exists()
