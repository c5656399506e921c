"""What the versions of the training API have beside the second: real wasm, a real hive."""

import json
import shutil
import struct
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from msgspec.structs import replace
from tests.faults.player import SETTINGS, Player
from tests.integration.command_line import GUESTS
from tests.integration.hive_service import Service, grant_of, start_hive, training_host
from tests.integration.training_guest import (
    ACTIONS,
    FEATURES,
    LOCAL,
    QUICK,
    V1,
    V2,
    V3,
    V4,
    TrainingGuest,
)
from tests.waiting import eventually

from arkml import HiveGrant, Host
from arkml.abi.codes import EpisodeState, ErrorCode, ExperimentStatus
from arkml.batches import Batch, Metadata, MetadataLog
from arkml.hive.embedded import EmbeddedHive
from arkml.hive.protocol.rows import read_records
from arkml.host import hives_of

V5 = "ark-ml-v5"
DRAWN = {"algorithm": "drawn"}
GUEST_FILE = GUESTS / "c_reach.wasm"
METRIC_V1, METRIC_V3 = struct.Struct("<28sf"), struct.Struct("<I64sf")
PROTOCOL = struct.Struct("<IIIfIffIIIIfI")
INITIAL, RUNNING, TERMINAL = EpisodeState.INITIAL, EpisodeState.RUNNING, EpisodeState.TERMINAL


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    with training_host(
        tmp_path_factory.mktemp("hive"), wait_for_learner=True, settings=DRAWN
    ) as made:
        yield made


@pytest.fixture
def guest(host):
    made = TrainingGuest(host)
    yield made
    made.guest.close()


@pytest.fixture
def details(host):
    """What the hive knows of a run by its name."""
    client = hives_of(host).client()

    def found(name):
        run = next(run for run in client.runs().result() if run.name == name)
        return client.details(run.id).result()

    return found


def packed(api, metrics):
    """Metrics as pushes of that version take them: the third tells how long a name is."""
    names = [(name.encode(), value) for name, value in metrics]
    if api == V1:
        return b"".join(METRIC_V1.pack(*item) for item in names)
    return b"".join(METRIC_V3.pack(len(name), name, value) for name, value in names)


def push(guest, context, agent, state, *, reward=0.0, given=(), metrics=(), api=V1):
    """Push a row, with metrics (name, value), by the version of `api`."""
    pointer = guest.proxy.put(np.ones(FEATURES, "f4").tobytes())
    actions = guest.proxy.put(np.array(given, "f4").tobytes())
    row = (context, agent, state, reward, pointer, FEATURES, actions, len(given))
    items = guest.proxy.put(packed(api, metrics))
    name = "push_training_observation" + ("_with_metadata" if api == V1 else "")
    assert guest.proxy.code(api, f"ml__{name}", *row, items, len(metrics)) is ErrorCode.SUCCESS


def submit(guest, context, rows):
    guest.proxy._next = 8_192  # what was put before is not needed any more
    actions, values = guest.proxy.room(4 * ACTIONS * rows), guest.proxy.room(4 * rows)
    return guest.proxy.code(
        V1, "ml__submit_training_observations", context, actions, ACTIONS * rows, values, rows
    )


def metrics_of(guest, context, api):
    """The metrics of a run, by name."""
    layout = METRIC_V1 if api == V1 else METRIC_V3
    future = guest.handle(api, "download_metrics", context)
    data = guest.vector(api, "vec_metric", future, layout.size)
    if api == V1:
        return {name.rstrip(b"\0").decode(): value for name, value in layout.iter_unpack(data)}
    return {name[:size].decode(): value for size, name, value in layout.iter_unpack(data)}


def test_the_first_version_starts_a_run_with_the_defaults_of_the_hive(guest, details):
    context = guest.joined(guest.handle(V1, "start_training", *LOCAL, "game", "one", 3, 2))
    code, _, _ = guest.submit(context, [(1, INITIAL, 0.0, 1.0)])
    found = details("one")

    assert code is ErrorCode.SUCCESS
    assert (found.run.game, found.settings.hidden, found.settings.gamma) == ("game", 64, 0.99)
    assert found.run.status.value == "running"


