"""Random scripts of pushes, submits, starts and stops, with the answers of the decoder."""

from collections import Counter

from tests.conformance.decoder import PAGE, Row, Session
from tests.conformance.scripted_guest import Cell, bits, step

WIDTHS = [0, 1, 3, 4, 63, 64, 65, 130, 300]
ACTIONS = [0, 1, 2, 3, 4, 5, 31, 64, 66]
PATIENCE = [1, 3, 20, 60, 70, 140, 300]
FUTURES, CELLS, TAGS, DATA, SCRIPT = 0x40, 0x100, 0x4000, 0x6000, 2 * PAGE
MAX_CELLS = (TAGS - CELLS) // 8
FIRST_PAGES = 12  # two of data, nine of script, one more of data
NOTHING = CELLS - 8  # a cell that holds no handle

V1, V3 = "ark-ml-v1.ml__", "ark-ml-v3.ml__"
# The push functions: name, training, with length, bytes a metadata item (0: without).
PUSHES = [
    (V1 + "push_training_observation", True, True, 0),
    (V1 + "push_training_observation_with_metadata", True, False, 32),
    (V3 + "push_training_observation", True, False, 72),
    (V1 + "push_inference_observation", False, True, 0),
    (V1 + "push_inference_observation_with_metadata", False, False, 32),
    (V3 + "push_inference_observation", False, False, 72),
]
SUBMITS = {
    True: V1 + "submit_training_observations",
    False: V1 + "submit_inference_observations",
}


