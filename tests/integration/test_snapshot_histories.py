"""Random histories of a guest beside a plain model of it: what a snapshot brings back."""

import copy
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.integration.snapshot_guest import MANY_SESSIONS, MODELS, width_of

from arkml import GuestSnapshot, Host

NAMES = [name for name in MODELS if name != "noisy"]  # noise is another test's
SLOTS = st.integers(0, 3)
IDS = st.integers(1, 3)


@dataclass
class Opened:
    """A session: its model, the sums that its agents remember, and the rows that wait."""

    model: str
    sums: dict = field(default_factory=dict)
    rows: list = field(default_factory=list)


@dataclass
class Model:
    """What the guest is to be: its sessions by handle, and its handle table."""

    sessions: dict = field(default_factory=dict)
    generations: list = field(default_factory=list)
    free: list = field(default_factory=list)
    slots: dict = field(default_factory=dict)
    turns: int = 0
    pages: int = 2

    def insert(self):
        if not self.free:
            self.generations.append(0)
            self.free.append(len(self.generations) - 1)
        index = self.free.pop()
        return self.generations[index] << 32 | index + 1

    def drop(self, handle):
        index = (handle & 0xFFFF_FFFF) - 1
        self.generations[index] += 1
        self.free.append(index)


class Pair:
    """A guest, and the model of it; each step does the same to both, and compares."""

    def __init__(self, host):
        self.host = host
        self.guest = host.load(MANY_SESSIONS, name="many")
        self.model = Model()
        self.saved = []

    def open(self, slot, name):
        handle = self.model.insert()
        self.model.slots[slot] = handle
        self.model.sessions[handle] = Opened(name)

        assert self.guest.call("open", slot, list(MODELS).index(name)) == 0
        assert self.guest.call("handle", slot) == handle

    def close(self, slot, _):
        handle = self.model.slots.get(slot)
        code = 0 if self.model.sessions.pop(handle, None) else 1
        if not code:
            self.model.drop(handle)

        assert bool(self.guest.call("close", slot)) == code

    def push(self, slot, number):
        session = self.model.sessions.get(self.model.slots.get(slot))
        width = 1 if session is None else width_of(session.model)
        if session is not None:
            session.rows.append((number, slot + 0.5))

        code = self.guest.call("push", slot, number, slot + 0.5, width)
        assert bool(code) == (session is None)

    def submit(self, slot, _):
        session = self.model.sessions.get(self.model.slots.get(slot))
        if session is None:
            assert self.guest.call("submit", slot, 0, 1) != 0
            return
        rows, session.rows = session.rows, []
        width, expected = width_of(session.model), []
        for agent, seen in rows:
            if session.model == "linear":
                expected += [2 * seen]
            else:
                session.sums[agent] = session.sums.get(agent, 0.0) + seen
                expected += [session.sums[agent]] * width

        assert self.guest.call("submit", slot, len(rows), width) == 0
        found = [self.guest.call("action", place) for place in range(len(rows) * width)]
        assert found == expected

    def use_up(self, _, __):
        self.model.drop(self.model.insert())

        assert self.guest.call("use_up_a_handle") == 0

    def turn(self, _, __):
        self.model.turns += 1

        assert self.guest.call("turn") == self.model.turns

    def grow(self, _, number):
        self.model.pages += number

        assert self.guest.call("grow", number) == self.model.pages - number

    def save(self, _, __):
        self.saved.append((self.guest.snapshot(), copy.deepcopy(self.model)))

    def restore(self, slot, number):
        if self.saved:
            self._go_back(self.guest, slot, number)

    def restore_elsewhere(self, slot, number):
        if self.saved:
            self._go_back(self.host.load(MANY_SESSIONS, name="other"), slot, number)

    def _go_back(self, guest, slot, number):
        state, model = self.saved[(4 * number + slot) % len(self.saved)]
        self.guest, self.model = guest, copy.deepcopy(model)

        self.guest.restore(state)
        assert self.guest.call("globals")[0] == self.model.turns
        assert self.guest.call("pages") == self.model.pages
        assert self.guest.live_handles == len(self.model.sessions)

    def restore_from_a_file(self, slot, number):
        if self.saved:
            state, model = self.saved[(4 * number + slot) % len(self.saved)]
            self.model = copy.deepcopy(model)
            self.guest.restore(GuestSnapshot.load(bytes(state)))


STEP = st.one_of(
    st.tuples(st.just("open"), SLOTS, st.sampled_from(NAMES)),
    st.tuples(
        st.sampled_from(
            [
                "close",
                "push",
                "push",
                "submit",
                "use_up",
                "turn",
                "grow",
                "save",
                "save",
                "restore",
                "restore",
                "restore_elsewhere",
                "restore_from_a_file",
            ]
        ),
        SLOTS,
        IDS,
    ),
)


@settings(max_examples=150)
@given(st.lists(STEP, max_size=30))
@example(
    [("open", 0, "adding"), ("save", 0, 1), ("restore", 0, 1), ("push", 0, 1), ("submit", 0, 1)]
)
@example(  # the session has the key of the one that was saved, and another handle
    [
        ("save", 0, 1), ("open", 0, "adding"), ("save", 0, 1), ("restore", 0, 1), ("use_up", 0, 1),
        ("open", 0, "adding"), ("restore", 1, 1), ("push", 0, 1), ("submit", 0, 1),
    ]
)  # fmt: skip
def test_a_guest_is_after_each_restore_what_it_was(steps):
    with Host() as host:
        pair = Pair(host)
        for name, *arguments in steps:
            getattr(pair, name)(*arguments)
