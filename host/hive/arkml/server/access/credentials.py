"""The tokens that a hive accepts now: the operator's, the token file's, and the workers' tokens."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from arkml.base.host_names import is_loopback
from arkml.base.loggers import SafeLogger
from arkml.errors import HiveError, UsageError
from arkml.server.access.callers import AccessRole, Caller, WorkerGrant, WorkerTokens, digest_of
from arkml.server.access.token_file import TokenEntry, TokenFile
from arkml.server.serve_options import ServeOptions

_log = SafeLogger(__name__)

_LOOK_EVERY = 0.5
"""Seconds between two looks at the file, so that requests cost no system call each."""

OPEN = Caller(AccessRole.ADMIN, "")
"""The caller of a hive that needs no token."""


class WatchedTokens:
    """
    The tokens in a hive's file, which is read again when it has changed.

    While the file is damaged, the last readable tokens stay valid, and an error is logged once
    (decision 22). Raises HiveError if the file is damaged when the hive opens.
    """

    def __init__(self, data: Path) -> None:
        self._file = TokenFile(data)
        self._state = self._file_state()
        self._by_digest = _by_digest(self._file.read())
        self._looked = time.monotonic()
        self.have_existed = self._state is not None

    def find(self, digest: bytes) -> TokenEntry | None:
        """Return the entry of the valid token with this SHA-256, None if there is none."""
        self.look()
        entry = self._by_digest.get(digest)
        return None if entry is None or entry.is_expired(time.time()) else entry

    def expired(self, digest: bytes) -> TokenEntry | None:
        """Return the entry of the token with this SHA-256 if it has expired, else None."""
        entry = self._by_digest.get(digest)
        return entry if entry is not None and entry.is_expired(time.time()) else None

    def has(self, token_id: str) -> bool:
        """Return whether a token with that id is valid now."""
        self.look()
        now = time.time()
        entries = self._by_digest.values()
        return any(one.id == token_id and not one.is_expired(now) for one in entries)

    def look(self, *, now: bool = False) -> None:
        """
        Read the token file again if it has changed.

        The file is looked at twice a second at most, or at once with `now`.
        """
        if not now and time.monotonic() - self._looked < _LOOK_EVERY:
            return
        self._looked = time.monotonic()
        state = self._file_state()
        if state == self._state:
            return
        self._state = state
        self.have_existed = self.have_existed or state is not None
        try:
            self._by_digest = _by_digest(self._file.read())
        except HiveError as error:
            _log.error("%s (the tokens of before stay valid)", error)

    def _file_state(self) -> tuple[int, int, int, int] | None:
        """Return numbers that change with the file, None if there is no file."""
        try:
            found = self._file.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode


class Credentials:
    """
    The callers that tokens stand for. Belongs to one event loop.

    A hive without any token when it opens needs none, until its token file appears; from then on it
    always needs one, also if the file is removed (decision 22). Raises UsageError for a hive
    without tokens at an address that others can reach, and HiveError for a damaged file.

    `everyone` is the caller of a hive that needs no token, valid until it needs one.
    """

    def __init__(self, options: ServeOptions, workers: WorkerTokens) -> None:
        self._operator = digest_of(options.token) if options.token else b""
        self._file = WatchedTokens(options.data)
        self._workers = workers
        self.everyone = replace(OPEN, is_valid=lambda: not self.are_needed)
        if not self.are_needed:
            _require_private(options)

    @property
    def are_needed(self) -> bool:
        """True if requests need a token."""
        self._file.look()
        return bool(self._operator) or self._file.have_existed

    @property
    def operator(self) -> bytes:
        """The SHA-256 of the operator's token, empty if the hive has no such token."""
        return self._operator

    def find(self, digest: bytes) -> Caller | None:
        """Return the caller with the token of this SHA-256, None if the token is not valid."""
        if digest and digest == self._operator:
            return Caller(AccessRole.ADMIN, "operator", source=digest)
        grant = self._grant(digest)
        if grant is not None:
            is_valid = partial(self._is_worker, digest)
            return Caller(None, f"worker of run {grant.run_id}", grant=grant, is_valid=is_valid)
        entry = self._file.find(digest)
        if entry is None:
            return None
        is_valid = partial(self._is_entry, digest)
        return Caller(entry.role, entry.name, entry.id, source=digest, is_valid=is_valid)

    def problem(self, digest: bytes) -> str:
        """Return why the token with this SHA-256 is not valid, as a sentence."""
        entry = self._file.expired(digest)
        if entry is None:
            return "the token of the hive is missing or wrong"
        return f"token {entry.name!r} of the hive has expired: arkml hive token renew makes another"

    def _grant(self, digest: bytes) -> WorkerGrant | None:
        """Return the grant of a worker's token, None once the token that started its run ended."""
        grant = self._workers.find(digest)
        if grant is None or not grant.owner or self._file.has(grant.owner):
            return grant
        return None

    def _is_worker(self, digest: bytes) -> bool:
        return self._grant(digest) is not None

    def _is_entry(self, digest: bytes) -> bool:
        return self._file.find(digest) is not None


def _by_digest(entries: tuple[TokenEntry, ...]) -> dict[bytes, TokenEntry]:
    return {bytes.fromhex(entry.sha256): entry for entry in entries}


def _require_private(options: ServeOptions) -> None:
    """Raise UsageError if others than this machine can reach a hive without tokens."""
    reached = f"--host {options.host}" if not is_loopback(options.host) else ""
    reached = reached or (f"--public-url {options.public_url}" if options.public_url else "")
    reached = reached or ("--trusted-proxy" if options.trusted_proxies else "")
    if reached:
        raise UsageError(
            f"{reached} is open to others: make tokens by `arkml hive token new --data"
            f" {options.data}`, or set ARKML_HIVE_TOKEN to the token they need"
        )
