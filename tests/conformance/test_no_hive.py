"""A host without a hive: one function says so, the others are Unavailable, sessions still end."""

import struct

import pytest
from tests.conformance.arguments import ASKING, arrange
from tests.conformance.checked_guest import ACTIONS, FEATURES, ROWS, name_of

from arkml.abi.codes import ErrorCode
from arkml.sessions.session import Origin

REFUSED = [row for row in ROWS if row[1].name in ASKING]


def test_can_connect_to_hive_resolves_to_false(checked):
    url = checked.put(b"localhost")
    future = checked.handle("ark-ml-v1.ml__can_connect_to_hive", url, 9, 12_356)
    ready = checked.fetch("ark-ml-v1.ml__poll_future_bool", future)
    room = checked.room(1)
    code = checked.call("ark-ml-v1.ml__take_future_bool", future, room, writes=[(room, 1)])

    assert (ready, code, checked.read(room, 1)) == (b"\1", 0, b"\0")
    assert checked.alive() == (0, 0)


@pytest.mark.parametrize("address", [(b"", 0), (b"localhost", 12_356), (b"https://hive.test", 443)])
@pytest.mark.parametrize(("api", "function"), REFUSED, ids=[name_of(*row) for row in REFUSED])
def test_whatever_needs_a_hive_is_unavailable_and_writes_nothing(checked, api, function, address):
    url, port = address
    call = arrange(checked, api, function)
    if "hive_port" in call.values:
        call.values["hive_url_ptr"] = checked.put(url)
        call.values["hive_url_len"] = len(url)
        call.values["hive_port"] = port
    call.rooms.clear()
    alive = checked.alive()

    assert checked.make(api, function, call) == ErrorCode.UNAVAILABLE
    assert checked.alive() == alive


def test_a_training_session_pushes_submits_and_stops_without_a_hive(checked):
    handle = checked.training()
    counts = [
        checked.fetch(f"ark-ml-v1.ml__experiment_{what}_count", handle)
        for what in ("feature", "action")
    ]
    assert checked.push(handle, training=True) == 0
    room = checked.room(4 * ACTIONS + 4)
    place = (room, ACTIONS, room + 4 * ACTIONS, 1)
    submit = "ark-ml-v1.ml__submit_training_observations"

    assert counts == [struct.pack("<I", FEATURES), struct.pack("<I", ACTIONS)]
    assert checked.call(submit, handle, *place, writes=[(room, 12)]) == 0
    assert struct.unpack("<3f", checked.read(room, 12)) == (0.0, 1 / 16, 0.0)
    assert checked.call("ark-ml-v1.ml__stop_training", handle) == 0
    assert checked.sink.left == [False]
    assert checked.call("ark-ml-v1.ml__stop_training", handle) == ErrorCode.NOT_FOUND


def test_stopping_an_experiment_ends_it_for_all_and_the_stop_that_follows_is_a_code(checked):
    handle = checked.training()
    first = checked.call("ark-ml-v2.ml__stop_experiment", handle)
    then = checked.call("ark-ml-v1.ml__stop_training", handle)

    assert (first, then) == (0, ErrorCode.NOT_FOUND)
    assert checked.sink.left == [True]


@pytest.mark.parametrize("origin", Origin)
def test_rows_with_actions_reach_the_run_as_they_were_pushed(checked, origin):
    handle = checked.training()
    push = "ark-ml-v1.ml__push_training_observation"
    for row in range(3):
        features = checked.put(struct.pack("<3f", row, row + 1, row + 2))
        actions = checked.put(struct.pack("<2f", -row, 0.5))
        step = (row, 0, row / 2, features, FEATURES, actions, ACTIONS, 0.25)
        assert checked.call(push, handle, *step) == 0
    submit = f"ark-ml-v1.ml__submit_training_{origin.value}_observations"

    assert checked.call(submit, handle) == 0
    ((seen, came_from),) = checked.sink.accepted
    assert came_from is origin
    assert seen.rows["id"].tolist() == [0, 1, 2]
    assert seen.rows["reward"].tolist() == [0.0, 0.5, 1.0]
    assert seen.rows["length"].tolist() == [0.25] * 3
    assert seen.features.tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert seen.pushed_actions.tolist() == [[0, 0.5], [-1, 0.5], [-2, 0.5]]
    assert checked.call(submit, handle) == 0
    assert [len(batch.rows) for batch, _ in checked.sink.accepted if len(batch.rows)] == [3]
