"""Limits of what a hive keeps and runs: each refusal has a status and a sentence, and ends."""

import json
import logging
import time
import uuid

import pytest
from tests.integration.command_line import GUESTS, arkml
from tests.integration.hive_service import ACTIONS, FEATURES, Service, request, rows, start_hive
from tests.waiting import eventually

from arkml import train
from arkml.errors import NotFound, Unavailable
from arkml.hive.client import HiveClient
from arkml.hive.protocol.rows import RowKind, encode

MIB = 1 << 20
IMPATIENT = {"lease": 0.2, "pause": 0.4, "idle_stop": 60.0}
SECOND = 1 / 3_600


@pytest.fixture
def make_service(tmp_path):
    """A factory of hives with limits, and of clients, that are closed at the end."""
    made = []

    def make(timeouts=None, **limits):
        hive = start_hive(tmp_path / "data", limits=limits, timeouts=timeouts or {})
        made.append(hive)
        made.append(service := Service(hive))
        return service

    yield make
    for one in reversed(made):
        one.close()


@pytest.fixture(scope="module")
def one_learner(tmp_path_factory):
    """A hive that has one learner at a time."""
    with start_hive(tmp_path_factory.mktemp("hive") / "data", limits={"learners": 1}) as hive:
        service = Service(hive)
        yield service
        service.close()


@pytest.fixture
def crowded(one_learner):
    """That hive with a run that has its learner, `first`; all runs are stopped at the end."""
    one_learner.first = one_learner.create("first")
    yield one_learner
    for run in one_learner.get("/runs").json()["runs"]:
        one_learner.post(f"/runs/{run['id']}/stop")


def refusal(answer):
    """The status of an answer, and its sentence."""
    return answer.status_code, answer.json()["error"]


def places(service, *runs):
    """The place of each run in the order of those that wait for a learner."""
    return [service.run(run)["place"] for run in runs]


def test_runs_beyond_the_learners_are_pending_in_order_and_begin_in_it(crowded):
    service, first = crowded, crowded.first
    second, third = service.create("second"), service.create("third")
    service.wait_for_status(first, "running")
    waiting = places(service, first, second, third)
    pending = [service.run(run)["status"] for run in (second, third)]
    service.post(f"/runs/{first}/stop")
    service.wait_for_status(second, "running")
    moved = places(service, second, third)
    service.post(f"/runs/{third}/stop")
    left = service.run(third)

    assert waiting == [0, 1, 2]
    assert pending == ["pending", "pending"]
    assert moved == [0, 1]
    assert (left["status"], left["place"]) == ("stopped", 0)


def test_a_run_that_is_not_used_gives_its_learner_to_one_that_waits_and_gets_it_back(make_service):
    service = make_service(IMPATIENT, learners=1)
    idle, other = service.create("idle"), service.create("other")
    service.wait_for_status(other, "running", "paused")
    rests = service.run(idle)["status"]
    sid = service.sid(idle)
    resumed = eventually(
        lambda: (
            service.post(f"/sessions/{sid}/beat").status_code == 200
            and service.run(idle)["status"] == "running"
        )
    )

    assert rests == "paused"
    assert resumed


def test_runs_wait_in_the_order_in_which_they_began_after_a_restart(make_service):
    before = make_service(learners=1)
    runs = [before.create(str(number)) for number in range(5)]
    for run in runs:
        before.sid(run)
    before.hive.close()
    service = make_service({"pause": 3_600.0, "back": 3_600.0}, learners=1)

    assert eventually(lambda: places(service, *runs) == [0, 1, 2, 3, 4])


def test_a_hive_that_is_started_again_has_its_learner_for_the_run_whose_host_comes_back(
    make_service,
):
    before = make_service(learners=2)
    dead, live = before.create("one"), before.create("other")  # the order of a restart
    before.sid(dead)
    sid = before.sid(live)
    before.wait_for_status(dead, "running")
    before.wait_for_status(live, "running")
    before.hive.close()
    service = make_service({"pause": 3_600.0, "back": 0.5}, learners=1)
    learns = eventually(
        lambda: (
            service.post(f"/sessions/{sid}/beat").status_code == 200
            and service.run(live)["status"] == "running"
        )
    )

    assert learns
    assert service.run(dead)["status"] == "paused"