def test_the_third_version_says_how_long(guest, details):
    future = guest.handle(V3, "start_training", *LOCAL, "game", "three", 3, 2, 0, QUICK, "", 3_600)
    guest.joined(future)
    listed = guest.vector(
        V1, "vec_experiment_info", guest.handle(V1, "list_experiments", *LOCAL), 232
    )
    item = next(listed[i : i + 232] for i in range(0, len(listed), 232) if b"three" in listed[i:])

    assert details("three").run.seconds == 3_600
    assert item[4:].startswith(b"three\0")
    assert struct.unpack_from("<Q", item, 216)[0] == 3_600


STATUS = 224
"""Bytes before the status in an ExperimentInfo of 232."""


@pytest.fixture
def statuses(tmp_path):
    """A hive whose learners wait to be told, and the statuses that a guest lists by name."""
    service = Service(start_hive(tmp_path / "data", timeouts={"stop": 60.0}))
    address = service.base.removeprefix("http://").removesuffix("/v1")
    with Host(hive=HiveGrant(hive=address, token=service.token)) as host:
        guest = TrainingGuest(host)

        def listed():
            guest.proxy._next = 8_192
            future = guest.handle(V1, "list_experiments", *LOCAL)
            data = guest.vector(V1, "vec_experiment_info", future, 232)
            items = [data[at : at + 232] for at in range(0, len(data), 232)]
            return {
                item[4 : 4 + item[0]].decode(): ExperimentStatus(item[STATUS]) for item in items
            }

        yield service, listed
        guest.guest.close()
    service.close()
    service.hive.close()


def test_every_status_of_a_run_is_what_guests_are_told(statuses):
    service, listed = statuses
    run = service.create("life", misbehavior="waits")
    folder = service.hive.data / "runs" / run
    found = [listed()["life"]]
    for word, status in (("hello", "starting"), ("policy", "running")):
        (folder / word).touch()
        service.wait_for_status(run, status)
        found.append(listed()["life"])
    with ThreadPoolExecutor(1) as thread:
        stopping = thread.submit(service.http.post, f"/runs/{run}/stop", json={})
        service.wait_for_status(run, "terminating")
        found.append(listed()["life"])
        (folder / "stop").touch()
        stopping.result()
    found.append(listed()["life"])
    shutil.rmtree(folder)
    found.append(listed()["life"])

    assert found == [
        ExperimentStatus.PENDING,
        ExperimentStatus.STARTING,
        ExperimentStatus.RUNNING,
        ExperimentStatus.TERMINATING,
        ExperimentStatus.STOPPED,
        ExperimentStatus.NOT_FOUND,
    ]
    assert service.http.delete(f"/runs/{run}").status_code == 200
    assert listed() == {}


def test_runs_whose_learners_die_are_unhealthy_and_then_aborted(statuses):
    service, listed = statuses
    for name, misbehavior, status in (
        ("unhealthy", "killed", "unhealthy"),
        ("aborted", "misconfigured", "aborted"),
    ):
        service.create(name, misbehavior=misbehavior)

        assert eventually(lambda name=name, status=status: listed()[name].name.lower() == status)


def test_a_run_is_not_deleted_while_its_last_checkpoint_is_written(statuses):
    service, _ = statuses
    run = service.create("busy", misbehavior="waits")
    folder = service.hive.data / "runs" / run
    for word in ("hello", "policy"):
        (folder / word).touch()
    service.wait_for_status(run, "running")
    with ThreadPoolExecutor(1) as thread:
        stopping = thread.submit(service.http.post, f"/runs/{run}/stop", json={})
        service.wait_for_status(run, "terminating")
        refused = service.http.delete(f"/runs/{run}")
        (folder / "stop").touch()
        stopping.result()

    assert refused.status_code == 409
    assert "terminating" in refused.json()["error"]
    assert service.http.delete(f"/runs/{run}").status_code == 200


def test_a_run_is_stopped_when_its_time_is_over(guest, details):
    future = guest.handle(V3, "start_training", *LOCAL, "game", "brief", 3, 2, 0, QUICK, "", 1)
    guest.wait(V1, "training_handle", future)

    assert eventually(lambda: details("brief").run.status.value == "stopped")


