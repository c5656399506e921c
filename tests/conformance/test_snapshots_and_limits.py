"""What a session needs to start, and how much of everything a guest may have."""

import pytest
from tests.conformance import models
from tests.conformance.echo import Echo
from tests.conformance.scripted_guest import ScriptedGuest, module, step
from tests.conformance.scripted_session import FEATURES, V1, V3, ScriptedSession, start

from arkml import Host
from arkml.abi.codes import ErrorCode, SnapshotFormat
from arkml.guests.guest import calls_of
from arkml.limits import Limits

WRONG, LATER = ErrorCode.INVALID_ARGUMENTS, ErrorCode.UNAVAILABLE


def test_a_snapshot_that_does_not_fit_starts_nothing(run):
    model = models.same(3)
    run.put(0x200, model)
    name = V1 + "start_inference"
    for shape in ((4, 3), (3, 4), (0, 3), (3, 0), (0xFFFF_FFFF, 3), (3, 0xFFFF_FFFF)):
        assert run.value(8, name, *shape, 0x200, len(model), 0) == (WRONG, None)
    assert run.value(8, name, 3, 3, 0x200, len(model), 1) == (WRONG, None)
    assert run.value(8, name, 3, 3, 0x200, len(model) - 1, 0) == (WRONG, None)
    assert calls_of(run.guest).services.live_handles == 0


def test_a_cervo_container_is_known_by_its_first_bytes(run):
    model = b"CRVO\0\0\0\1" + models.same(3)
    run.put(0x200, model)
    for form in (SnapshotFormat.CERVO, SnapshotFormat.ONNX):
        place = (3, 3, 0x200, len(model), form)
        session = ScriptedSession(run, run.handle(8, V1 + "start_inference", *place), 3)
        session.push(1, [1, 2, 3])

        assert session.submit(1) == (0, [[1, 2, 3]], [0])


def test_onnx_is_no_cervo_as_guests_in_use_expect(run):
    model = models.same(3)
    run.put(0x200, model)
    place = (3, 3, 0x200, len(model), SnapshotFormat.CERVO)

    assert run.value(8, V1 + "start_inference", *place) == (WRONG, None)


@pytest.fixture
def limited():
    """A scripted guest of a host with small limits."""
    limits = Limits(handles=4, futures=3, rows=100, snapshot_bytes=2000, metadata_bytes=300)
    with Host(limits=limits) as host:
        yield ScriptedGuest(host.load(module(), name="scripted"))


def test_the_session_over_the_limit_is_unavailable(limited):
    sessions = [start(limited, models.same(3), 3, 3) for _ in range(4)]
    model = models.same(3)
    place = (3, 3, 0x200, len(model), 0)

    assert limited.value(8, V1 + "start_inference", *place) == (LATER, None)
    assert sessions[0].stop() == 0
    assert start(limited, model, 3, 3).push(1, [1, 2, 3]) == 0


def test_the_future_over_the_limit_is_unavailable(limited):
    name = V1 + "can_connect_to_hive"
    futures = [limited.handle(8, name, 4, 0, 0) for _ in range(3)]

    assert limited.value(8, name, 4, 0, 0) == (LATER, None)
    assert limited(step(V1 + "drop_future", futures[0])) == [0]
    assert limited.handle(8, name, 4, 0, 0) not in futures


def test_the_row_over_the_limit_is_refused_and_the_others_are_answered(limited):
    session = start(limited, models.same(3), 3, 3)
    codes = [session.push(agent, [agent, 0, 0]) for agent in range(103)]
    code, actions, _ = session.submit(100)

    assert codes == [0] * 100 + [WRONG] * 3
    assert (code, actions) == (0, [[agent, 0, 0] for agent in range(100)])
    assert session.push(1, [1, 2, 3]) == 0


def test_metadata_over_the_limit_is_refused_and_the_rows_before_it_are_answered(limited):
    session = start(limited, models.same(3), 3, 3)
    session.push(1, [1, 2, 3])
    items = 300 // 72 + 1
    name = V3 + "push_inference_observation"
    codes = limited(step(name, session.handle, 2, 0, 0.0, FEATURES, 3, 0x2000, items))

    assert codes == [WRONG]
    assert session.submit(1) == (0, [[1, 2, 3]], [0])


def test_a_snapshot_over_the_limit_is_refused(limited):
    place = (3, 3, 0x200, 2001, 0)

    assert limited.value(8, V1 + "start_inference", *place) == (WRONG, None)


@pytest.mark.parametrize("rows", [1, 63, 64, 65])
def test_the_row_limit_is_exact(rows):
    with Host(limits=Limits(rows=rows)) as host:
        run = ScriptedGuest(host.load(module(), name="scripted"))
        handle = calls_of(run.guest).services.sessions.open_inference(Echo(1, 1), 1, 1)
        session = ScriptedSession(run, handle, 1)
        codes = [session.push(agent, [0.0]) for agent in range(rows + 1)]

        assert codes == [0] * rows + [WRONG]
