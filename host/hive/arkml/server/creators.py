"""The runs that were started with an Idempotency-Key, so that a repeated request finds its run."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from arkml.errors import HiveError, HiveRefused
from arkml.hive.protocol.runs import RunRequest

KEY_HEADER = "Idempotency-Key"

_LONGEST = 128
_SECONDS = 24 * 3_600
_MOST = 10_000
"""Keys are known for `_SECONDS`, and `_MOST` of them at one time."""

_OTHER_BODY = 422


@dataclass(frozen=True, slots=True)
class Creator:
    """
    The request that created a run, as the run's document keeps it.

    `key` is its Idempotency-Key; `sha256` is a digest of the request's body and of the id of its
    token.
    """

    key: str
    sha256: str

    def as_json(self) -> dict[str, str]:
        """Return the values of the document."""
        return {"key": self.key, "sha256": self.sha256}

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | None) -> Creator | None:
        """Return the creator that `as_json` described, None for None. Raises HiveError."""
        if values is None:
            return None
        if set(values) != {"key", "sha256"} or not all(type(v) is str for v in values.values()):
            raise HiveError(f"{values!r} does not tell by which request a run was created")
        return cls(values["key"], values["sha256"])


@dataclass(slots=True)
class _Start:
    """A key's request, its time, and its outcome: the run's id, and whether the run is new."""

    creator: Creator
    at: float
    outcome: asyncio.Future[tuple[str, bool]]


class Creators:
    """
    The outcomes of requests that create runs, by their Idempotency-Key.

    A repeated request gets the run that the first one created; if the first one is still in
    progress, the repetition waits for it. A refusal is not kept: the next request with that key
    counts as a new one. `seconds` and `most` bound how long keys are known, and how many. Belongs
    to one event loop.
    """

    def __init__(self, *, seconds: float = _SECONDS, most: int = _MOST) -> None:
        self._seconds = seconds
        self._most = most
        self._starts: dict[str, _Start] = {}

    def add(self, creator: Creator, run_id: str, started_at: int) -> None:
        """
        Add a run and the request that has created it.

        Args:
            creator: The request.
            run_id: The id of the run.
            started_at: The time of its creation, in nanoseconds since the Unix epoch.

        """
        if creator.key in self._starts:  # it is being created now
            return
        age = max(0.0, time.time() - started_at / 1e9)
        self._starts[creator.key] = _Start(
            creator, time.monotonic() - age, _settled((run_id, True))
        )
        self._starts = dict(sorted(self._starts.items(), key=lambda item: item[1].at))
        self._forget()

    async def start(
        self,
        key: str,
        owner: str,
        request: RunRequest,
        create: Callable[[RunRequest, Creator | None], Coroutine[Any, Any, tuple[str, bool]]],
    ) -> tuple[str, bool]:
        """
        Return the id of the run that was created for a key, and whether that request created it.

        Errors of `create` are passed on.

        Args:
            key: The Idempotency-Key of the request, empty for none.
            owner: The id of the token that makes the request.
            request: The request for a run.
            create: Creates the run. Called for every request without a key, and for the first
                request with a key; a repeated request waits for that call and gets its result.

        Raises:
            HiveRefused: The key was used for another request, or is not 1 to 128 letters of ASCII.

        """
        if not key:
            return await create(request, None)
        creator = Creator(_checked(key), _digest(owner, request))
        self._forget()
        known = self._starts.get(key)
        if known is None:
            known = _Start(creator, time.monotonic(), asyncio.create_task(create(request, creator)))
            self._starts[key] = known
            known.outcome.add_done_callback(lambda done: self._take(key, done))
        elif known.creator != creator:
            raise HiveRefused(
                f"the {KEY_HEADER} {key!r} was used for another run: each start takes a new one",
                _OTHER_BODY,
            )
        return await asyncio.shield(known.outcome)

    def _take(self, key: str, done: asyncio.Future[tuple[str, bool]]) -> None:
        """Store the outcome of a request, and forget a refused one."""
        if done.cancelled() or done.exception() is not None:
            self._starts.pop(key, None)
        elif key in self._starts:
            self._starts[key].outcome = _settled(done.result())  # a task holds its context

    def _forget(self) -> None:
        """Forget keys that are too old, and the oldest ones if there are too many."""
        oldest = time.monotonic() - self._seconds
        for key, start in list(self._starts.items()):
            if start.at >= oldest and len(self._starts) <= self._most:
                return
            if start.outcome.done():
                del self._starts[key]


def _settled(outcome: tuple[str, bool]) -> asyncio.Future[tuple[str, bool]]:
    """Return a future with a result, which keeps no other object alive."""
    future: asyncio.Future[tuple[str, bool]] = asyncio.get_running_loop().create_future()
    future.set_result(outcome)
    return future


def _checked(key: str) -> str:
    if not (1 <= len(key) <= _LONGEST and key.isascii() and key.isprintable()):
        raise HiveRefused(
            f"{KEY_HEADER} is {key[:_LONGEST]!r}: it takes 1 to {_LONGEST} letters of ASCII",
            _OTHER_BODY,
        )
    return key


def _digest(owner: str, request: RunRequest) -> str:
    text = json.dumps([owner, request.as_json()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
