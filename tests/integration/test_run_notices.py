"""What a hive says about a run in trouble: an event, a metric, and a webhook."""

import itertools
import json
import os
import re
import shlex
import signal
import sys
from contextlib import contextmanager

import pytest
from tests.integration.command_line import arkml
from tests.integration.hive_service import Service, rows, start_hive
from tests.waiting import eventually
from tests.webhook_receiver import WebhookReceiver

import arkml as package

GUEST = "fixtures/guests/c_reach.wasm"
QUICK = {"algorithm": "drawn", "hidden": 8, "batch_size": 16, "memory_min_size": 64}


@contextmanager
def told(data, answer=200, **options):
    """A hive whose notices a receiver gets, and requests to it."""
    with WebhookReceiver(answer) as receiver:
        notify = {"urls": [receiver.url], "timeout": 60.0, "pauses": [0.0, 0.0], **options}
        with start_hive(data, notify=notify) as hive:
            service = Service(hive)
            yield service, receiver
            service.close()


def events(service, run_id, since=0):
    return service.get(f"/runs/{run_id}/events", params={"since": since}).json()["events"]


def counts(service):
    """The notices of the runs that are scraped, by kind."""
    text = service.get(f"{service.base.removesuffix('/v1')}/metrics").text
    found = re.findall(r'arkml_run_notices_total\{kind="(\w+)".*\} (\S+)', text)
    return {kind: float(value) for kind, value in found}


def push(service, run_id, bodies):
    """Send bodies of rows, each once the learner has made an update of the one before."""
    sid = service.sid(run_id)
    for number in range(bodies):
        service.push(sid, rows(8, 8 * number), number + 1)
        eventually(lambda wanted=number + 1: service.run(run_id)["n_opts"] >= wanted)


def test_a_learner_that_diverges_is_an_event_a_metric_and_a_webhook(tmp_path):
    with told(tmp_path) as (service, receiver):
        run_id = service.create(settings={}, misbehavior="sends nan")
        push(service, run_id, 12)
        [notice] = eventually(lambda: receiver.notices)
        [entry] = [one for one in events(service, run_id) if one["about"]]
        counted = counts(service)
        later = events(service, run_id, since=entry["at"])

    assert entry["kind"] == "warning"
    assert entry["about"] == notice["kind"] == "diverging"
    assert entry["text"] == notice["text"] == "the learner diverges: train/critic_loss is nan"
    assert (notice["run"], notice["name"], notice["game"]) == (run_id, "run", "game")
    assert notice["link"] == f"{service.base.removesuffix('/v1')}/#runs={run_id}"
    assert counted == {
        "diverging": 1, "collapsed": 0, "stuck": 0, "slow": 0, "restarted": 0, "goal": 0,
    }  # fmt: skip
    assert entry not in later


def test_a_learner_that_is_restarted_is_told(tmp_path):
    with told(tmp_path) as (service, receiver):
        run_id = service.create(settings={}, misbehavior="dies once")
        service.push(service.sid(run_id), rows(8), 1)
        [notice] = eventually(lambda: receiver.notices)
        counted = eventually(lambda: counts(service).get("restarted"))

    assert notice["kind"] == "restarted"
    assert "divides by zero" in notice["text"]
    assert counted == 1


def test_a_learner_that_ends_because_it_has_diverged_is_told_to_diverge(tmp_path):
    with told(tmp_path) as (service, receiver):
        service.create(settings={}, misbehavior="diverge")
        notices = eventually(lambda: len(receiver.notices) > 2 and receiver.notices)

    assert [one["kind"] for one in notices] == ["diverging", "restarted", "aborted"]
    assert notices[0]["text"] == "the learner diverges: weights are not finite"


def test_a_run_that_is_aborted_is_told(tmp_path):
    with told(tmp_path) as (service, receiver):
        service.create(settings={}, misbehavior="misconfigured")
        [notice] = eventually(lambda: receiver.notices)
        text = service.get(f"{service.base.removesuffix('/v1')}/metrics").text

    assert "arkml_run_notices_total{" not in text  # of a run that is over
    assert 'arkml_runs{status="aborted"} 1.0' in text
    assert (notice["kind"], notice["text"]) == ("aborted", "aborted: that makes no sense")


def test_a_hive_that_was_killed_goes_on_with_what_its_rules_have_seen(tmp_path):
    """Five reports in a row are needed: three before it is killed, two by the next process."""
    with told(tmp_path) as (service, receiver):
        run_id = service.create(settings={}, misbehavior="sends nan")
        push(service, run_id, 3)
        before = list(receiver.notices)
        kill_and_push(service, run_id, lambda: receiver.notices)
        [entry] = [one for one in events(service, run_id) if one["about"]]
        kill_and_push(service, run_id, lambda: len(reports(service, run_id)) > 15)
        found = [one["about"] for one in events(service, run_id) if one["about"]]
        earlier = [at for at in reports(service, run_id) if at < entry["at"]]

    assert before == []
    assert [one["kind"] for one in receiver.notices] == found == ["diverging"]
    assert len(earlier) == 4  # and the fifth is found before it is stored


