"""A guest under test beside its plain decoder, with a record of what its policies saw."""

from threading import RLock

import numpy as np
from tests.conformance.decoder import PAGE, Decoder, is_refused, reply
from tests.conformance.random_steps import CELLS, FIRST_PAGES, MAX_CELLS, SCRIPT, TAGS, RandomSteps
from tests.conformance.scripted_guest import ScriptedGuest

from arkml.errors import Unavailable
from arkml.guests.guest import calls_of
from arkml.limits import Limits
from arkml.policies.demands import Demands, Snapshot
from arkml.sessions import results
from arkml.sessions.session import Session
from arkml.sessions.session_table import TrainingStart
from arkml.testing import RecordedBatch, RecordingSink

LIMITS = Limits(rows=300, run_seconds=None)


class Recorder:
    """The policy of one session: it keeps what it sees and answers by `reply`."""

    def __init__(self, num_features, num_actions, handles):
        self.num_features = num_features
        self.num_actions = num_actions
        self.seen = []
        self.interruption = None
        self._turns = 0
        self._handles = handles
        self._queue = None

    def act(self, batch):
        if self._queue is None:
            sessions = (item for _, item in self._handles if isinstance(item, Session))
            self._queue = next(item.queue for item in sessions if item.policy is self)
        turn, self._turns = self._turns, self._turns + 1
        self.seen.append(RecordedBatch.of(batch, self._queue.metadata()))
        if self.interruption is not None:
            raise self.interruption
        if is_refused(turn):
            raise Unavailable("not this one")
        batch.actions[:], batch.values[:] = reply(turn, len(batch), self.num_actions)

    def forget(self, key):
        pass


class DifferentialGuest:
    """One guest under test, the decoder of it, and the policies by tag."""

    def __init__(self, host, program, chance):
        self.guest = host.load(program)
        self.run = ScriptedGuest(self.guest, script=SCRIPT)
        self.policies = {}
        self.sinks = {}
        state = calls_of(self.guest).services
        state.library = self
        self.demands = Demands(RLock())
        self._handles = state.handles
        memory = bytearray(chance.randbytes(FIRST_PAGES * PAGE))
        memory[:TAGS] = b"?" * TAGS
        memory[CELLS - 8 : CELLS] = bytes(8)
        for tag in range(MAX_CELLS):
            memory[TAGS + 4 * tag : TAGS + 4 * tag + 4] = tag.to_bytes(4, "little")
        self.guest.write_memory(0, bytes(memory))
        self.decoder = Decoder(memory, rows=LIMITS.rows)
        self.random_steps = RandomSteps(chance, self.decoder, self.future)

    takes_snapshots = True

    def of_session(self, behaviors, num_features, num_actions, declared=()):  # noqa: ARG002
        return self

    def prepare(self):
        pass

    def keep(self, snapshot, digest):
        return Snapshot(bytes(snapshot), digest)

    def load(self, snapshot, snapshot_format, num_features, num_actions, *declared):  # noqa: ARG002
        tag = int.from_bytes(snapshot, "little")
        policy = self.policies[tag] = Recorder(num_features, num_actions, self._handles)
        return policy

    def future(self, tag, num_features, num_actions):
        policy = self.policies[tag] = Recorder(num_features, num_actions, self._handles)
        sink = self.sinks[tag] = RecordingSink()
        handle, future = calls_of(self.guest).services.futures.open(results.TRAINING)
        future.resolve(TrainingStart(policy, num_features, num_actions, sink))
        return handle

    def check(self, codes, answers):
        """Codes, untouched memory, handles and everything that policies and sinks saw."""
        wrong = [k for k, pair in enumerate(zip(codes, answers, strict=True)) if pair[0] != pair[1]]
        assert not wrong, f"step {wrong[0]}: {answers[wrong[0]]}, expected {codes[wrong[0]]}"
        memory = self.guest.read_memory(0, len(self.decoder.memory))
        end = (FIRST_PAGES - 1) * PAGE
        assert memory[TAGS:SCRIPT] == self.decoder.memory[TAGS:SCRIPT]
        assert memory[end:] == self.decoder.memory[end:]
        self.check_cells(memory)
        for session in self.decoder.all:
            self.check_session(session)

    def check_cells(self, memory):
        used = CELLS + 8 * len(self.random_steps.cells)
        assert memory[: CELLS - 8] == b"?" * (CELLS - 8)
        assert memory[used:TAGS] == b"?" * (TAGS - used)
        handles = np.frombuffer(memory[CELLS:used], "<u8")
        assert len(np.unique(handles)) == len(handles)
        assert 0 not in handles

    def check_session(self, session):
        seen = self.policies[session.tag].seen
        assert len(seen) == len(session.submitted)
        for found, rows in zip(seen, session.submitted, strict=True):
            compare(found, rows, session)
        session.submitted = []
        seen.clear()
        if session.training:
            accepted = self.sinks[session.tag].accepted
            rows = [batch for batch in session.handed_over if batch]
            accepted = [batch for batch, _ in accepted if len(batch.rows)]
            assert len(accepted) == len(rows)
            for found, expected in zip(accepted, rows, strict=True):
                compare(found, expected, session)
            session.handed_over = []
            self.sinks[session.tag].accepted = []


def compare(found, rows, session):
    """Whether a batch holds exactly these rows."""
    assert len(found.rows) == len(rows)
    assert found.rows["id"].tolist() == [row.agent for row in rows]
    assert found.rows["state"].tolist() == [row.state for row in rows]
    assert words(found.rows["reward"]) == [row.reward for row in rows]
    assert words(found.rows["length"]) == [row.length for row in rows]
    assert found.rows["given"].tolist() == [len(row.given) // 4 for row in rows]
    assert found.rows["metadata"].tolist() == [len(row.metadata) for row in rows]
    assert found.features.shape == (len(rows), session.num_features)
    assert found.features.tobytes() == b"".join(row.features for row in rows)
    if session.training:
        for place, row in enumerate(rows):
            if row.given:
                assert found.pushed_actions[place].tobytes() == row.given
    items = [(k, item) for k, row in enumerate(rows) for item in row.metadata]
    assert [place for place, _, _ in found.metadata] == [k for k, _ in items]
    values = np.array([value for _, _, value in found.metadata], "<f4")
    expected = np.frombuffer(b"".join(item[-4:] for _, item in items), "<f4")
    np.testing.assert_array_equal(values, expected)


def words(column):
    return np.ascontiguousarray(column).view("<u4").tolist()
