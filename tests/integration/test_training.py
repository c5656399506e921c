"""Guests that learn: real wasm, a real hive, a real learner."""

import re
import struct

import numpy as np
import pytest
from tests.integration.command_line import GUESTS, arkml
from tests.integration.hive_service import training_host
from tests.integration.training_guest import (
    ACTIONS,
    FEATURES,
    LOCAL,
    QUICK,
    V1,
    V2,
    V3,
    TrainingGuest,
)
from tests.waiting import eventually

from arkml import HiveGrant, Host
from arkml.abi.codes import EpisodeState, ErrorCode, SnapshotFormat
from arkml.guests.guest import calls_of
from arkml.host import hives_of

TRAIN, APPLET = (GUESTS / "ark_api" / f"{kind}_train_016.wasm" for kind in ("cmdlet", "applet"))


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    with training_host(tmp_path_factory.mktemp("hive"), wait_for_learner=True) as made:
        yield made


@pytest.fixture
def guest(host):
    made = TrainingGuest(host)
    yield made
    made.guest.close()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (LOCAL, True),
        (("", 0), True),
        (("http://localhost", 12356), True),
        (("http://localhost:12356/", 0), True),
        (("LOCALHOST", 12356), True),
        (("localhost.", 12356), True),
        (("localhost:12356", 12356), True),
        (("localhost", 0), True),
        (("127.0.0.1", 12356), True),
        (("127.8.8.8", 12356), True),
        (("::1", 12356), True),
        (("https://[::1]:12356", 0), True),
        (("hive.example", 12356), False),
        (("localhost", 12357), False),
        (("localhost:80", 12356), False),
        (("localhost@hive.example", 12356), False),
        (("http://[", 12356), False),
        (("", 12356), False),
    ],
)
def test_the_configured_hive_answers_and_others_are_not_asked(guest, address, expected):
    future = guest.handle(V1, "can_connect_to_hive", *address)
    guest.wait(V1, "bool", future)

    assert guest.take(V1, "bool", future, 1) == (ErrorCode.SUCCESS, bytes([expected]))
    if not expected:
        assert guest.ask(V1, "list_experiments", *address)[0] is ErrorCode.UNAVAILABLE


def test_a_run_is_started_listed_and_left(guest):
    context = guest.start("first")
    listed = guest.vector(
        V1, "vec_experiment_info", guest.handle(V1, "list_experiments", *LOCAL), 232
    )
    again = guest.start("first")
    code, features = guest.ask(V1, "experiment_feature_count", context, size=4)
    _, actions = guest.ask(V1, "experiment_action_count", context, size=4)

    assert b"first" in listed
    assert (code, features[0], actions[0]) == (ErrorCode.SUCCESS, FEATURES, ACTIONS)
    assert again != context
    relisted = guest.vector(
        V1, "vec_experiment_info", guest.handle(V1, "list_experiments", *LOCAL), 232
    )
    assert b"first-2" in relisted
    assert guest.proxy.code(V1, "ml__stop_training", context) is ErrorCode.SUCCESS
    assert guest.proxy.code(V2, "ml__stop_experiment", again) is ErrorCode.SUCCESS
    assert guest.proxy.code(V1, "ml__stop_training", again) is ErrorCode.NOT_FOUND


def test_the_configuration_comes_back_byte_for_byte(guest):
    context = guest.start("configured")
    code, pair = guest.ask(V2, "experiment_config", context, size=16)
    shape, text = struct.unpack("<QQ", pair)
    guest.wait(V2, "ark_experiment_config", shape)

    assert code is ErrorCode.SUCCESS
    assert guest.vector(V1, "vec_u8", text) == QUICK.encode()
    assert guest.take(V2, "ark_experiment_config", shape, 8)[1] == struct.pack("<II", 3, 2)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ('{"arkml": {"hidden": "wide"}}', "hidden is 'wide'"),
        ('{"arkml": {"gamma": 1.5}}', "gamma is 1.5"),
        ('{"arkml": {"algorithm": ""}}', "algorithm is ''"),
        ('{"arkml": [1]}', '"arkml" is [1]'),
        (f'{{"arkml": {{"alpha": 1{"0" * 400}}}}}', "alpha is 1000"),
        (f'{{"arkml": {{"gamma": -1{"0" * 400}}}}}', "gamma is -1000"),
    ],
)
def test_settings_that_make_no_sense_are_named_and_refused(guest, caplog, config, named):
    code, _ = guest.ask(V2, "start_training", *LOCAL, "game", "wrong", 3, 2, 0, config)

    assert code is ErrorCode.INVALID_ARGUMENTS
    assert named in caplog.text


