"""A learner that learns nothing: it publishes policies, and counts the rows of its run."""

from __future__ import annotations

import hashlib
import select
import socket
import sys
import time
from itertools import pairwise

import numpy as np
from tests.integration.fake_learner import FakeLearner, hold_life_line

from arkml.hive.protocol.rows import Place
from arkml.hive.protocol.wire import Message
from arkml.learning.algorithm import Layer
from arkml.learning.normalizer import Scaling
from arkml.learning.policy_graph import to_onnx
from arkml.learning.policy_lag import PolicyLag
from arkml.learning.ppo import PpoWeights
from arkml.learning.run_directory import LogReader

HIDDEN = 64
_REPORTED = 0.25  # seconds
_MANY = 1 << 30


class Publisher(FakeLearner):
    """
    Publishes a policy every `period` seconds, a setting of the run, but never before the server has
    taken the last one.

    The metrics of the run are sums since its beginning: `rows`, `bodies`, and over all rows
    `versions_behind` and `seconds_behind`, at the time `clock`.
    """

    def learn(self) -> None:
        self.period = float(self.settings["other"]["period"])
        self.data = _policy(self.settings["features"], self.settings["actions"])
        self.reader = LogReader(self.directory / "rows")
        self.lag = PolicyLag()
        self.sums = dict.fromkeys(("rows", "bodies", "versions_behind", "seconds_behind"), 0.0)
        self.is_waiting = False
        self.begin()
        published = reported = 0.0
        while True:
            due = reported + _REPORTED
            if not self.is_waiting:
                due = min(due, published + self.period)
            if select.select([self.link], [], [], max(0.0, due - time.monotonic()))[0]:
                self.messages.append(self.next())
            while self.messages:
                self.handle(self.next())
            now = time.monotonic()
            if not self.is_waiting and now >= published + self.period:
                self.publish()
                published, self.is_waiting = now, True
            if now >= reported + _REPORTED:
                self.report(now)
                reported = now

    def begin(self) -> None:
        place = {"cursor": [0, 0], "restored_from": None}
        self.send("hello", pid=0, device="cpu", n_opts=0, **place)
        self.progress()

    def export(self) -> dict[str, object]:
        self.policies += 1
        self.n_opts += 1
        name = f"policies/{self.policies:010d}.onnx"
        (self.directory / name).write_bytes(self.data)
        before = self.directory / f"policies/{self.policies - 64:010d}.onnx"
        before.unlink(missing_ok=True)
        sha256 = hashlib.sha256(self.data).hexdigest()
        return {"file": name, "sha256": sha256, "n_opts": self.n_opts}

    def handle(self, message: Message) -> None:
        if message["kind"] == "rows":
            self.reader.commit(Place(message["segment"], message["offset"]))
            self.count()
            self.committed = [message["segment"], message["offset"]]
            self.progress()
        elif message["kind"] == "version":
            self.lag.publish(message["version"], time.monotonic())
            self.is_waiting = False
        else:
            super().handle(message)

    def count(self) -> None:
        rows = 0
        for record in self.reader.read(_MANY):
            self.lag.count(record.columns.version, time.monotonic())
            rows += len(record.columns)
            self.sums["bodies"] += 1
        self.sums["rows"] += rows
        if ages := self.lag.take():
            self.sums["versions_behind"] += rows * ages.versions
            self.sums["seconds_behind"] += rows * ages.seconds

    def report(self, now: float) -> None:
        points = [[name, self.policies, value] for name, value in self.sums.items()]
        self.send("metrics", points=[*points, ["clock", self.policies, now]])


def _policy(features: int, actions: int) -> bytes:
    """Return a policy with two hidden layers and drawn weights."""
    random = np.random.default_rng(0)

    def layers(*widths: int) -> tuple[Layer, ...]:
        return tuple(
            Layer(random.standard_normal((before, after)).astype("f4") / 8, np.zeros(after, "f4"))
            for before, after in pairwise(widths)
        )

    scaling, spread = Scaling.identity(features), np.zeros(actions, "f4")
    actor = layers(features, HIDDEN, HIDDEN, actions)
    critic = layers(features, HIDDEN, HIDDEN, 1)
    return to_onnx(PpoWeights(scaling, actor, critic, spread, ()))


def main() -> None:
    hold_life_line()
    learner = Publisher(socket.socket(fileno=3))
    learner.open(sys.argv[1])
    learner.learn()


if __name__ == "__main__":
    main()
