"""A learner that learns nothing and publishes a real policy: the file that `other` names."""

import hashlib
import socket
import sys
from pathlib import Path

from fake_learner import FakeLearner, hold_life_line


class WatchedLearner(FakeLearner):
    def export(self):
        self.policies += 1
        data = Path(self.settings["other"]["policy"]).read_bytes()
        name = f"policies/{self.policies:010d}.onnx"
        (self.directory / name).write_bytes(data)
        return {"file": name, "sha256": hashlib.sha256(data).hexdigest(), "n_opts": self.n_opts}

    def publish(self):
        for _ in range(self.settings["other"].get("versions", 1)):
            super().publish()


if __name__ == "__main__":
    hold_life_line()
    learner = WatchedLearner(socket.socket(fileno=3))
    learner.open(sys.argv[1])
    learner.learn()