def test_rows_of_a_pending_run_are_kept_for_its_learner(crowded):
    service, first = crowded, crowded.first
    second = service.create("second")
    sid = service.sid(second)
    answer = service.push(sid, rows(5), 1).json()
    beat = service.post(f"/sessions/{sid}/beat").json()
    service.post(f"/runs/{first}/stop")
    held = eventually(
        lambda: (audit := service.get(f"/runs/{second}/memory")).status_code == 200 and audit.json()
    )

    assert (answer["accepted"], answer["place"], beat["place"]) == (5, 1, 1)
    assert held["sessions"]["0"]["rows"] == 5


def test_the_time_that_a_run_waits_for_its_learner_does_not_count(crowded):
    second = crowded.post("/runs", request("second") | {"seconds": 2}).json()["run"]["id"]
    began = crowded.run(second)["started_at"]
    eventually(lambda: time.time_ns() - began > 3_000_000_000)
    waits = crowded.run(second)["status"]
    crowded.post(f"/runs/{crowded.first}/stop")

    assert waits == "pending"
    assert crowded.wait_for_status(second, "running")
    assert crowded.wait_for_status(second, "stopped")


def test_the_time_of_a_goal_counts_from_the_first_policy_of_its_run(crowded):
    asked = request("second") | {"goal": {"seconds": 120.0}}
    second = crowded.post("/runs", asked).json()["run"]["id"]
    waits = crowded.run(second)
    waited = time.time_ns()
    crowded.post(f"/runs/{crowded.first}/stop")
    crowded.wait_for_status(second, "running")
    runs = crowded.run(second)

    assert waits["policy_version"] == 0
    assert waits["goal"]["since"] < waited < runs["goal"]["since"]
    assert runs["goal"]["seconds"] == 120.0


def test_a_host_in_lockstep_hears_at_once_that_its_run_is_pending(crowded):
    asked = request("second")
    asked["settings"]["sync"] = True
    second = crowded.post("/runs", asked).json()["run"]["id"]
    status, error = refusal(crowded.push(crowded.sid(second), rows(5), 1))

    assert status == 503
    assert "as number 1 of the runs that wait" in error
    assert crowded.run(second)["rows"] == 0


def test_a_run_that_needs_a_device_does_not_wait_for_its_place_to_be_created(crowded):
    created = crowded.post("/runs", request("second") | {"requires_device": True})

    assert created.status_code == 201
    assert created.json()["run"]["place"] == 1


def test_runs_beyond_the_limit_are_refused_until_one_is_deleted(make_service):
    service = make_service(runs=2)
    first, second = service.create("a"), service.create("b")
    status, error = refusal(service.post("/runs", request("c")))
    joined = service.create("a", on_conflict="join")
    service.post(f"/runs/{second}/stop")
    service.http.delete(f"/runs/{second}")

    assert status == 429
    assert error.startswith("this hive has 2 runs, and may have 2 (--max-runs)")
    assert joined == first
    assert service.create("c")


def test_sessions_beyond_the_limits_are_refused_until_others_have_left(make_service):
    service = make_service(sessions=3, sessions_per_run=2)
    first, second = service.create("a"), service.create("b")
    sid = service.sid(first, "the first key")
    service.sid(first)
    status, error = refusal(service.join(first))
    again = service.join(first, "the first key").status_code
    service.sid(second)
    in_all = refusal(service.join(second))
    service.post(f"/sessions/{sid}/leave")

    assert status == 429
    assert "has 2 sessions, and may have 2 (--max-sessions-a-run)" in error
    assert again == 200
    assert in_all[0] == 429
    assert in_all[1].startswith("this hive has 3 sessions, and may have 3 (--max-sessions)")
    assert service.join(second).status_code == 200


def remembered(service, run):
    """The keys of the sessions that a run remembers; its file is written for a new name."""
    service.post(f"/runs/{run}/names", {"names": [uuid.uuid4().hex]})
    document = json.loads((service.hive.data / "runs" / run / "run.json").read_text())
    return [session["join_key"] for session in document["sessions"]]


def test_a_session_that_was_silent_for_long_is_forgotten_unless_it_brought_demonstrations(
    make_service,
):
    service = make_service(IMPATIENT, session_hours=0.5 * SECOND)
    run = service.create()
    old, shown = service.sid(run, "the old key"), service.sid(run, "demonstrations-1")
    service.push(old, rows(5), 1)
    body = encode(rows(5), seq=1, kind=RowKind.DEMONSTRATION)
    assert service.send(shown, body).status_code == 200
    forgotten = eventually(lambda: "the old key" not in remembered(service, run), interval=0.2)
    gone = service.post(f"/sessions/{old}/beat").status_code
    back = service.join(run, "the old key").json()

    assert forgotten
    assert gone == 404
    assert (back["rejoin"], back["index"], back["acked"]) == (False, 2, 0)
    assert service.join(run, "demonstrations-1").json()["acked"] == 1


