"""Evaluations while a training plays: in a process of their own, with spread and success."""

import json
import re
import resource
import select
import subprocess
import sys
from concurrent.futures import Future
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest
from tests.integration.command_line import GUESTS
from tests.integration.test_environment import INITIAL, RUNNING, TERMINAL, scripted
from tests.integration.watched_runs import with_section
from tests.waiting import eventually

import arkml
from arkml import Limits
from arkml.errors import NotFound
from arkml.hive.protocol.runs import RunInfo, Status
from arkml.policies.constant import zeros
from arkml.policies.training import TrainingPolicy
from arkml.runs.episode_recorder import EpisodeRecorder
from arkml.training.evaluation_traces import EvaluationTraces
from arkml.training.evaluations import EvaluationTask, EvaluatorMessage, write_message
from arkml.training.periodic_evaluation import EvaluationFailed, PeriodicEvaluation

REACH = GUESTS / "c_reach.wasm"
COIN = GUESTS / "c_coin.wasm"
QUICK = {"algorithm": "drawn", "hidden": 32, "batch_size": 64, "memory_min_size": 640}
EVALUATOR = "arkml.training.evaluations"
AGENTS, STEPS, FEATURES, ACTIONS = 64, 50, 4, 2


def i64_const(text):
    """Eight bytes of text as the operand of `i64.const`, in ten bytes."""
    value = int.from_bytes(text, "little")
    sevens = [value >> shift & 0x7F for shift in range(0, 70, 7)]
    return bytes([*(seven | 0x80 for seven in sevens[:-1]), sevens[-1]])


SUCCESSFUL = REACH.read_bytes().replace(i64_const(b"distance"), i64_const(b"success\0"))
"""A guest whose metric, the distance to the target at an episode's end, is named "success"."""


def test_progress_has_the_evaluations_at_once_and_may_end_the_training(tmp_path):
    states = []

    def stop(state):
        states.append(state)
        return not state.evaluations

    result = arkml.train(
        SUCCESSFUL, minutes=5, eval_every=60, evaluate_episodes=100, settings=QUICK,
        progress=stop, directory=tmp_path,
    )  # fmt: skip
    shown = [state for state in states if state.evaluations]  # it may be called once more
    evaluation = shown[0].evaluations[0]

    assert result.end_reason == "stopped"
    assert result.evaluations[0] == evaluation
    assert len(evaluation.returns) == len(evaluation.lengths) == 100
    assert set(evaluation.lengths) == {STEPS}
    assert evaluation.success_rate == 1.0
    assert evaluation.standard_deviation == pytest.approx(np.std(evaluation.returns))
    assert shown[-1].evaluation_return == shown[-1].evaluations[-1].mean_return
    assert 0 < evaluation.rows <= result.rows
    for name, value in (
        ("eval/mean_reward", result.evaluations[-1].mean_return),
        ("eval/std_reward", result.evaluations[-1].standard_deviation),
        ("eval/mean_ep_length", STEPS),
        ("eval/success_rate", 1.0),
    ):
        assert result.metrics[name] == pytest.approx(value)


def test_frames_do_not_wait_for_an_evaluation(tmp_path):
    frames = []

    def stop(state):
        frames.extend([state.frames] * len(state.evaluations))
        return not frames

    result = arkml.train(
        REACH, fps=100, minutes=5, eval_every=50, evaluate_episodes=2_000, settings=QUICK,
        progress=stop, directory=tmp_path,
    )  # fmt: skip

    assert len(result.evaluations[0].returns) == 2_000
    assert frames[0] > 51


def test_without_metadata_success_is_the_return_that_the_training_is_to_reach(tmp_path):
    result = arkml.train(
        REACH, until_return=1e9, frames=60, eval_every=60, settings=QUICK, directory=tmp_path
    )

    assert [one.success_rate for one in result.evaluations] == [0.0]
    assert result.metrics["eval/success_rate"] == 0.0


def test_an_evaluation_of_a_policy_knows_the_success_that_a_guest_says(tmp_path):
    module = tmp_path / "successful.wasm"
    module.write_bytes(SUCCESSFUL)
    rated, silent = (
        arkml.evaluate(guest, zeros(FEATURES, ACTIONS), episodes=3) for guest in (module, REACH)
    )

    assert rated.successes.tolist() == [True] * 3
    assert rated.success_rate == 1.0
    assert silent.successes is None
    assert silent.success_rate is None