def test_the_fourth_version_brings_a_protocol_of_its_own(guest, details):
    protocol = (3, 2, 48, 0.25, 0, 2e-3, 5e-4, 1_000, 64, 200, 20_000, 0.9, 3)
    pointer = guest.proxy.put(PROTOCOL.pack(*protocol))
    future = guest.handle(V4, "start_training", *LOCAL, "game", "four", 0, "{}", "", 60, pointer)
    guest.joined(future)
    found = details("four").settings

    assert (found.features, found.actions, found.hidden, found.rollout_length) == (3, 2, 48, 3)
    assert (found.batch_size, found.memory_min_size, found.memory_max_size) == (64, 200, 20_000)
    assert found.use_terminal_masking is False
    assert np.allclose(
        [found.alpha, found.learning_rate_init, found.learning_rate_end, found.gamma],
        [0.25, 2e-3, 5e-4, 0.9],
    )


def test_the_fifth_version_takes_the_configuration_of_the_hive(guest, details):
    config = json.dumps({"feature_count": 3, "action_count": 2, "hidden": 24, "mine": "é"})
    future = guest.handle(V5, "start_training", *LOCAL, "five", config, "space", "module", 60, 0, 0)
    context = guest.joined(future)
    text = guest.handle(V5, "raw_experiment_config", context)
    registered = guest.handle(
        V4, "raw_experiment_config_from_registry", *LOCAL, details("five").run.id
    )

    assert details("five").settings.hidden == 24
    assert details("five").run.game == "space"
    for future in (text, registered):  # its bytes would have to be fetched in the same call
        guest.wait(V4, "string", future)
        assert guest.take(V4, "string", future, 4)[1] == struct.pack("<I", len(config.encode()))


def test_a_guest_that_asks_for_an_algorithm_that_no_package_brings_starts_no_run(tmp_path):
    config = json.dumps({"feature_count": 3, "action_count": 2, "algorithm": "nosuch"})
    with Host(hive=HiveGrant(data=tmp_path / "hive")) as host:
        guest = TrainingGuest(host)
        future = guest.handle(V5, "start_training", *LOCAL, "a", config, "game", "module", 60, 0, 0)
        guest.wait(V1, "training_handle", future)
        code, _ = guest.take(V1, "training_handle", future, 8)
        why = str(hives_of(host).failure)

    assert code is ErrorCode.INVALID_ARGUMENTS
    assert why.startswith("algorithm is 'nosuch': this hive has auto, drawn, ppo")
    assert not (tmp_path / "hive").exists()


def test_a_guest_learns_by_the_submits_of_the_fifth_version(guest, details):
    settings = {**json.loads(QUICK)["arkml"], "sync": True}
    config = json.dumps({"feature_count": 3, "action_count": 2, **settings})
    context = guest.joined(
        guest.handle(V5, "start_training", *LOCAL, "bytes", config, "game", "module", 600, 0, 0)
    )
    answers = set()
    for step in range(60):
        guest.proxy._next = 8_192  # what was put before is not needed any more
        for agent in range(1, 5):
            push(guest, context, agent, RUNNING if step else INITIAL, reward=0.5, api=V3)
        answers.add(guest.ask(V5, "submit_training_observations", context, size=4))

    assert answers == {(ErrorCode.SUCCESS, struct.pack("<I", 4 + 4 * (9 + 4 * ACTIONS)))}
    assert eventually(lambda: details("bytes").run.rows == 240)
    assert eventually(lambda: details("bytes").run.n_opts > 0)


def test_what_a_hive_has_of_a_run_can_be_had_without_taking_part(guest, details):
    guest.start("registered")
    run = details("registered").run.id
    code, pair = guest.ask(V2, "experiment_config_from_registry", *LOCAL, run, size=16)
    shape, text = struct.unpack("<QQ", pair)
    guest.wait(V2, "ark_experiment_config", shape)
    snapshot = guest.vector(
        V1, "vec_u8", guest.handle(V2, "download_snapshot_from_registry", *LOCAL, run)
    )

    assert code is ErrorCode.SUCCESS
    assert guest.vector(V1, "vec_u8", text) == QUICK.encode()
    assert guest.take(V2, "ark_experiment_config", shape, 8)[1] == struct.pack("<II", 3, 2)
    assert b"epsilon" in snapshot