def test_only_the_newest_sessions_that_have_left_are_remembered(make_service):
    service = make_service(sessions_per_run=4)
    run = service.create()
    service.sid(run, "a key that stays")
    sids = []
    for number in range(12):
        sids.append(service.sid(run, f"key number {number}"))
        service.post(f"/sessions/{sids[-1]}/leave")
    gone = eventually(lambda: service.post(f"/sessions/{sids[0]}/beat").status_code == 404)
    last = service.join(run, "key number 11").json()

    assert gone
    assert (last["rejoin"], last["sid"]) == (True, sids[-1])


def test_rows_and_runs_beyond_the_disk_are_refused_and_checkpoints_stay(make_service):
    service = make_service(disk_bytes=4 * MIB)
    run = service.create()
    sid = service.sid(run)
    seq = 1
    while (answer := service.push(sid, rows(4_096), seq)).status_code == 200:
        seq += 1
        assert seq < 1_000
    status, error = refusal(answer)
    service.wait_for_status(run, "running")
    saved = service.post(f"/runs/{run}/checkpoints")
    listed = service.get(f"/runs/{run}/checkpoints").json()["checkpoints"]
    shown = eventually(lambda: service.run(run)["disk"])
    service.http.delete(f"/runs/{run}?force=1")

    assert status == 507
    assert "may have 4 MiB (--max-disk): delete runs that are over" in error
    assert saved.status_code == 200
    assert len(listed) >= 1
    assert MIB < shown <= 5 * MIB
    assert eventually(lambda: service.post("/runs", request("next")).status_code == 201)


def test_what_does_not_fit_is_pending_and_what_outgrows_the_memory_ends_with_the_reason(
    make_service,
):
    service = make_service(memory_bytes=300 * MIB)
    greedy = service.create("greedy", misbehavior="greedy")
    other = service.create("other")
    waits = service.run(other)
    service.wait_for_status(greedy, "aborted")
    ended = service.run(greedy)
    service.wait_for_status(other, "running")
    shown = eventually(lambda: service.run(other)["memory"])

    assert (waits["status"], waits["place"]) == ("pending", 1)
    assert "may take 300 MiB (--max-memory)" in ended["reason"]
    assert refusal(service.join(greedy))[0] == 410
    assert MIB < shown < 300 * MIB


@pytest.fixture
def logged(caplog):
    """Wait for a warning of a client that holds a text."""
    caplog.set_level(logging.WARNING)

    def wait(text):
        return eventually(lambda: any(text in one.getMessage() for one in caplog.records))

    return wait


def test_a_client_says_that_its_run_is_pending_and_that_it_is_not_any_more(crowded, logged):
    service, first = crowded, crowded.first
    second = service.create("second")
    with HiveClient(service.hive.locate) as client:
        joining = client.join(second, FEATURES, ACTIONS, on_policy=lambda *_: None)
        session = joining.result(300)
        assert session.place == 1
        assert logged(f"run {second} is pending: it waits for a learner as number 1")
        service.post(f"/runs/{first}/stop")
        assert logged(f"run {second} has a learner now")

    assert session.place == 0


def test_a_training_that_ends_while_its_run_is_pending_says_so_and_leaves_the_run(
    crowded, tmp_path
):
    seen = []

    def look(state):
        seen.append(state.run_id)
        return len(list(filter(None, seen))) < 2  # the hive was asked about the run

    with pytest.raises(NotFound) as refused:
        train(
            GUESTS / "c_reach.wasm", hive=crowded.base.removesuffix("/v1"), token=crowded.token,
            directory=tmp_path, minutes=60, progress=look,
        )  # fmt: skip

    assert "it waits for a learner as number 1 of the runs that wait: train for" in str(
        refused.value
    )
    assert crowded.run(seen[-1])["sessions"] == 0
    assert crowded.run(seen[-1])["status"] == "stopped"


def test_a_training_that_may_not_join_a_run_ends_with_the_reason_and_without_a_policy(
    make_service, tmp_path
):
    service = make_service({"lease": 3_600.0}, sessions_per_run=1)
    run = service.create(features=4, actions=2)
    service.join(run, features=4)
    service.wait_for_status(run, "running")
    with pytest.raises(Unavailable, match=r"has 1 sessions, and may have 1 \(--max-sessions-a-run"):
        train(
            GUESTS / "c_reach.wasm", hive=service.base.removesuffix("/v1"), token=service.token,
            directory=tmp_path / "out", join="run", frames=300,
        )  # fmt: skip

    assert not list(tmp_path.glob("out/*.onnx"))