@pytest.mark.parametrize(("guest", "sign"), [("c_coin", 1), ("c_coin_costs", -1)])
def test_an_evaluation_prefers_neither_short_nor_long_episodes(guest, sign):
    """Half of the episodes take 10 steps and half 200; with 400, 3.5 means are 43 off the truth."""
    result = arkml.evaluate(GUESTS / f"{guest}.wasm", zeros(1, 1), episodes=400)

    assert len(result.returns) == 400
    assert result.mean_return == pytest.approx(sign * 105, abs=20)
    assert result.success_rate == pytest.approx(0.5, abs=0.11)
    assert result.shortfall == ""


def test_episodes_that_were_chosen_are_played_to_their_ends():
    result = arkml.evaluate(COIN, zeros(1, 1), episodes=16)

    assert len(result.returns) == 16
    assert sorted(set(result.lengths)) == [10, 200]
    assert result.frames == 201


def test_an_evaluation_whose_agents_do_not_all_end_an_episode_says_so():
    with pytest.raises(NotFound, match=r"c_coin\.wasm: \d+ agents ended no episode within 100"):
        arkml.evaluate(COIN, zeros(1, 1), episodes=16, frames=100)
    with pytest.raises(
        NotFound, match=r"no episode ended within 5 frames; give more `frames` \(--frames\)"
    ):
        arkml.evaluate(COIN, zeros(1, 1), episodes=16, frames=5)
    cut = arkml.evaluate(COIN, zeros(1, 1), episodes=160, frames=500)

    assert len(cut.returns) in (32, 48)  # 16 agents have ended two each at the least
    assert (
        "of 160 episodes count, as many of each agent as ended within 500 frames" in cut.shortfall
    )


def without(rows, marks):
    """Rows of a submit without those that are marked."""
    columns = {
        name: value[~marks]
        for name, value in rows._asdict().items()
        if isinstance(value, np.ndarray) and len(value) == len(marks)
    }
    return rows._replace(**columns)


@contextmanager
def vanishing(is_gone):
    """Have evaluations see no rows that `is_gone` marks, by agents and steps."""
    follow = EpisodeRecorder.follow

    def part(recorder, rows):
        return follow(recorder, without(rows, is_gone(rows.agent, rows.step)))

    with patch.object(EpisodeRecorder, "follow", part):
        yield


def test_agents_that_vanish_make_an_evaluation_neither_fail_nor_prefer_short_episodes(caplog):
    with vanishing(lambda agents, steps: (agents % 20 == 7) & (steps >= 5)):
        result = arkml.evaluate(COIN, zeros(1, 1), episodes=400)

    assert len(result.returns) == 400
    assert result.mean_return == pytest.approx(105, abs=20)
    assert result.success_rate == pytest.approx(0.5, abs=0.11)
    assert result.shortfall == ""
    (said,) = [one for one in caplog.messages if "vanished" in one]
    count = int(re.search(r"vanished without an end: (\d+); their episodes do not", said)[1])
    assert 5 < count < 60


def test_an_agent_that_begins_again_without_an_end_is_told_once_and_counted(caplog):
    again = COIN.read_bytes()
    with patch("arkml.policies.training.TrainingPolicy.examine", repeating):
        arkml.evaluate(again, zeros(1, 1), episodes=40)
    said = [one for one in caplog.messages if "it is Initial again" in one]

    assert len(said) == 2
    assert "; the row is answered with zeros and not learned from" in said[0]
    assert re.search(r"it is Initial again: \d+ rows in all", said[1])


def repeating(policy, batch, steps, over, gone=None):
    """Note the first of the rows as Initial again, in each batch."""
    marks = np.zeros(len(batch), bool)
    marks[0] = True
    policy.irregular.note("it is Initial again", marks, batch.rows["id"])
    return EXAMINE(policy, batch, steps, over, gone)


EXAMINE = TrainingPolicy.examine


class Client:
    """A client of a hive that answers at once."""

    def __init__(self):
        self.reports = []

    def begin_evaluation(self, run_id, _version):
        info = RunInfo(run_id, "n", "g", Status.RUNNING, FEATURES, ACTIONS, 1, rows=7)
        return done(info)

    def evaluate(self, run_id, report):
        self.reports.append((run_id, report))
        return done(True)


