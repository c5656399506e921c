"""The bytes that ml-v5 submits answer: their layout, what they cannot express, and failures."""

import logging
import struct

import numpy as np
import pytest
from tests.conformance import models as build
from tests.conformance.checked_guest import MODEL as LINEAR
from tests.conformance.echo import Echo
from tests.conformance.scripted_guest import MODEL, PAGE, ScriptedGuest, module, step

from arkml import Host
from arkml.abi.codes import EpisodeState, ErrorCode
from arkml.guests.guest import calls_of
from arkml.limits import Limits
from arkml.sessions.session_table import TrainingStart
from arkml.testing import RecordingSink

START = "ark-ml-v5.ml__start_inference"
INITIAL, RUNNING = EpisodeState.INITIAL, EpisodeState.RUNNING
WRONG = ErrorCode.INVALID_ARGUMENTS
END = 4 * PAGE
FLOATS = 0x1000


class Session:
    """A session of ml-v5 whose rows are pushed by v3."""

    def __init__(self, run, handle, kind):
        self.run = run
        self.handle = handle
        self._push = f"ark-ml-v3.ml__push_{kind}_observation"
        self.submit_name = f"ark-ml-v5.ml__submit_{kind}_observations"
        self._given = (0, 0) if kind == "training" else ()

    def push(self, agent, row, state=INITIAL):
        self.run.put(FLOATS, struct.pack(f"<{len(row)}f", *row))
        place = (FLOATS, len(row), *self._given, 4, 0)
        (code,) = self.run(step(self._push, self.handle, agent, state, 0.0, *place))
        return code

    def submit(self):
        """The code, and the rows: id and actions, or None for actions that are not there."""
        code, data = self.run.vector(self.submit_name, self.handle)
        return code, None if code else answers(data)


class Holding(RecordingSink):
    """A run that lets a guest go on when it has been asked so many times."""

    def __init__(self, looks):
        super().__init__()
        self.looks = looks

    def held(self):
        return self._look

    def _look(self, timeout):
        assert timeout > 0
        self.looks -= 1
        return self.looks == 0


def answers(data):
    version, count, width = struct.unpack_from("<BBH", data)
    assert version == 0
    rows, at = [], 4
    for _ in range(count):
        agent, has_data = struct.unpack_from("<QB", data, at)
        assert has_data in (0, 1)
        at += 9
        actions = None
        if has_data:
            actions = list(struct.unpack_from(f"<{width}f", data, at))
            at += 4 * width
        rows.append((agent, actions))
    assert at == len(data)
    return width, rows


def start(run, model=LINEAR, form=0):
    run.put(MODEL, model)
    handle = run.handle(8, START, MODEL, len(model), form)
    return Session(run, handle, "inference")


@pytest.fixture(params=["inference", "training"])
def session(run, request):
    """A session of either kind with 3 features and 2 actions, `row + action / 16`."""
    policy = Echo(3, 2)
    sessions = calls_of(run.guest).services.sessions
    if request.param == "training":
        handle = sessions.open_training(TrainingStart(policy, 3, 2, RecordingSink()))
    else:
        handle = sessions.open_inference(policy, 3, 2)
    found = Session(run, handle, request.param)
    found.policy = policy
    return found


def test_a_snapshot_says_its_own_shape(run):
    session = start(run)

    assert session.push(1, [1, 2, 3]) == 0
    assert session.push(2, [1, 2]) == WRONG
    assert session.submit() == (0, (2, [(1, [4.0, 5.0])]))


def test_an_answer_has_a_header_and_a_row_for_each_agent(session):
    agents = [7, (1 << 64) - 1, 7]
    assert [session.push(agent, [0, 0, 0]) for agent in agents] == [0, 0, 0]
    rows = [(agent, [row, row + 1 / 16]) for row, agent in enumerate(agents)]

    assert session.submit() == (0, (2, rows))


def test_the_bytes_of_an_answer_are_packed(session):
    session.push(0x0102030405060708, [0, 0, 0])
    session.push(9, [0, 0, 0], EpisodeState.TERMINAL)
    code, data = session.run.vector(session.submit_name, session.handle)
    expected = struct.pack("<BBHQBff", 0, 2, 2, 0x0102030405060708, 1, 0.0, 1 / 16)

    assert code == 0
    assert data == expected + struct.pack("<QB", 9, 0)


def test_rows_that_ended_have_no_actions(session):
    for agent, state in enumerate(EpisodeState):
        assert session.push(agent, [0, 0, 0], state) == 0
    code, (_, rows) = session.submit()
    has_actions = {EpisodeState(agent).name: actions is not None for agent, actions in rows}

    assert code == 0
    assert has_actions == {
        "INITIAL": True,
        "RUNNING": True,
        "TERMINAL": False,
        "INTERRUPTED": False,
    }


def test_an_empty_answer_is_a_header(session):
    code, data = session.run.vector(session.submit_name, session.handle)

    assert (code, data) == (0, struct.pack("<BBH", 0, 0, 2))


def test_255_rows_are_counted(session):
    assert {session.push(agent, [0, 0, 0]) for agent in range(255)} == {0}
    code, (width, rows) = session.submit()

    assert (code, width, len(rows)) == (0, 2, 255)
    assert rows[254] == (254, [254.0, 254 + 1 / 16])


