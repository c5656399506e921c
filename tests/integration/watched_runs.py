"""Runs of a hive that keep a guest and real policies, and people who watch them."""

import contextlib
import hashlib
import json
import threading
from pathlib import Path

import httpx
from tests.integration.command_line import GUESTS
from tests.integration.hive_service import Service, request, start_hive
from tests.published_policies import scoring
from tests.waiting import eventually

LEARNER = str(Path(__file__).with_name("watched_learner.py"))
SHAPES = {"c_cartpole": (4, 1), "c_drift": (2, 1), "c_reach": (4, 2), "c_walkers": (2, 1),
          "left": (2, 1), "right": (3, 1)}  # fmt: skip


def with_section(module, document):
    """A module without a section arkml.spec, with one."""

    def sized(data):
        size, length = len(data), b""
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        return length + bytes([size]) + data

    section = sized(b"arkml.spec") + json.dumps(document).encode()
    return module + b"\0" + sized(section)


class WatchedHive(Service):
    """A hive whose runs publish real policies."""

    def __init__(self, hive, folder):
        super().__init__(hive)
        self.folder = folder

    def train(self, name="c_cartpole", *, versions=1, policy=None, **options):
        """Create a run with the widths of a guest; it has `versions` policies."""
        features, actions = SHAPES[name]
        file = self.folder / f"{name}.onnx"
        file.write_bytes(scoring(features, actions) if policy is None else policy)
        other = {"policy": str(file), "versions": versions}
        wish = request(name, features=features, actions=actions)
        wish["settings"]["other"] = other
        answer = self.post("/runs", wish, **options)
        assert answer.status_code == 201, answer.text
        run = answer.json()["run"]["id"]
        eventually(lambda: self.run(run)["policy_version"] >= versions)
        return run

    def keep(self, run, module=None, *, behavior="cartpole", **report):
        """Have a run keep a guest."""
        data = (GUESTS / "c_cartpole.wasm").read_bytes() if module is None else module
        sha256 = hashlib.sha256(data).hexdigest()
        self.http.put(f"/modules/{sha256}", content=data).raise_for_status()
        body = {"module": sha256, "name": "guest.wasm", "behavior": behavior, **report}
        return self.post(f"/runs/{run}/guest", body)

    def published(self, run, version):
        """The file of a version."""
        folder = self.hive.data / "runs" / run / "published"
        return folder / f"{version:010d}.onnx"


@contextlib.contextmanager
def watched_hive(folder, **settings):
    given = {"learner": [LEARNER], **settings}
    with start_hive(folder / "data", **given) as hive:
        service = WatchedHive(hive, folder)
        try:
            yield service
        finally:
            service.close()


class Watcher:
    """One who watches; `events` are [kind, data] so far."""

    def __init__(self, service, run, **query):
        self.events = []
        self.status = None
        self.error = ""
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(service, run, query))
        self._thread.start()

    def _watch(self, service, run, query):
        headers = {"authorization": f"Bearer {service.token}"}
        with (
            httpx.Client(
                base_url=service.base, headers=headers, timeout=300, trust_env=False
            ) as web,
            web.stream("GET", f"/runs/{run}/watch", params=query) as answer,
        ):
            self.status = answer.status_code
            if answer.status_code != 200:
                self.error = json.loads(answer.read())["error"]
                return
            kind = ""
            for line in answer.iter_lines():
                if self._leaving.is_set():
                    return
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    self.events.append((kind, json.loads(line.removeprefix("data: "))))

    def of(self, kind):
        return [data for one, data in list(self.events) if one == kind]

    def first(self, kind):
        """Wait for the first event of a kind, and return it."""
        return eventually(lambda: (self.of(kind) or [None])[0] is not None and self.of(kind))[0]

    def leave(self):
        self._leaving.set()
        self._thread.join()