def reports(service, run_id):
    """The times of all reports of the learner of a run."""
    found = service.get(f"/runs/{run_id}/series", params={"name": "rollout/ep_rew_mean"})
    return [at for _, _, at in found.json()["series"]]


def kill_and_push(service, run_id, is_done):
    """Kill a hive, have it started again on its directory, and push rows until it has done it."""
    os.kill(service.hive.pid, signal.SIGKILL)
    eventually(lambda: service.hive.is_dead)
    service.close()
    service.connect()
    sid, numbers = service.sid(run_id), itertools.count()

    def push_one():
        number = next(numbers)
        assert service.push(sid, rows(8, 8 * number), number + 1).status_code == 200
        return is_done()

    eventually(push_one, interval=0.1)


def test_a_webhook_that_hangs_holds_up_neither_rows_nor_the_end_of_the_hive(tmp_path):
    with told(tmp_path, None, timeout=60.0) as (service, receiver):
        run_id = service.create(settings={}, misbehavior="sends nan")
        push(service, run_id, 12)
        eventually(lambda: receiver.posts)
        sid = service.sid(run_id)

        assert service.push(sid, rows(8), 1).status_code == 200


def test_a_goal_is_noted_and_a_wrong_one_is_refused_in_a_sentence(tmp_path):
    with told(tmp_path) as (service, receiver):
        run_id = service.create()
        path = f"/runs/{run_id}/goal"
        reached = {"wanted": 250.0, "mean_return": 251.5, "episodes": 100}
        noted = service.post(path, reached)
        [notice] = eventually(lambda: receiver.notices)
        [entry] = [one for one in events(service, run_id) if one["kind"] == "goal"]
        wrong = [
            service.post(path, values)
            for values in ({}, reached | {"wanted": "x"}, reached | {"mean_return": 1e301})
        ]
        too_much = service.http.post(path, content=b'{"wanted": 1e999}')

    assert noted.status_code == 200
    assert notice["kind"] == entry["about"] == "goal"
    assert entry["text"] == notice["text"]
    assert [answer.status_code for answer in wrong] == [422] * 3
    assert "wanted is missing" in wrong[0].json()["error"]
    assert too_much.status_code in (400, 422)


@pytest.fixture
def receiver():
    with WebhookReceiver() as one:
        yield one


def test_a_training_says_and_sends_that_its_goal_is_reached_once(tmp_path, receiver):
    kept, config = tmp_path / "kept", tmp_path / "config.json"
    config.write_text(json.dumps(QUICK))
    program = f"import sys; open({str(kept)!r}, 'a').write(sys.stdin.read())"
    run = arkml(
        "train", GUEST, "--until-return", "-1000", "--eval-every", "never", "--minutes", "3",
        "--config", str(config), "--out", str(tmp_path / "out"), "--notify", receiver.url,
        "--notify-command", shlex.join([sys.executable, "-c", program]), "--json",
    )  # fmt: skip
    result = json.loads(run.out)
    [notice] = result["notices"]

    assert run.status == 0, run.err
    assert result["end_reason"] == "return"
    assert notice["kind"] == "goal"
    assert notice["text"].startswith("the goal is reached: a mean return of -")
    assert notice["text"].endswith("and -1,000 was wanted")
    assert run.err.count(notice["text"]) == 1
    assert [(one["kind"], one["text"]) for one in receiver.notices] == [("goal", notice["text"])]
    assert json.loads(kept.read_text())["run"] == result["run"]


def test_a_training_in_a_program_has_the_notices(tmp_path, receiver):
    result = package.train(
        GUEST, until_return=-1000.0, eval_every=None, minutes=3, settings=QUICK,
        directory=tmp_path, notify=receiver.url,
    )  # fmt: skip

    assert [one.kind for one in result.notices] == ["goal"]
    assert result.warnings == ()
    assert [one["kind"] for one in receiver.notices] == ["goal"]


@pytest.mark.parametrize("notify", [5, [5], "hooks.example"])
def test_a_training_refuses_what_is_no_url(tmp_path, notify):
    with pytest.raises(package.UsageError, match="notify is"):
        package.train(GUEST, frames=1, directory=tmp_path, notify=notify)


def test_a_webhook_of_a_training_that_fails_is_one_warning(tmp_path):
    with WebhookReceiver(500) as failing:
        result = package.train(
            GUEST, until_return=-1000.0, eval_every=None, minutes=3, settings=QUICK,
            directory=tmp_path, notify=[failing.url],
        )  # fmt: skip

    assert result.end_reason == "return"
    assert [notice["kind"] for notice in failing.notices] == ["goal"] * 3
    assert [one for one in result.warnings if "notices to" in one] == [
        f"notices to {failing.url.rpartition('/')[0]} are lost: it answered with status 500; this"
        " is said once, until one has arrived again"
    ]