def test_a_run_that_is_not_there_is_not_found(guest):
    future = guest.handle(V2, "connect_to_experiment", *LOCAL, "nobody")
    guest.wait(V1, "training_handle", future)

    assert guest.take(V1, "training_handle", future, 8)[0] is ErrorCode.NOT_FOUND


def test_a_run_starts_from_a_checkpoint_of_another_one(guest, host, details):
    context = guest.start("first")
    state = INITIAL
    for _ in range(60):
        guest.submit(context, [(n, state, 0.5, n) for n in range(1, 5)])
        guest.proxy._next = 8_192
        state = RUNNING
    run = details("first").run.id
    eventually(lambda: details("first").run.n_opts > 0)
    checkpoint = hives_of(host).client().checkpoint(run).result()
    for name in (run, checkpoint):
        started = guest.handle(
            V2, "start_training_from_checkpoint", *LOCAL, "game", f"from {name}", 3, 2, 0, QUICK,
            name,
        )  # fmt: skip
        guest.joined(started)

    assert checkpoint.startswith(f"{run}@")
    for name in (run, checkpoint):
        assert eventually(lambda name=name: details(f"from {name}").run.n_opts) >= int(
            checkpoint.split("@")[1]
        )


@pytest.mark.parametrize("checkpoint", ["nobody", "nobody@3", "../../etc/passwd"])
def test_a_checkpoint_that_is_not_there_is_not_found(guest, checkpoint):
    future = guest.handle(
        V1, "start_training_from_checkpoint", *LOCAL, "game", "lost", 3, 2, checkpoint
    )
    guest.wait(V1, "training_handle", future)

    assert guest.take(V1, "training_handle", future, 8)[0] is ErrorCode.NOT_FOUND


def test_rows_with_actions_of_their_own_reach_the_memory(guest, host, details):
    context = guest.start("own actions")
    for kind in ("augmented", "demonstration"):  # agents of different kinds are different ones
        for step in range(5):
            push(guest, context, 7, RUNNING if step else INITIAL, given=(0.25, -0.5), api=V3)
            code = guest.proxy.code(V1, f"ml__submit_training_{kind}_observations", context)
            assert code is ErrorCode.SUCCESS
    client, run = hives_of(host).client(), details("own actions").run.id

    assert eventually(lambda: client.memory(run).result().held == 10)


def test_an_id_that_comes_back_in_the_submit_of_its_end_is_not_learned_from(
    guest, host, details, caplog
):
    context = guest.start("back at once")
    rows = [(7, TERMINAL, 1.0, 1.0), (7, INITIAL, 0.0, 1.0), (7, RUNNING, 0.0, 1.0)]
    guest.submit(context, [(7, INITIAL, 0.0, 1.0)])
    code, actions, values = guest.submit(context, rows)
    for state in (INITIAL, TERMINAL, RUNNING):
        push(guest, context, 9, state, given=(0.25, -0.5), api=V3)
    guest.proxy.code(V1, "ml__submit_training_demonstration_observations", context)
    client, run = hives_of(host).client(), details("back at once").run.id

    assert code is ErrorCode.SUCCESS
    assert not actions.any()
    assert not any(values[4:])
    assert eventually(lambda: client.memory(run).result().held == 4)
    assert {number for number in (7, 9) if f"agent {number}: its episode" in caplog.text} == {7, 9}


def test_rows_without_all_actions_are_no_demonstration(guest):
    context = guest.start("no demonstration")
    pointer = guest.proxy.put(np.ones(FEATURES, "f4").tobytes())
    for given in ((), (0.5,)):
        actions = guest.proxy.put(np.array(given, "f4").tobytes())
        row = (context, 1, INITIAL, 0.0, pointer, FEATURES, actions, len(given), 0, 0)
        pushed = guest.proxy.code(V3, "ml__push_training_observation", *row)
        code = guest.proxy.code(V1, "ml__submit_training_demonstration_observations", context)

        assert ErrorCode.INVALID_ARGUMENTS in (pushed, code)
    submitted = submit(guest, context, 0)

    assert submitted is ErrorCode.SUCCESS  # what failed before has left nothing in the queue