def done(value):
    future = Future()
    future.set_result(value)
    return future


def task(**changes):
    values = {"name": "reach.wasm", "arguments": None, "limits": Limits(), "episodes": 1,
              "budgets_every_call": False, "frames": 500}  # fmt: skip
    return EvaluationTask(**(values | changes))


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """The policy of a short training, as ONNX."""
    directory = tmp_path_factory.mktemp("trained")
    return arkml.train(REACH, frames=20, settings=QUICK, directory=directory).last.onnx


def test_versions_are_rated_one_after_the_other_and_the_newest_waits(policy):
    client = Client()
    with PeriodicEvaluation(task(), REACH.read_bytes(), goal=-1e9) as evaluation:
        for version in (3, 4, 5):
            evaluation.begin(client, "r", version, policy)
        evaluation.wait()
        evaluation.begin(client, "r", 6, policy)
        evaluation.wait()
    versions = [report.version for _, report in client.reports]

    assert versions[-2:] == [5, 6]
    assert versions == sorted(versions)
    assert {run for run, _ in client.reports} == {"r"}
    assert {report.rows for _, report in client.reports} == {7}
    assert all(report.successes == [True] * len(report.returns) for _, report in client.reports)


def test_a_hive_is_asked_once_for_a_version_and_not_while_it_has_to_answer(policy):
    client, asked = Client(), []

    def first(version):
        return Client().begin_evaluation("r", version)

    def begin_evaluation(_, version):
        asked.append((version, Future()))
        return asked[-1][1]

    client.begin_evaluation = begin_evaluation
    with PeriodicEvaluation(task(), REACH.read_bytes()) as evaluation:
        evaluation.begin(client, "r", 1, policy)
        eventually(lambda: evaluation._playing is not None)
        for version in (2, 2, 3, 4, 4):
            evaluation.begin(client, "r", version, policy)
        asked_before = [version for version, _ in asked]
        client.begin_evaluation = lambda *_: asked.append((4, None)) or first(1)
        for _, answer in asked:
            answer.set_result(first(1).result())
        evaluation.wait()

    assert asked_before == [1, 2]
    assert [version for version, _ in asked] == [1, 2, 4]
    assert [report.version for _, report in client.reports] == [1, 4]


def test_a_version_that_seems_the_best_is_rated_by_twice_the_episodes(policy):
    client, kept = Client(), 8
    with PeriodicEvaluation(task(episodes=kept), REACH.read_bytes()) as evaluation:
        for version, earlier in ((1, None), (2, -1e9), (3, 1e9)):
            evaluation.earlier = lambda earlier=earlier: earlier
            evaluation._best = None  # else the same policy has to be lucky to seem better
            evaluation.begin(client, "r", version, policy)
            evaluation.wait()

    assert [len(report.returns) for _, report in client.reports] == [kept, 2 * kept, kept]


def test_a_version_that_seems_at_the_goal_plays_a_hundred_episodes(policy):
    client = Client()
    with PeriodicEvaluation(task(episodes=8), REACH.read_bytes(), goal=-1e9) as evaluation:
        evaluation.begin(client, "r", 1, policy)
        evaluation.wait()

    assert [len(report.returns) for _, report in client.reports] == [100]
    assert set(client.reports[0][1].lengths) == {STEPS}


def test_the_best_of_many_ratings_is_a_lucky_one_and_plays_again(tmp_path):
    """One policy as forty versions, whose true mean is 105: the best seems to be at 140."""
    policy = arkml.train(COIN, frames=60, settings=QUICK, directory=tmp_path).last.onnx
    client, told = Client(), []
    coin = task(name="coin.wasm", episodes=16, frames=2_000)
    with PeriodicEvaluation(coin, COIN.read_bytes()) as evaluation:
        evaluation.on_evaluation = told.append
        none_yet = evaluation.play_again(lambda: False)
        for version in range(40):
            evaluation.begin(client, "r", version, policy)
            evaluation.wait()
        too_late = evaluation.play_again(lambda: True)
        again = evaluation.play_again(lambda: False)
    rated = {report.version: np.mean(report.returns) for _, report in client.reports}
    best = max(told, key=lambda one: (one.mean_return, one.version))

    assert (none_yet, too_late) == (None, None)
    assert len(rated) == len(told) == 40
    assert best.mean_return == max(rated.values()) > 120
    assert (again.version, len(again.returns), again.rows) == (best.version, 100, None)
    assert again.mean_return == pytest.approx(105, abs=45)
    assert again.mean_return < best.mean_return


