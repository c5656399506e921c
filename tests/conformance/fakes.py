"""Policies and sinks that tests look into, and what they saw."""

import numpy as np


class Copied:
    """One batch as a policy or a sink saw it."""

    def __init__(self, batch, metadata=()):
        self.rows = batch.rows.copy()
        self.features = batch.features.copy()
        self.given = None if batch.given is None else batch.given.copy()
        self.metadata = [(item.row, item.name, item.value) for item in metadata]


class Echo:
    """Acts with `row + action / 16`, values `-row`, and remembers the batches it answered."""

    def __init__(self, num_features, num_actions):
        self.num_features = num_features
        self.num_actions = num_actions
        self.seen = []
        self.forgotten = []
        self.error = None

    def act(self, batch):
        self.seen.append(Copied(batch))
        if self.error is not None:
            raise self.error
        rows = np.arange(len(batch), dtype=np.float32)
        batch.actions[:] = rows[:, None] + np.arange(self.num_actions, dtype=np.float32) / 16
        batch.values[:] = -rows

    def forget(self, key):
        self.forgotten.append(key)


class Library:
    """Answers every snapshot with an `Echo` of the width that is asked for."""

    def __init__(self):
        self.loaded = []

    def load(self, snapshot, snapshot_format, num_features, num_actions):  # noqa: ARG002
        self.loaded.append(Echo(num_features, num_actions))
        return self.loaded[-1]


class Sink:
    """A run that keeps what it is given."""

    def __init__(self):
        self.accepted = []
        self.left = []

    def accept(self, batch, metadata, origin):
        self.accepted.append((Copied(batch, metadata), origin))

    def note(self, batch, metadata):  # noqa: ARG002
        self.noted = [*getattr(self, "noted", []), *metadata]

    def held(self):
        return None

    def leave(self, *, stop):
        self.left.append(stop)