def test_remote_workers_are_not_to_be_had(guest, caplog):
    code, _ = guest.ask(V2, "start_training", *LOCAL, "game", "workers", 3, 2, 4, QUICK)

    assert code is ErrorCode.UNAVAILABLE
    assert "4 remote workers" in caplog.text


def test_submits_are_answered_and_learned_from(guest):
    context = guest.start("learning")
    state = EpisodeState.INITIAL
    for _ in range(60):
        code, actions, _ = guest.submit(context, [(n, state, 0.5, n) for n in range(1, 5)])
        state = EpisodeState.RUNNING
        assert code is ErrorCode.SUCCESS
        assert np.isfinite(actions).all()
        assert (np.abs(actions) <= 1).all()
        assert actions.any()
        guest.proxy._next = 8_192  # what was put before is not needed any more
    _, ended, _ = guest.submit(
        context, [(1, EpisodeState.TERMINAL, 1.0, 1), (2, state, 0.0, np.nan), (3, state, 0.0, 1)]
    )
    snapshot = guest.vector(V1, "vec_u8", guest.handle(V1, "download_snapshot", context))

    assert not ended[0].any()
    assert not ended[1].any()
    assert ended[2].any()
    model = calls_of(guest.guest).services.handler(V1)
    assert model.start_inference(FEATURES, ACTIONS, snapshot, SnapshotFormat.ONNX)
    metrics = guest.vector(V3, "vec_metric", guest.handle(V3, "download_metrics", context), 72)
    assert len(metrics) % 72 == 0


def test_a_start_that_is_dropped_leaves_its_run(guest, host):
    future = guest.handle(V2, "start_training", *LOCAL, "game", "dropped", 3, 2, 0, QUICK)
    guest.proxy.code(V1, "ml__drop_future", future)
    client = hives_of(host).client()

    def is_stopped():
        runs = {run.name: run.status.value for run in client.runs().result()}
        return runs.get("dropped") == "stopped"

    assert eventually(is_stopped)


def test_two_guests_learn_one_run_and_the_last_one_stops_it(guest, host):
    context = guest.start("shared")
    client = hives_of(host).client()
    run = next(run for run in client.runs().result() if run.name == "shared")
    other = TrainingGuest(host)
    joined = other.joined(other.handle(V2, "connect_to_experiment", *LOCAL, run.id))
    guest.proxy.code(V1, "ml__stop_training", context)
    code, actions, _ = other.submit(joined, [(1, EpisodeState.INITIAL, 0.0, 1.0)])

    assert code is ErrorCode.SUCCESS
    assert actions.any()
    assert client.run(run.id).result().status.value == "running"
    other.guest.close()
    assert eventually(lambda: client.run(run.id).result().status.value == "stopped")


@pytest.mark.learns
def test_the_cmdlet_of_the_published_crates_learns_and_ends_with_0():
    run = arkml("run", TRAIN, "--cmdlet", "localhost 12356 800", "--hive", "embedded")
    rated = re.search(r"eval (-?[\d.]+)", run.err)

    assert run.status == 0, run.err
    assert "done" in run.err
    assert float(rated[1]) > -20  # nobody steering makes -37


@pytest.mark.learns
def test_the_applet_of_the_published_crates_learns_without_being_held_up():
    with Host(hive=HiveGrant(settings={"hidden": 64, "batch_size": 256})) as host:
        guest = host.load(APPLET)

        def status():
            guest.update()
            return guest.call("status")

        ended = eventually(status, 90, interval=0.004)

    assert ended == 1