class RandomSteps:
    """
    A generator of random steps that keeps the expected answer of each.

    `open_future(tag, F, A)` returns the handle of a future of a training session.
    """

    def __init__(self, chance, decoder, open_future):
        self.chance = chance
        self.decoder = decoder
        self.open_future = open_future
        self.steps = []
        self.codes = []
        self.cells = []  # of every session there ever was
        self.calls = Counter()  # pushes and submits by name and code
        self._next = CELLS

    def take(self):
        """The steps so far and their codes; the next ones start a new script."""
        steps, codes, self.steps, self.codes = self.steps, self.codes, [], []
        return steps, codes

    def play(self, count):
        """Add `count` steps."""
        chance = self.chance
        while len(self.steps) < count:
            kind = chance.random()
            live = len(self.decoder.sessions)
            if live < 3 or (kind < 0.03 and live < 14 and self._next < TAGS):
                self.start()
            elif kind < 0.05:
                self.stop()
            elif kind < 0.052 and len(self.decoder.memory) < 24 * PAGE:
                self.add(step("memory.grow", 1), self.decoder.grow(1))
            else:
                self.push_some()

    def add(self, made, code):
        self.steps.append(made)
        self.codes.append(int(code))

    # Sessions

    def start(self):
        chance = self.chance
        shape = chance.choice(WIDTHS), chance.choice(ACTIONS)
        return self.open(chance.random() < 0.5, *shape, chance.choice(PATIENCE))

    def open(self, training, *widths):
        """Start a session; returns the cell of its handle."""
        cell = self._next
        self._next += 8
        tag = (cell - CELLS) // 8
        session = Session(tag, training, *widths)
        shape = session.num_features, session.num_actions
        if session.training:
            made = step(V1 + "take_future_training_handle", self.open_future(tag, *shape), cell)
        else:
            made = step(V1 + "start_inference", *shape, TAGS + 4 * tag, 4, 0, cell)
        self.cells.append(cell)
        self.add(made, self.decoder.start(cell, session))
        return cell

    def stop(self):
        cell = self.any_cell()
        training = self.kind_of(cell)
        if self.chance.random() < 0.1:
            training = not training
        name = V1 + ("stop_training" if training else "stop_inference")
        self.add(step(name, Cell(cell)), self.decoder.stop(cell, training=training))

    def any_cell(self):
        """The cell of a session, most often one that is alive."""
        chance = self.chance.random()
        if chance < 0.94 and self.decoder.sessions:
            return self.chance.choice(list(self.decoder.sessions))
        return self.chance.choice(self.cells) if chance < 0.98 and self.cells else NOTHING

    def kind_of(self, cell):
        session = self.decoder.sessions.get(cell)
        return self.chance.random() < 0.5 if session is None else session.training

    # Rows

    def push_some(self):
        cell = self.any_cell()
        for _ in range(self.chance.choice((1, 1, 2, 5, 30))):
            self.push(cell)
            session = self.decoder.sessions.get(cell)
            if session is not None and len(session.rows) >= session.patience:
                if session.training and self.chance.random() < 0.2:
                    self.hand_over(cell)
                elif self.chance.random() < 0.5:
                    self.submit(cell)
        if self.chance.random() < 0.02:
            self.submit(self.any_cell())

    def push(self, cell):
        chance = self.chance
        training = self.kind_of(cell)
        if chance.random() < 0.01:
            training = not training
        name, _, has_length, item = PUSHES[chance.randrange(3) + (0 if training else 3)]
        session = self.decoder.sessions.get(cell) or Session(0, training, 3, 2)
        row = Row(
            chance.choice((0, 1, 7, 2**64 - 1, chance.getrandbits(64))),
            chance.choice((4, 2**32 - 1)) if chance.random() < 0.01 else chance.randrange(4),
            self.number(),
            self.number() if has_length else 0,
            b"", b"", (),
        )  # fmt: skip
        features = self.lent(session.num_features, 4)
        given = self.lent(session.num_actions if chance.random() < 0.4 else 0, 4)
        given = given if training else (0, 0)
        items = chance.choice((0, 0, 0, 1, 1, 2, 5)) if item else 0
        metadata = (*self.lent(items, item), item) if item else (0, 0, 0)
        arguments = [Cell(cell), row.agent, row.state, row.reward, *features]
        arguments += given if training else ()
        arguments += metadata[:2] if item else ()
        arguments += [row.length] if has_length else ()
        made = step(name, *arguments)
        code = self.decoder.push(cell, row, features, given, metadata, training=training)
        self.calls[name, int(code)] += 1
        self.add(made, code)

    def submit(self, cell):
        chance = self.chance
        session = self.decoder.sessions.get(cell)
        training = self.kind_of(cell)
        rows, width = (0, 1) if session is None else (len(session.rows), session.num_actions)
        counts = [rows * width, rows]
        if chance.random() < 0.08:
            place = chance.randrange(2)
            counts[place] = chance.choice((0, counts[place] + 1, max(0, counts[place] - 1), 2**30))
        actions, values = self.rooms(*counts)
        made = step(SUBMITS[training], Cell(cell), *actions, *values)
        code = self.decoder.submit(cell, actions, values, training=training)
        self.calls[SUBMITS[training], int(code)] += 1
        self.add(made, code)

    def hand_over(self, cell):
        name = V1 + "submit_training_augmented_observations"
        self.add(step(name, Cell(cell)), self.decoder.hand_over(cell))

    # Numbers and places

    def number(self):
        """The bits of any f32."""
        chance = self.chance
        return chance.getrandbits(32) if chance.random() < 0.3 else bits(chance.random())

    def lent(self, items, size):
        """A pointer to `items` items that the host reads, most often a good one."""
        chance = self.chance
        fault = chance.random()
        if fault < 0.006:
            items = chance.choice((items + 1, max(0, items - 1), 0, 2**30, 2**32 - 1))
        if fault > 0.994:
            return chance.choice((2**32 - 1, 2**31, len(self.decoder.memory) - 1)), items
        if items == 0:
            return chance.choice((0, 1, 4, 8, 2**32 - 1, len(self.decoder.memory))), 0
        end = len(self.decoder.memory)
        if fault > 0.97:  # right before the end of memory, or one over it
            return max(0, end - items * size + chance.randrange(2)), items
        return DATA + chance.randrange(max(1, SCRIPT - DATA - items * size)), items

    def rooms(self, actions, values):
        """Two places to write to that do not overlap, most often inside of the data."""
        chance = self.chance
        need = 4 * (actions + values)
        fault = chance.random()
        if need >= SCRIPT - DATA or fault < 0.01:
            start = len(self.decoder.memory) - chance.choice((0, 3, 4))
        elif fault < 0.03 and need <= PAGE:
            start = len(self.decoder.memory) - need
        else:
            start = DATA + chance.randrange(SCRIPT - DATA - need)
        if chance.random() < 0.5:
            return (start, actions), (start + 4 * actions, values)
        return (start + 4 * values, actions), (start, values)