def test_a_client_whose_session_was_forgotten_joins_again_and_its_rows_arrive(make_service, logged):
    service = make_service(IMPATIENT, session_hours=0.5 * SECOND)
    run = service.create()
    with HiveClient(service.hive.locate) as client:
        session = client.join(run, FEATURES, ACTIONS, on_policy=lambda *_: None).result(300)
        before = session.sid
        eventually(lambda: not remembered(service, run), interval=0.2)
        columns = rows(3)
        session.outbox.append(*(getattr(columns, name) for name in COLUMNS))
        arrived = eventually(lambda: session.ledger.accepted == 3)

        assert logged(f"a session of run {run}, unknown to its hive, is joined again")
        assert arrived
        assert session.failure is None
        assert session.sid != before


COLUMNS = ("agent", "step", "version", "reward", "state", "features", "action")


def test_a_client_names_the_limit_that_its_rows_are_refused_for(make_service, logged):
    service = make_service(disk_bytes=3 * MIB)
    run = service.create()
    sid = service.sid(run)
    seq = 1
    while service.push(sid, rows(4_096), seq).status_code == 200:
        seq += 1
    with HiveClient(service.hive.locate) as client:
        session = client.join(run, FEATURES, ACTIONS, on_policy=lambda *_: None).result(300)
        for step in range(20):
            columns = rows(4_096, first_step=step * 4_096)
            session.outbox.append(*(getattr(columns, name) for name in COLUMNS))

        assert logged("the hive is gone: it takes nothing, the hive has")
        assert session.outbox.outstanding > 0


def test_pending_runs_are_shown_with_their_place_and_what_they_take(crowded):
    second = crowded.create("second")
    address = crowded.hive.locate()
    host, port, token = address.host, address.port, address.token
    at = ("--hive", f"{host}:{port}")
    listed = arkml("hive", "list", *at, ARKML_HIVE_TOKEN=token, COLUMNS="200")
    shown = arkml("hive", "show", second, *at, ARKML_HIVE_TOKEN=token)

    assert "pending, number 1" in listed.out
    assert "pending, number 1" in shown.out
    assert "disk" in shown.out


def test_the_time_that_a_run_may_last_is_not_shown_as_the_time_that_it_has_lasted(crowded):
    second = crowded.post("/runs", request("second") | {"seconds": 86_400}).json()["run"]["id"]
    address = crowded.base.removeprefix("http://").removesuffix("/v1")
    shown = arkml("hive", "show", second, "--hive", address, ARKML_HIVE_TOKEN=crowded.token)
    facts = [line.split() for line in shown.out.splitlines()]

    assert ["may", "last", "86,400", "s"] in facts
    assert not [one for one in facts if one[:1] == ["seconds"]]


def test_a_disk_that_holds_no_run_is_refused_as_an_option():
    ended = arkml("hive", "serve", "--max-disk", "1MB")

    assert ended.status == 2
    assert "--max-disk 1MB: it takes 256MiB at least" in ended.err


@pytest.mark.parametrize("name", ["configuration", "arguments"])
def test_a_run_keeps_no_longer_text_than_a_megabyte(one_learner, name):
    def started(size):
        return one_learner.post("/runs", request("texts") | {name: "ä" * (size // 2)})

    kept, refused = started(MIB), started(MIB + 2)
    one_learner.post(f"/runs/{kept.json()['run']['id']}/stop")

    assert kept.status_code == 201
    assert refusal(refused) == (413, f"{name} has {MIB + 2} bytes: it takes {MIB} at most")


@pytest.mark.parametrize(
    ("changes", "status", "sentence"),
    [
        ({"other": {"note": "x" * 65_536}}, 413, "settings has "),
        ({"other": {f"key{i}": i for i in range(10_000)}}, 413, "it takes 65536 at most"),
        ({"actions": 17, "branches": [4_096] * 17}, 422, "branches have 69632 choices together"),
    ],
)
def test_the_settings_that_a_run_keeps_have_a_size(one_learner, changes, status, sentence):
    wish = request("large")
    wish["settings"] |= changes
    refused = one_learner.post("/runs", wish)

    assert refused.status_code == status
    assert sentence in refused.json()["error"]


def test_the_name_of_a_checkpoint_has_a_size(one_learner):
    refused = one_learner.post("/runs", request("large") | {"checkpoint": "x" * 513})

    assert refusal(refused) == (413, "checkpoint has 513 bytes: it takes 512 at most")