def test_the_best_version_plays_again_only_if_it_can(policy):
    client = Client()
    with PeriodicEvaluation(task(frames=60), REACH.read_bytes()) as evaluation:
        evaluation.begin(client, "r", 1, policy)
        evaluation.wait()
        evaluation._process.kill()
        after_its_end = evaluation.play_again(lambda: False)
        evaluation.wait()  # no evaluation has failed
    closed = evaluation.play_again(lambda: False)

    assert (after_its_end, closed) == (None, None)
    assert len(client.reports) == 1


def test_the_best_policy_of_a_training_plays_a_hundred_episodes_that_choose_nothing(tmp_path):
    result = arkml.train(
        REACH, frames=120, eval_every=40, evaluate_episodes=8, settings=QUICK, directory=tmp_path
    )
    best, chosen = result.best, result.best_evaluation

    assert best.rated_by == "evaluation"
    assert best.confirmed.version == chosen.version
    assert best.confirmed not in result.evaluations
    assert len(best.confirmed.returns) == 100
    assert not set(best.confirmed.returns) & set(chosen.returns)
    resumed = arkml.train(
        REACH, frames=5, eval_every=None, resume=True, settings=QUICK, directory=tmp_path
    )
    known = resumed.best.score, resumed.best_evaluation, resumed.best.confirmed
    assert known == (best.score, chosen, best.confirmed)
    assert resumed.evaluations == ()


@pytest.mark.learns
@pytest.mark.parametrize(
    ("guest", "goal", "end"), [("c_coin", 60, "return"), ("c_coin_costs", -50, "stopped")]
)
def test_a_goal_prefers_neither_short_nor_long_episodes(tmp_path, guest, goal, end):
    """The means are 105 and -105, with a standard error of 9.5 in a hundred episodes."""
    result = arkml.train(
        GUESTS / f"{guest}.wasm", until_return=goal, minutes=5, settings=QUICK, directory=tmp_path,
        progress=lambda state: state.evaluation_return is None or end == "return",
    )  # fmt: skip
    last = result.evaluations[-1]
    # A learner that only draws may have rows enough, meanwhile, to be called stuck.
    warnings = [one for one in result.warnings if not one.startswith("the run is stuck")]

    assert (result.end_reason, warnings) == (end, [])
    assert result.best.rated_by == "evaluation"
    assert result.best_evaluation in result.evaluations
    if end == "return":
        assert len(last.returns) == len(result.evaluation_returns) == 100
        assert last.mean_return == pytest.approx(105, abs=45)


@pytest.mark.learns
def test_a_training_goes_on_where_its_evaluations_fail(tmp_path):
    with process_that("raise SystemExit(7)"):
        result = arkml.train(
            REACH, until_return=-1e6, minutes=5, settings=QUICK, directory=tmp_path
        )

    assert (result.end_reason, result.evaluations) == ("return", ())
    assert result.warnings == (
        "the process that evaluates c_reach.wasm ended with status 7; no further evaluations are"
        " played, and episodes of training decide",
    )
    assert result.best.rated_by in ("training", None)


@pytest.mark.learns
def test_a_process_that_is_killed_is_replaced_and_that_is_said_once(tmp_path):
    start, started, killed = subprocess.Popen, [], []

    def note(words, **options):
        process = start(words, **options)
        if EVALUATOR in words:
            started.append(process)
        return process

    def goes_on(state):
        if state.evaluations and not killed:
            started[0].kill()
            killed.append(state.evaluations[-1].version)
        return not (state.evaluations and len(started) > 1)

    with patch("arkml.training.periodic_evaluation.subprocess.Popen", note):
        result = arkml.train(
            REACH, until_return=1e9, minutes=5, settings=QUICK, progress=goes_on,
            directory=tmp_path,
        )  # fmt: skip

    assert (result.end_reason, len(started)) == ("stopped", 2)
    assert result.evaluations[-1].version > killed[0]
    # On a busy machine a learner that only draws has rows enough, meanwhile, to be called stuck.
    assert [one for one in result.warnings if not one.startswith("the run is stuck")] == [
        "the process that evaluates c_reach.wasm ended with status -9; the training goes on, and a"
        " new process plays the next one",
    ]