def test_a_hive_has_nothing_of_a_run_that_is_not_there(guest):
    shape, text = struct.unpack(
        "<QQ", guest.ask(V2, "experiment_config_from_registry", *LOCAL, "nobody", size=16)[1]
    )
    snapshot = guest.handle(V2, "download_snapshot_from_registry", *LOCAL, "../nobody")
    raw = guest.handle(V4, "raw_experiment_config_from_registry", *LOCAL, "nobody")
    guest.wait(V2, "ark_experiment_config", shape)
    guest.wait(V4, "string", raw)
    taken = [
        guest.take(V2, "ark_experiment_config", shape, 8)[0],
        guest.take(V4, "string", raw, 4)[0],
    ]
    for future in (text, snapshot):
        assert guest.wait(V1, "vec_u8", future, size=8) == 0  # failed ones are ready, and empty
        room = guest.proxy.room(8)
        taken.append(guest.proxy.code(V1, "ml__take_future_vec_u8", future, room, 0))

    assert taken == [ErrorCode.NOT_FOUND] * 4


def test_workers_elsewhere_are_not_to_be_had_by_any_version(guest, caplog):
    third = guest.ask(V3, "start_training", *LOCAL, "game", "w", 3, 2, 1, QUICK, "", 60)[0]
    config = '{"feature_count": 3, "action_count": 2}'
    fifth = guest.ask(V5, "start_training", *LOCAL, "w", config, "game", "module", 60, 2, 0)[0]

    assert [third, fifth] == [ErrorCode.UNAVAILABLE] * 2
    assert "1 remote workers" in caplog.text
    assert "2 remote workers" in caplog.text


