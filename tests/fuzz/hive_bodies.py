"""Random requests to a hive in a process of its own."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from tests.fuzz.mutations import mutated
from tests.integration.hive_service import Service, request, rows, start_hive

from arkml.hive.protocol.rows import CONTENT_TYPE, encode

Case = tuple[str, str, bytes, str]
"""Method, path, body and content type; {run} and {sid} in the path stand for live ones."""

UNAVAILABLE = frozenset({501, 503, 507})
"""The statuses from 500 on that a hive answers with: it cannot do it now."""

_KEY = "a-join-key"
_ODD: list[Any] = [
    None, True, -1, 0, 1, 2**31, 2**63, 2**64, 10**40, 0.5, -0.0, 1e308, "", "x", "é\0", "\ud800",
    "x" * 5_000, [], [[]], {}, {"a": {}}, [None], "NaN", "../..", "a/b", "ppo", "join",
]  # fmt: skip
_BODIES: dict[str, dict[str, Any]] = {
    "/runs": request(name="fuzzed", on_conflict="join"),
    "/runs/{run}/sessions": {"join_key": _KEY, "features": 3, "actions": 2, "role": "act"},
    "/runs/{run}/names": {"names": ["a", "b"]},
    "/runs/{run}/evaluations": {"version": 1, "episodes": 2, "mean_return": 0.5},
    "/runs/{run}/replays": {"version": 1, "score": 0.5, "document": "H4sIAA=="},
    "/sessions/{sid}/leave": {"stop": False},
    "/sessions/{sid}/beat": {},
}
_GETS = [
    "/runs", "/runs/{run}", "/runs/{run}/config", "/runs/{run}/metrics", "/runs/{run}/checkpoints",
    "/runs/{run}/policy?after={odd}&wait=0", "/runs/{run}/policy?after=0&wait=nan",
    "/runs/{run}/series?name={odd}&since={odd}", "/runs/{run}/snapshot?which={odd}",
    "/runs/{run}/replays", "/runs/{run}/replay?which={odd}",
    "/runs/{odd}", "/runs/{odd}/series", "/modules/{odd}", "/health", "/{odd}",
]  # fmt: skip
_WORDS = [
    "0",
    "-1",
    "1e9",
    "nan",
    "x",
    "latest",
    "best",
    "%00",
    "%2e%2e",
    "%ff",
    "9" * 40,
    "%c3%a9",
]


def _odd_values(body: dict[str, Any]) -> SearchStrategy[bytes]:
    """Return a strategy for a body some of whose values are others, of the settings as well."""
    inner = list(body.get("settings", {}))
    places = [(key,) for key in body] + [("settings", key) for key in inner] + [("unknown",)]
    changes = st.lists(st.tuples(st.sampled_from(places), st.sampled_from(_ODD)), max_size=3)

    def changed(edits: list[tuple[tuple[str, ...], Any]]) -> bytes:
        made = json.loads(json.dumps(body))
        for place, value in edits:
            target = made
            if len(place) == 2 and isinstance(made.get("settings"), dict):
                target = made["settings"]
            target[place[-1]] = value
        return json.dumps(made).encode()

    return changes.map(changed)


def _posts() -> SearchStrategy[Case]:
    return st.one_of([_post(path, body) for path, body in _BODIES.items()])


def _post(path: str, body: dict[str, Any]) -> SearchStrategy[Case]:
    bytes_of = mutated([json.dumps(body).encode(), b"[" * 10_000, b"{}", b""], 4)
    content = st.one_of(_odd_values(body), bytes_of)
    return st.tuples(st.just("POST"), st.just(path), content, st.just("text/json"))


def row_bodies() -> SearchStrategy[Case]:
    """Return a strategy for bodies of rows that were changed in some places."""
    seeds = [encode(rows(4), seq=1), encode(rows(0), seq=2), encode(rows(9, agents=3), seq=1)]
    kinds = st.sampled_from([CONTENT_TYPE, CONTENT_TYPE, CONTENT_TYPE, "text/plain"])
    return st.tuples(st.just("POST"), st.just("/sessions/{sid}/rows"), mutated(seeds), kinds)


def _gets() -> SearchStrategy[Case]:
    paths = st.builds(lambda path, word: path.replace("{odd}", word),
                      st.sampled_from(_GETS), st.sampled_from(_WORDS))  # fmt: skip
    methods = st.sampled_from(["GET", "GET", "GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
    return st.tuples(methods, paths, st.just(b""), st.just("text/plain"))


CASES: SearchStrategy[Case] = st.one_of(_posts(), row_bodies(), _gets())


@contextmanager
def hive_bodies() -> Iterator[Callable[[Case], None]]:
    """Yield the check of one request to a hive, which must be answered and not by status 500."""
    with tempfile.TemporaryDirectory() as folder:
        hive = start_hive(Path(folder) / "data")
        service = Service(hive)
        try:
            yield lambda case: check(service, case)
        finally:
            service.close()
            hive.close()


def check(service: Service, case: Case) -> None:
    """Send one request, which must be answered, and not by a status that says a bug of the hive."""
    method, path, body, kind = case
    run, sid = _places(service)
    address = service.base + path.replace("{run}", run).replace("{sid}", sid)
    headers = {"content-type": kind}
    try:
        answer = service.http.request(method, address, content=body, headers=headers)
    except httpx.InvalidURL:
        return
    status = answer.status_code
    assert status < 500 or status in UNAVAILABLE, f"{method} {path}: {status} {answer.text[:300]}"
    if status >= 400 and method not in ("HEAD", "OPTIONS"):
        assert answer.json()["error"], f"{method} {path}: {status} without a sentence"
    assert not service.hive.is_dead


def _places(service: Service) -> tuple[str, str]:
    """Return a run and a session of it, new ones where a request has ended those of before."""
    run = service.create("fuzzed", on_conflict="join")
    joined = service.join(run, _KEY)
    if joined.status_code >= 400:
        return run, "gone"
    return run, str(joined.json()["sid"])