def test_a_training_is_told_which_versions_cannot_be_rated(policy):
    client, told = Client(), []
    with PeriodicEvaluation(task(frames=3), REACH.read_bytes()) as evaluation:
        evaluation.warn = told.append
        for version in (1, 2):
            evaluation.begin(client, "r", version, policy)
            evaluation.wait()

    assert client.reports == []
    assert told == ["evaluation of version 1: no episode ended within 3 frames"]


def test_an_evaluation_that_fails_as_nobody_expects_is_not_waited_for(policy):
    with PeriodicEvaluation(task(), b"") as evaluation:
        evaluation._play = lambda *_: {"returns": []}  # an answer that is not whole
        evaluation.begin(Client(), "r", 1, policy)
        with pytest.raises(KeyError):
            evaluation.wait()


def test_a_training_is_told_once_that_agents_vanish(policy):
    client, told = Client(), []
    answer = {"returns": [1.0], "lengths": [2], "successes": None, "shortfall": "", "vanished": 3}
    with PeriodicEvaluation(task(), b"") as evaluation:
        evaluation.warn = told.append
        evaluation._play = lambda *_: dict(answer)
        for version in (1, 2):
            evaluation.begin(client, "r", version, policy)
            evaluation.wait()

    assert len(client.reports) == 2
    assert [one.partition(";")[0] for one in told] == [
        "evaluation of version 1: agents that vanished without an end: 3"
    ]


def test_a_version_whose_returns_are_not_finite_is_not_rated_and_that_is_no_failure():
    client, told, failed, rated = Client(), [], [], []
    rows = [(INITIAL, 0), (RUNNING, "nan"), (TERMINAL, 1)]
    module = scripted(*[[(agent, *row)] for agent in range(1, 9) for row in rows])
    with PeriodicEvaluation(task(episodes=2, frames=20), module) as evaluation:
        evaluation.warn, evaluation.on_failure = told.append, failed.append
        evaluation.on_rated = lambda: rated.append(True)
        for version in (1, 2):
            evaluation.begin(client, "r", version, zeros(1, 1))
            evaluation.wait()

    assert (client.reports, failed, rated) == ([], [], [True] * 2)
    assert told == [
        "evaluation of version 1: 2 of 2 episodes have a return that is not finite, because the"
        " guest gave such rewards: it is not rated"
    ]


def test_a_training_is_told_that_its_guest_refuses_the_copies_it_is_to_play():
    client, told = Client(), []
    spec = {"behaviors": {"*": {"copies": 60_000}}}
    module = with_section((GUESTS / "c_pendulum.wasm").read_bytes(), spec)
    with PeriodicEvaluation(task(episodes=5_000, frames=210), module) as evaluation:
        evaluation.warn = told.append
        evaluation.begin(client, "r", 1, zeros(3, 1))
        evaluation.wait()

    assert [one.partition(" answered 5 (")[0] for one in told if "configuration" in one] == [
        "evaluation of version 1: reach.wasm refuses its configuration: its export configure"
    ]


def test_a_training_is_told_once_that_a_recorded_evaluation_has_no_replay(policy, tmp_path):
    client, told = Client(), []
    client.keep_replay = lambda *_: done([])
    traces = EvaluationTraces(tmp_path, 1)
    traces.make_folder()
    recorded = task(is_traced=True)
    with PeriodicEvaluation(recorded, REACH.read_bytes(), traces=traces) as evaluation:
        evaluation.warn = told.append
        for version in (1, 2, 3):
            evaluation.begin(client, "r", version, policy)
            evaluation.wait()
            if version == 1:  # from now on the process finds the disk full
                resource.prlimit(evaluation._process.pid, resource.RLIMIT_FSIZE, (2_000, 2_000))

    assert len(client.reports) == 3
    (said,) = told
    assert said.startswith("evaluation of version 2: the page of the run has no replay of it: ")
    assert "the trace is damaged: it is cut" in said
    assert said.endswith("is full or slow, or leave --trace-every (trace_every) away")


