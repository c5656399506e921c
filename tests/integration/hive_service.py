"""A hive in a process of its own, with learners that learn nothing, and a client to ask it."""

import uuid
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
from tests.waiting import eventually

from arkml import HiveGrant, Host
from arkml.abi.codes import EpisodeState
from arkml.hive.embedded import EmbeddedHive
from arkml.hive.protocol.rows import CONTENT_TYPE, RowColumns, encode
from arkml.hive.protocol.runs import RunRequest
from arkml.hive.protocol.settings import Settings

FEATURES, ACTIONS = 3, 2
FAKE = str(Path(__file__).with_name("fake_learner.py"))
SETTINGS = {"learner": [FAKE], "spare": False, "segment_bytes": 1 << 20}


def start_hive(data, **settings):
    return EmbeddedHive(data, {**SETTINGS, **settings})


def grant_of(hive, **options):
    """The grant of an embedded hive that a test has started."""
    address = hive.locate()
    return HiveGrant(f"{address.host}:{address.port}", token=address.token, **options)


@contextmanager
def training_host(data, **options):
    """A host whose hive in `data` has arkml's learners, and keeps none ready."""
    with EmbeddedHive(data, {"spare": False}) as hive, Host(hive=grant_of(hive, **options)) as host:
        yield host


def request(
    name="run", *, features=FEATURES, actions=ACTIONS, on_conflict="number", settings=None, **other
):
    given = {"memory_min_size": 100, **(settings or {})}
    settings = Settings(features, actions, **given, other=other)
    return RunRequest(name, "game", settings).as_json() | {"on_conflict": on_conflict}


def rows(count, first_step=0, agents=1):
    """RowColumns of so many rows."""
    columns = RowColumns.empty(count, FEATURES, ACTIONS)
    columns.agent[:] = np.arange(count) % agents + 1
    columns.step[:] = first_step + np.arange(count) // agents
    columns.state[columns.step == 0] = EpisodeState.INITIAL
    columns.features[:] = np.arange(count)[:, None]
    columns.reward[:] = 1.0
    return columns


class Service:
    """Requests to a hive, which may be another one after it was started again."""

    def __init__(self, hive):
        self.hive = hive
        self.connect()

    def connect(self):
        address = self.hive.locate()
        host, port, token = address.host, address.port, address.token
        self.token = token
        self.base = f"http://{host}:{port}/v1"
        self.http = httpx.Client(
            base_url=self.base,
            headers={"authorization": f"Bearer {token}"},
            timeout=300,
            trust_env=False,
        )
        return self

    def get(self, path, **options):
        return self.http.get(path, **options)

    def post(self, path, body=None, **options):
        return self.http.post(path, json=body or {}, **options)

    def create(self, *arguments, **options):
        answer = self.post("/runs", request(*arguments, **options))
        assert answer.status_code in (200, 201), answer.text
        return answer.json()["run"]["id"]

    def run(self, run_id):
        return self.get(f"/runs/{run_id}").json()["run"]

    def wait_for_status(self, run_id, *status):
        return eventually(lambda: self.run(run_id)["status"] in status)

    def join(self, run_id, key=None, role="act", features=FEATURES, actions=ACTIONS):
        wish = {
            "join_key": key or str(uuid.uuid4()),
            "features": features,
            "actions": actions,
            "role": role,
        }
        return self.post(f"/runs/{run_id}/sessions", wish)

    def sid(self, run_id, key=None):
        return self.join(run_id, key).json()["sid"]

    def push(self, sid, columns, seq, **options):
        return self.send(sid, encode(columns, seq=seq, **options))

    def send(self, sid, body, content_type=CONTENT_TYPE):
        return self.http.post(
            f"/sessions/{sid}/rows", content=body, headers={"content-type": content_type}
        )

    def close(self):
        self.http.close()