@pytest.mark.parametrize(("api", "width"), [(V1, 28), (V3, 64)])
def test_the_metrics_of_a_guest_come_back_with_names_cut_between_characters(guest, api, width):
    name = "a" + "é" * ((width - 2) // 2)  # with "guest/" before it, a character goes over the edge
    context = guest.start(f"metrics of {api}")
    state = INITIAL
    expected = f"guest/{name}".encode()[:width].decode(errors="ignore")

    def told():
        nonlocal state
        for _ in range(20):
            push(guest, context, 1, state, reward=0.5, metrics=[(name, 3.0)], api=api)
            assert submit(guest, context, 1) is ErrorCode.SUCCESS
            state = RUNNING
        return metrics_of(guest, context, api).get(expected)

    assert len(expected.encode()) < width
    assert eventually(told) == pytest.approx(3.0)


def metrics_in(directory):
    """Every metric in a log: its value, and reward and step of its row."""
    for path in sorted(directory.glob("*.rows")):
        data = memoryview(path.read_bytes())
        for record in read_records(data, 0, len(data)):
            columns = record.columns
            for row, _, value in columns.meta.tolist():
                yield value, float(columns.reward[row]), int(columns.step[row])


def test_a_metric_is_kept_with_the_row_that_it_came_with(tmp_path):
    with training_host(tmp_path, wait_for_learner=True, settings=DRAWN) as host:
        guest = TrainingGuest(host)
        context = guest.start("rows of metrics")
        for step in range(300):
            guest.proxy._next = 8_192
            for agent in range(1, 6):
                reward = float(10 * step + agent)
                if agent == 2 and step % 3 == 0:
                    reward = float("nan")  # does not count, and takes no metric of others with it
                told = [("mine", reward)] if agent in (3, 5) else []
                state = RUNNING if step else INITIAL
                push(guest, context, agent, state, reward=reward, metrics=told)
            assert submit(guest, context, 5) is ErrorCode.SUCCESS
        guest.guest.close()
        run = hives_of(host).client().runs().result()[0]
        eventually(lambda: hives_of(host).client().run(run.id).result().rows == 1_400)
        found = list(metrics_in(tmp_path / "runs" / run.id / "rows"))

    assert sorted(found) == sorted(
        (10.0 * step + agent, 10.0 * step + agent, step) for step in range(300) for agent in (3, 5)
    )


def test_the_rows_of_metrics_are_told_apart_where_one_policy_answers_many_guests(tmp_path):
    hive = EmbeddedHive(tmp_path, {"spare": False})
    player = Player(grant_of(hive), settings=replace(SETTINGS, **DRAWN))
    guests, agents = 4, 8  # of each; their ids are the same
    ids = np.tile(np.arange(1, agents + 1, dtype=np.uint64), guests)
    keys = np.repeat(np.arange(guests, dtype=np.uint64), agents)
    every = player._batch
    batch = Batch(every.rows, every.features, every.actions, every.values, keys)
    for step in range(100):
        batch.rows["id"], batch.rows["reward"] = ids, np.arange(32) + 100 * step
        batch.rows["state"] = RUNNING if step else INITIAL
        player.policy.act(batch)
        for guest in range(guests):
            own = slice(agents * guest, agents * (guest + 1))
            part = Batch(batch.rows[own], *(a[own] for a in (batch.features, batch.actions)),
                         batch.values[own], keys[own][0])  # fmt: skip
            value = float(batch.rows["reward"][own][guest])
            player.part.note(part, MetadataLog.of([Metadata(guest, "mine", value)]))
        player.part.held()
    player.frames = 100
    eventually(player.settled)
    found = list(metrics_in(tmp_path / "runs" / player.run.id / "rows"))
    player.close()
    hive.close()

    assert sorted(found) == sorted(
        (100.0 * step + 9 * guest, 100.0 * step + 9 * guest, step)
        for step in range(100)
        for guest in range(guests)
    )


def test_one_client_stops_a_run_for_all_and_the_others_hear_of_it(guest, host, details):
    context = guest.start("stopped for all")
    run = details("stopped for all").run.id
    other = TrainingGuest(host)
    joined = other.joined(other.handle(V2, "connect_to_experiment", *LOCAL, run))
    stopped = guest.proxy.code(V2, "ml__stop_experiment", context)

    def refused():
        other.proxy._next = 8_192
        code, _, _ = other.submit(joined, [(1, INITIAL, 0.0, 1.0)])
        return code is ErrorCode.NOT_FOUND

    assert stopped is ErrorCode.SUCCESS
    assert eventually(refused)
    assert guest.proxy.code(V1, "ml__stop_training", context) is ErrorCode.NOT_FOUND
    assert eventually(lambda: details("stopped for all").run.status.value == "stopped")
    other.guest.close()


def test_rows_that_are_not_finite_are_answered_with_zeros_and_told_once(
    guest, host, details, caplog
):
    context = guest.start("broken")
    rows = [(1, INITIAL, 0.0, 1.0), (2, INITIAL, 0.0, 1.0)]
    guest.submit(context, rows)
    broken = []
    for _ in range(3):
        _, actions, _ = guest.submit(context, [(1, RUNNING, 0.0, np.nan), (2, RUNNING, 0.0, 1.0)])
        broken.append(actions)
    _, actions, _ = guest.submit(context, [(2, RUNNING, np.inf, 1.0)])
    client, run = hives_of(host).client(), details("broken").run.id
    told = [record for record in caplog.records if "not finite" in record.getMessage()]

    assert not any(found[0].any() for found in broken)
    assert all(found[1].any() for found in broken)
    assert not actions.any()
    assert len(told) == 2
    assert eventually(lambda: client.memory(run).result().held == 5)


@pytest.mark.learns
def test_the_guests_of_a_fleet_learn_one_run_together(host):
    with host.fleet(GUEST_FILE, 4) as fleet:

        def all_train():
            fleet.update()
            return all(guest.call("mode") == 1 for guest in fleet.guests)

        eventually(all_train)
        for _ in range(30):
            fleet.update()
        runs = [
            run for run in hives_of(host).client().runs().result() if run.name.startswith("reach")
        ]
        failures = [guest.failure for guest in fleet.guests]
        rows = sum(run.rows for run in runs)

    assert len(runs) >= 1
    assert [run.sessions for run in runs] == [1] * len(runs)
    assert rows > 0
    assert failures == [None] * 4