@pytest.mark.parametrize(
    ("module", "onnx", "reason"),
    [
        (b"nonsense", b"", "the evaluation failed: .*reach.wasm"),
        (None, b"nonsense", "the evaluation failed: .*"),
    ],
)
def test_an_evaluation_that_fails_says_why(module, onnx, reason):
    with PeriodicEvaluation(task(), module or REACH.read_bytes()) as evaluation:
        evaluation.begin(Client(), "r", 1, onnx)
        with pytest.raises(EvaluationFailed, match=reason):
            evaluation.wait()
        with pytest.raises(EvaluationFailed, match=reason):
            evaluation.begin(Client(), "r", 2, onnx)


def test_a_process_that_is_killed_is_a_failure_with_its_status(policy):
    client = Client()
    with PeriodicEvaluation(task(frames=10**9, episodes=9_000), REACH.read_bytes()) as evaluation:
        evaluation.begin(client, "r", 1, policy)
        while (process := evaluation._process) is None:
            pass
        process.kill()
        with pytest.raises(EvaluationFailed, match=r"reach\.wasm ended with status -9"):
            evaluation.wait()


def test_closing_ends_an_evaluation_that_plays(policy):
    with PeriodicEvaluation(task(frames=10**9, episodes=10**9), REACH.read_bytes()) as evaluation:
        evaluation.begin(Client(), "r", 1, policy)
        while (process := evaluation._process) is None:
            pass

    assert process.returncode == -9


def process_that(program):
    """Have the next evaluations started as another Python program, which inherits the pipes."""
    start = subprocess.Popen

    def begin(words, **options):
        return start([sys.executable, "-c", program] if EVALUATOR in words else words, **options)

    return patch("arkml.training.periodic_evaluation.subprocess.Popen", begin)


def is_full(pipe):
    """Return whether a writer of a pipe waits for its reader."""
    return not select.select([], [pipe], [], 0)[1]


@pytest.mark.parametrize("rest", [100, 200_000])
def test_closing_drops_what_the_process_has_not_read(rest):
    module, size = REACH.read_bytes(), 1 << 16  # of a pipe
    evaluation = PeriodicEvaluation(task(), module)
    with process_that("import signal; signal.pause()"):
        evaluation.begin(Client(), "r", 1, bytes(size - len(module) + rest))
        eventually(lambda: evaluation._process is not None)
        stdin = evaluation._process.stdin
        eventually(lambda: is_full(stdin))
        evaluation.close()

    assert stdin.closed
    evaluation.wait()  # no failure either


def test_a_process_that_reads_nothing_is_a_failure_with_its_status():
    with (
        process_that("raise SystemExit(7)"),
        PeriodicEvaluation(task(), bytes(1 << 20)) as evaluation,
    ):
        evaluation.begin(Client(), "r", 1, b"")
        with pytest.raises(EvaluationFailed, match=r"reach\.wasm ended with status 7"):
            evaluation.wait()


def test_an_evaluation_that_ends_after_it_was_closed_is_told_to_nobody(policy):
    client, run, told = Client(), Future(), []
    client.begin_evaluation = lambda *_: run
    evaluation = PeriodicEvaluation(task(), REACH.read_bytes())
    evaluation.on_evaluation = evaluation.on_lost = told.append
    with patch.object(run, "result", wraps=run.result) as asked:
        evaluation.begin(client, "r", 1, policy)
        eventually(lambda: asked.called)  # it has played
        evaluation.close()
    run.set_result(Client().begin_evaluation("r", 1).result())
    evaluation._thread.join()

    assert (told, client.reports, evaluation.reports) == ([], [], [])


def test_the_process_ends_with_its_standard_input(policy):
    process = subprocess.Popen(
        [sys.executable, "-m", "arkml.training.evaluations"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with process:
        write_message(process.stdin, task().message(REACH.read_bytes()))
        wanted = {"behavior": "", "version": 2, "episodes": 1}
        write_message(process.stdin, EvaluatorMessage(wanted, policy))
        answer = json.loads(process.stdout.readline())
        write_message(process.stdin, EvaluatorMessage(wanted | {"episodes": 10**9}, policy))
        process.stdin.close()

        assert process.wait(300) == 0
    assert answer["version"] == 2
    assert len(answer["returns"]) == 1
    assert answer["successes"] is None
