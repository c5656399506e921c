"""A learner that learns nothing and publishes `policy.onnx` of its hive's directory."""

import hashlib
import os
import socket
import sys
from typing import Any

from tests.integration.fake_learner import FakeLearner, hold_life_line

POLICY = "policy.onnx"


class ConstantLearner(FakeLearner):
    def export(self) -> dict[str, Any]:
        directory = self.directory
        assert directory is not None
        self.policies += 1
        data = (directory.parents[1] / POLICY).read_bytes()
        name = f"policies/{os.getpid()}-{self.policies:010d}.onnx"
        (directory / name).write_bytes(data)
        return {"file": name, "sha256": hashlib.sha256(data).hexdigest(), "n_opts": self.n_opts}


def main() -> None:
    hold_life_line()
    learner = ConstantLearner(socket.socket(fileno=3))
    where = sys.argv[1]
    learner.open(learner.next()["run_dir"] if where == "--spare" else where)
    learner.learn()


if __name__ == "__main__":
    main()
