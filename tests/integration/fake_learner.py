"""A process that speaks as a learner does and learns nothing: `RUN_DIR` or `--spare`."""

import hashlib
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from arkml.hive.protocol.rows import read_records, segment_name
from arkml.hive.protocol.wire import Unpacker, pack

DIVERGED, MISCONFIGURED = 4, 3


class FakeLearner:
    def __init__(self, link):
        self.link = link
        self.unpacker = Unpacker()
        self.messages = []
        self.committed = [0, 0]
        self.n_opts = 0
        self.policies = 0
        self.directory = None
        self.settings = {}

    def send(self, kind, **fields):
        self.link.sendall(pack(kind, **fields))

    def next(self):
        while not self.messages:
            data = self.link.recv(1 << 16)
            if not data:
                os._exit(0)
            self.messages += self.unpacker.feed(data)
        return self.messages.pop(0)

    def open(self, directory):
        self.directory = Path(directory)
        document = json.loads((self.directory / "run.json").read_text())
        self.settings = document["request"]["settings"]
        self.misbehavior = self.settings["other"].get("misbehavior", "")
        found = sorted((self.directory / "checkpoints").glob("*.safetensors"))
        self.n_opts = int(found[-1].stem) if found else 0

    def learn(self):
        match self.misbehavior:
            case "import error":
                import nothing_of_that_name  # noqa: F401
            case "memory error":
                raise MemoryError("there is no memory for 10 rows")
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "crashed":
                os.kill(os.getpid(), signal.SIGILL)
            case "silent":
                print("I say nothing of myself", file=sys.stderr)
                sys.exit(7)
        if self.misbehavior == "misconfigured":
            self.send("fatal", reason="that makes no sense", retry=False)
            sys.exit(MISCONFIGURED)
        self.wait_for("hello")
        self.send(
            "hello",
            pid=os.getpid(),
            device="cpu",
            n_opts=self.n_opts,
            cursor=[0, 0],
            restored_from=None,
        )
        self.wait_for("policy")
        self.publish()
        if self.misbehavior == "diverge":
            self.send("fatal", reason="weights are not finite", retry=True)
            sys.exit(DIVERGED)
        if self.misbehavior == "greedy":
            self.hoard = b"x" * (400 << 20)
        if self.misbehavior == "hang":
            time.sleep(3_600)
        while True:
            message = self.next()
            if self.misbehavior == "dies" and message["kind"] == "rows":
                raise ZeroDivisionError("my loss divides by zero")
            if "dies once" in self.misbehavior and message["kind"] == "rows":
                self.die_once()
            self.handle(message)
            if self.misbehavior == "dies after updates" and message["kind"] == "rows":
                sys.exit(7)

    def die_once(self):
        try:
            (self.directory / "died").touch(exist_ok=False)
        except FileExistsError:
            return
        raise ZeroDivisionError("my loss divides by zero")

    def wait_for(self, word):
        """With "waits", say nothing before a file of that name is in the run's directory."""
        while self.misbehavior == "waits" and not (self.directory / word).exists():
            time.sleep(0.01)

    def publish(self):
        fields = self.export()
        self.send("policy", **fields, rows_seen=0)

    def export(self):
        self.policies += 1
        data = f"policy {os.getpid()} {self.policies} {self.n_opts}".encode()
        name = f"policies/{os.getpid()}-{self.policies:010d}.onnx"
        (self.directory / name).write_bytes(data)
        return {"file": name, "sha256": hashlib.sha256(data).hexdigest(), "n_opts": self.n_opts}

    def progress(self):
        self.send(
            "progress",
            n_opts=self.n_opts,
            cursor=self.committed,
            rows=0,
            updates_per_row=0.0,
            admits=100_000,
            hold=False,
            turn_seconds=0.0,
        )

    def checkpoint(self):
        name = f"checkpoints/{self.n_opts:012d}.safetensors"
        (self.directory / name).write_bytes(b"state")
        told = {"file": name, "n_opts": self.n_opts, "cursor": self.committed}
        self.send("checkpoint", **told)
        return told

    def handle(self, message):
        match message["kind"]:
            case "rows":
                place = [message["segment"], message["offset"]]
                if place > self.committed:
                    self.committed = place
                    self.n_opts += 1
                    self.publish()
                    self.send("metrics", points=self.points())
                self.progress()
            case "version" if self.n_opts:
                self.send("candidate", version=message["version"])
                self.send("rated", version=message["version"], score=1.5)
            case "export":
                self.send("reply", req=message["req"], **self.export())
            case "checkpoint":
                self.send("reply", req=message["req"], **self.checkpoint())
            case "audit":
                self.send("reply", req=message["req"], **self.audit())
            case "pause" | "resume":
                self.progress()
            case "record":
                with (self.directory / "events" / "recorded.jsonl").open("a") as file:
                    file.write(json.dumps(message["points"]) + "\n")
            case "stop":
                self.wait_for("stop")
                self.checkpoint()
                sys.exit(0)

    def points(self):
        points = [["rollout/ep_rew_mean", self.n_opts, 1.5]]
        if self.misbehavior == "sends nan":
            points.append(["train/critic_loss", self.n_opts, float("nan")])
        if self.misbehavior == "old policies":
            points.append(["hive/policy_age_versions", self.n_opts, 9.0])
            points.append(["hive/policy_age_seconds", self.n_opts, 100.0])
        return points

    def audit(self):
        from arkml.hive.protocol.audit import checksum, row_hashes

        held = total = 0
        for path in sorted((self.directory / "rows").glob("*.rows")):
            number = int(path.stem)
            if number > self.committed[0]:
                break
            assert path.name == segment_name(number)
            data = memoryview(path.read_bytes())
            end = self.committed[1] if number == self.committed[0] else len(data)
            for record in read_records(data, 0, end):
                held += record.header.rows
                total ^= checksum(row_hashes(record.session, record.header.kind, record.columns))
        return {"held": held, "overwritten": 0, "checksum": total, "cursor": self.committed}


def hold_life_line():
    parent = os.getppid()

    def read():
        while os.read(0, 1):
            pass
        os._exit(0)

    def watch():
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    threading.Thread(target=watch, daemon=True).start()


def main():
    hold_life_line()
    fake = FakeLearner(socket.socket(fileno=3))
    where = sys.argv[1]
    if where == "--spare":
        where = fake.next()["run_dir"]
    fake.open(where)
    fake.learn()


if __name__ == "__main__":
    main()