@pytest.mark.parametrize("count", [256, 257, 511, 512])
def test_more_than_255_rows_are_refused_with_a_log_line_and_forgotten(session, caplog, count):
    assert {session.push(agent, [0, 0, 0]) for agent in range(count)} == {0}
    with caplog.at_level(logging.WARNING):
        refused = session.submit()

    assert refused == (WRONG, None)
    assert any("255" in record.message for record in caplog.records)
    assert session.policy.batches == []
    assert session.submit() == (0, (2, []))
    session.push(1, [0, 0, 0])
    assert session.submit() == (0, (2, [(1, [0.0, 1 / 16])]))


@pytest.mark.parametrize("pointer", [END - 3, END, 0xFFFF_FFFF], ids=hex)
def test_a_bad_pointer_for_the_size_empties_the_queue(session, pointer):
    session.push(1, [0, 0, 0])
    codes = session.run(step(session.submit_name, session.handle, pointer))

    assert codes == [WRONG]
    assert session.submit() == (0, (2, []))


def test_a_submit_whose_policy_failed_empties_the_queue(session):
    session.policy.failure = RuntimeError("a bug")
    session.push(1, [0, 0, 0])
    failed = session.submit()
    session.policy.failure = None

    assert failed == (ErrorCode.INTERNAL_ERROR, None)
    assert session.submit() == (0, (2, []))


def test_a_refused_push_leaves_the_queue_as_it_is(session):
    session.push(1, [0, 0, 0])
    assert session.push(2, [0, 0]) == WRONG
    assert session.push(3, [0, 0, 0], 4) == WRONG
    session.push(4, [0, 0, 0])
    code, (_, rows) = session.submit()

    assert (code, [agent for agent, _ in rows]) == (0, [1, 4])


def test_submits_of_v1_and_v5_empty_the_same_queue(session):
    session.push(1, [0, 0, 0])
    session.submit()
    session.push(2, [0, 0, 0])
    name = session.submit_name.replace("v5", "v1")

    assert session.run(step(name, session.handle, 0x4000, 2, 0x4010, 1)) == [0]
    assert session.submit() == (0, (2, []))


def test_what_is_not_finite_is_counted_and_goes_out_as_zeros(run, caplog):
    session = start(run, build.same(3))
    with caplog.at_level(logging.WARNING, "arkml.guest"):
        for agent in range(2):
            session.push(agent, [np.nan, 2, np.inf])
            answer = session.submit()

            assert answer == (0, (3, [(agent, [0.0, 2.0, 0.0])]))
    statistics = run.guest.statistics
    told = [r.message for r in caplog.records if "finite" in r.message and "action" in r.message]

    assert statistics.non_finite_features == 4
    assert statistics.non_finite_actions == 4
    assert len(told) == 1


@pytest.mark.parametrize("version", [1, 5])
def test_a_submit_returns_when_the_run_lets_the_guest_go_on(run, version):
    sink = Holding(looks=3)
    handle = calls_of(run.guest).services.sessions.open_training(
        TrainingStart(Echo(3, 2), 3, 2, sink)
    )
    session = Session(run, handle, "training")
    session.push(1, [0, 0, 0])
    where = (0x4000, 2, 0x4010, 1) if version == 1 else (0x4000,)
    codes = run(step(f"ark-ml-v{version}.ml__submit_training_observations", handle, *where))

    assert codes == [0]
    assert sink.looks == 0


def test_submits_and_rows_are_counted_whichever_version_answers(session):
    for version in (1, 5):
        session.push(1, [0, 0, 0])
        if version == 5:
            session.submit()
        else:
            name = session.submit_name.replace("v5", "v1")
            session.run(step(name, session.handle, 0x4000, 2, 0x4010, 1))
    statistics = session.run.guest.statistics

    assert (statistics.submits, statistics.rows) == (2, 2)


@pytest.mark.parametrize(("width", "works"), [(16_383, True), (16_384, False)])
def test_16384_actions_cannot_be_carried(run, width, works):
    model = build.linear(np.ones((1, width)))
    run = type(run)(run.guest, script=3 * PAGE)
    run.put(PAGE, model)
    code, _ = run.value(8, START, PAGE, len(model), 0)

    assert code == (0 if works else WRONG)


def test_a_bad_snapshot_starts_nothing(run):
    run.put(MODEL, b"no model")
    codes = [run.value(8, START, MODEL, size, form)[0] for size, form in ((8, 0), (0, 0), (8, 2))]

    assert codes == [WRONG] * 3
    assert calls_of(run.guest).services.live_handles == 0


def test_the_row_limit_comes_before_the_count_of_a_byte():
    with Host(limits=Limits(rows=3)) as host:
        run = ScriptedGuest(host.load(module(), name="scripted"))
        handle = calls_of(run.guest).services.sessions.open_inference(Echo(3, 2), 3, 2)
        session = Session(run, handle, "inference")
        codes = [session.push(agent, [0, 0, 0]) for agent in range(4)]

        assert codes == [0, 0, 0, WRONG]
        assert len(session.submit()[1][1]) == 3
