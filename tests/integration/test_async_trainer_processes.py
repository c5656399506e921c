"""Actors in processes of their own: their deaths, their leaving nothing, and what they refuse."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest
from tests.integration.actor_parts import (
    CountingEnv,
    Inbox,
    Plan,
    assert_loses_a_message_at_most,
    is_prefix,
    job,
)
from tests.integration.command_line import ENVIRONMENT, ROOT
from tests.integration.processes_alive import is_running
from tests.waiting import eventually

from arkml.async_trainer.runners.processes import ProcessRunner
from arkml.errors import UsageError

SHARED = Path("/dev/shm")


@pytest.fixture
def runner():
    with ProcessRunner() as made:
        yield made


@pytest.fixture
def inbox(runner):
    return Inbox(runner)


@pytest.fixture
def reports(tmp_path):
    return tmp_path / "reports"


def pids(reports):
    lines = reports.read_text().split() if reports.exists() else []
    return [int(line) for line in lines if line.isdigit()]


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        ("kill", "the process of actor 0 was killed by SIGKILL"),
        ("exit", "the process of actor 0 ended with status 7"),
    ],
)
def test_a_process_that_ends_by_itself_loses_what_it_had_not_sent(runner, inbox, act, reason):
    runner.start(job(plan=Plan(act, at=995)))
    runner.publish(0, 0)
    inbox.until(lambda seen: seen.ended)

    assert inbox.ended[0].reason == reason
    assert inbox.ended[0].stat.env_steps == 995
    assert is_prefix(inbox.items(), 0)
    assert len(inbox.items()) == 990


def test_a_killed_actor_loses_a_message_at_most_and_never_half_of_one(
    runner, inbox, reports, tmp_path
):
    for actor in range(2):
        runner.start(job(actor, plan=Plan(reports=str(reports), counts=str(tmp_path))))
    runner.publish(0, 0)
    inbox.until(lambda seen: len(seen.items(0)) > 100 and len(seen.items(1)) > 100)
    for pid in pids(reports):
        os.kill(pid, signal.SIGKILL)
    inbox.until(lambda seen: len(seen.ended) == 2)

    for ended in inbox.ended:
        assert_loses_a_message_at_most(inbox, ended.actor, tmp_path)
        assert 0 <= ended.stat.env_steps - len(inbox.items(ended.actor)) <= 20


def test_other_actors_play_while_one_dies(runner, inbox):
    runner.start(job(0, plan=Plan("kill", at=50)))
    runner.start(job(1))
    runner.publish(0, 0)
    inbox.until(lambda seen: seen.ended)
    count = len(inbox.items(1))
    inbox.until(lambda seen: len(seen.items(1)) > count + 100)

    assert is_prefix(inbox.items(1), 1)


def test_what_an_actor_has_started_ends_with_it(runner, inbox, reports):
    runner.start(job(plan=Plan("start a process", reports=str(reports))))
    runner.publish(0, 0)
    inbox.until(lambda seen: seen.messages)
    actor, child = pids(reports)
    os.kill(actor, signal.SIGKILL)
    inbox.until(lambda seen: seen.ended)

    eventually(lambda: not is_running(child))


def test_closing_ends_actors_that_do_not_stop(reports):
    with ProcessRunner() as runner:
        runner.start(job(plan=Plan("hang", at=20, reports=str(reports))))
        runner.start(job(1, plan=Plan("start a process", reports=str(reports))))
        runner.publish(0, 0)
        Inbox(runner).until(lambda seen: len(seen.items(0)) == 20 and seen.items(1))
        started = pids(reports)
        runner.close(0.5)

    assert len(started) == 3
    assert not any(map(is_running, started))


@pytest.mark.workers
@pytest.mark.parametrize("act", ["", "hang", "start a process"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_parent_leaves_no_process_and_no_file(number, act, reports):
    before = set(SHARED.iterdir())
    with subprocess.Popen(
        [sys.executable, "-m", "tests.integration.actor_parent", "processes", act, reports],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT,
        env={**ENVIRONMENT, "TMPDIR": str(reports.parent)},
    ) as parent:  # fmt: skip
        assert parent.stdout.readline() == b"they play\n"
        parent.send_signal(number)

    assert len(pids(reports)) == (4 if act == "start a process" else 2)
    eventually(lambda: not any(map(is_running, pids(reports))))
    assert set(SHARED.iterdir()) <= before
    assert list(reports.parent.iterdir()) == [reports]


class Threads(CountingEnv):
    """Its observation is the number of threads that libraries are to use."""

    def _obs(self):
        return [[int(os.environ["OPENBLAS_NUM_THREADS"]), int(os.environ["OMP_NUM_THREADS"])]]


def test_an_actor_computes_with_one_thread(runner, inbox):
    runner.start(job(env=Threads))
    runner.publish(0, 0)
    inbox.until(lambda seen: seen.messages)

    assert inbox.messages[0].pushed_items[0] == (1, 1, 0)


def test_the_part_of_a_job_that_cannot_be_pickled_is_named(runner):
    class LocalEnv(CountingEnv):
        pass

    with pytest.raises(UsageError, match="agent_config cannot be pickled"):
        runner.start(job(agent_config=lambda: None))
    with pytest.raises(UsageError, match=r"env cannot be pickled.*LocalEnv"):
        runner.start(job(env=LocalEnv))


def test_a_model_that_cannot_be_pickled_is_refused(runner):
    with pytest.raises(UsageError, match="the model info cannot be pickled"):
        runner.publish(0, lambda: None)


def test_a_class_that_only_this_process_has_is_refused_once(runner, inbox, monkeypatch):
    module = ModuleType("only_here")
    module.OnlyHere = type("OnlyHere", (CountingEnv,), {"__module__": "only_here"})
    monkeypatch.setitem(sys.modules, "only_here", module)
    runner.start(job(env=module.OnlyHere))
    runner.publish(0, 0)

    with pytest.raises(UsageError, match="No module named 'only_here'; its classes must be"):
        inbox.until(lambda seen: seen.ended)
    inbox.until(lambda seen: seen.ended)
    assert "only_here" in inbox.ended[0].reason


def test_a_message_of_many_bytes_arrives(runner, inbox):
    runner.start(job(n_buffer=200_000))
    runner.publish(0, 0)
    inbox.until(lambda seen: seen.messages)

    assert is_prefix(inbox.items(), 0)


def test_a_model_of_many_bytes_arrives(runner, inbox):
    for n_opts in range(5):
        runner.publish(n_opts, 1 << (8_000_000 * (n_opts % 3)))
    runner.publish(5, 77)
    runner.start(job())
    inbox.until(lambda seen: seen.messages)

    assert inbox.items()[0] == (0, 1, 77)


SCRIPT = """
    from arkml.async_trainer import ActorManagerConfig, AsyncTrainerConfig, util
    from arkml.async_trainer.core import *
    from arkml.testing.async_trainer import TestAgent, TestAgentConfig, TestEnv

    class MyEnv(TestEnv):
        pass

    def train():
        result = util.train_async(
            TestAgentConfig(), [TestAgentConfig()] * 2, 0, 0, SimpleStepProcessorConfig(),
            SimpleReplayBufferConfig(), ActorManagerConfig(runner="processes"),
            AsyncTrainerConfig(warmup_period=100, updates_per_sample=1), NullRecorder(),
            agent=TestAgent, env=MyEnv, step_processor=SimpleStepProcessor,
            replay_buffer=SimpleReplayBuffer,
        )
        print(result.samples >= 100)
"""


def run_script(path, ending):
    path.write_text(textwrap.dedent(SCRIPT) + textwrap.dedent(ending))
    return subprocess.run(
        [sys.executable, path], capture_output=True, text=True, check=False, env=ENVIRONMENT,
        timeout=300,
    )  # fmt: skip


def test_actors_have_the_classes_of_a_guarded_script(tmp_path):
    run = run_script(tmp_path / "guarded.py", 'if __name__ == "__main__":\n    train()')

    assert (run.returncode, run.stdout) == (0, "True\n"), run.stderr


def test_a_script_without_a_guard_is_told_so(tmp_path):
    run = run_script(tmp_path / "unguarded.py", "train()")

    assert run.returncode == 1
    assert run.stdout == ""
    assert run.stderr.splitlines()[-1].startswith("arkml.errors.UsageError: actors in processes")
    assert run.stderr.endswith('put the call below `if __name__ == "__main__":`\n')
