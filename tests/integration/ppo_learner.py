"""A learner that publishes policies of PPO with drawn weights, and learns nothing."""

import hashlib

import fake_learner
import numpy as np

from arkml.hive.protocol.rows import read_records
from arkml.learning.algorithm import Layer
from arkml.learning.normalizer import Scaling
from arkml.learning.policy_graph import to_onnx
from arkml.learning.ppo import PpoWeights


def layer(random, rows, columns):
    return Layer(random.standard_normal((columns, rows)).astype("f4"), np.zeros(rows, "f4"))


class PpoLearner(fake_learner.FakeLearner):
    """
    With the setting `rollout`, that many rows of a version hold the hosts up until the next.

    With the misbehavior "holds", the first rows hold them up for ever; with "learns", each body of
    rows is an update.
    """

    is_held = False

    def export(self):
        self.policies += 1
        settings = self.settings
        features, branches = settings["features"], tuple(settings["branches"])
        continuous = settings["actions"] - len(branches)
        random = np.random.default_rng(self.policies)
        outputs = continuous + sum(branches)
        data = to_onnx(
            PpoWeights(
                Scaling.identity(features), (layer(random, outputs, features),),
                (layer(random, 1, features),), np.zeros(continuous, "f4"), branches,
            )
        )  # fmt: skip
        name = f"policies/{self.policies:010d}.onnx"
        (self.directory / name).write_bytes(data)
        return {"file": name, "sha256": hashlib.sha256(data).hexdigest(), "n_opts": self.n_opts}

    def progress(self):
        self.send(
            "progress", n_opts=self.n_opts, cursor=self.committed, rows=0, updates_per_row=0.0,
            admits=1 << 30, hold=self.is_held, turn_seconds=0.0,
        )  # fmt: skip

    def handle(self, message):
        rollout = self.settings["other"].get("rollout")
        match message["kind"]:
            case "rows":
                self.committed = max(self.committed, [message["segment"], message["offset"]])
                self.is_held |= "holds" in self.misbehavior
                self.n_opts += "learns" in self.misbehavior
                if rollout is not None and not self.is_held:
                    self.is_held = self.rows_of(self.policies) >= rollout
                    if self.is_held:
                        self.progress()
                        self.n_opts += 1
                        self.publish()
                        return
                self.progress()
            case "version":
                self.is_held = "holds" in self.misbehavior
                self.progress()
            case _:
                super().handle(message)

    def rows_of(self, version):
        count = 0
        for path in sorted((self.directory / "rows").glob("*.rows")):
            data = memoryview(path.read_bytes())
            for record in read_records(data, 0, len(data)):
                count += int((record.columns.version == version).sum())
        return count


if __name__ == "__main__":
    fake_learner.FakeLearner = PpoLearner
    fake_learner.main()
