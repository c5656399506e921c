"""The file with the tokens of a hive: their digests, names, roles and times, never a token."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from arkml.base.files import open_file, write_atomic
from arkml.errors import HiveError, ProtocolError, UsageError
from arkml.hive.protocol.documents import parse_object
from arkml.server.access.callers import AccessRole, digest_of
from arkml.server.ownership import give_open, make_private, owner_to_be

TOKENS_NAME = "tokens.json"
"""The name of the file in the data directory of a hive."""

_VERSION = 1
_PRIVATE = 0o600
_BYTES = 32  # 256 random bits need no salt or stretching (decision 22)
_MOST = 10_000
_MOST_BYTES = 1_000 * _MOST
_LATEST = 1 << 60
_SHA256 = re.compile("[0-9a-f]{64}")
_NAME = re.compile(r"[\w.@-][\w .@-]{0,63}")


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """
    One token as the file keeps it; the token itself is stored nowhere.

    Attributes:
        id: The id of the token, which runs keep as their owner.
        name: The person or the machine that has the token.
        role: The role that it gives.
        sha256: The digest of the token in hexadecimal digits.
        created_at: Seconds since the Unix epoch.
        expires_at: Seconds since the Unix epoch, 0 for a token that does not expire.

    """

    id: str
    name: str
    role: AccessRole
    sha256: str
    created_at: int
    expires_at: int = 0

    def is_expired(self, now: float) -> bool:
        """Return whether the token has expired at `now`, in seconds since the Unix epoch."""
        return 0 < self.expires_at <= now

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TokenEntry:
        """Return the entry with values from the file. Raises ValueError and TypeError."""
        entry = cls(**{**values, "role": AccessRole(str(values.get("role")))})
        times = (entry.created_at, entry.expires_at)
        if not (
            all(_NAME.fullmatch(one) for one in (entry.id, entry.name))
            and _SHA256.fullmatch(entry.sha256)
            and all(type(one) is int and 0 <= one < _LATEST for one in times)
        ):
            raise ValueError(f"an entry has other values than a token: {entry.name!r:.80}")
        return entry


class TokenFile:
    """
    The tokens of the hive whose data directory is `data`, in a file that its owner alone can read.

    A hive reads the file while commands change it: it is replaced as a whole.
    """

    def __init__(self, data: Path) -> None:
        self.path = data / TOKENS_NAME

    def read(self) -> tuple[TokenEntry, ...]:
        """
        Return all tokens, none if there is no file.

        Raises HiveError for a file that is damaged, or open to other users.
        """
        try:
            with open_file(self.path) as file:
                mode = os.fstat(file.fileno()).st_mode & 0o777
                data = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise HiveError(
                f"the tokens in {self.path} cannot be read: {error.strerror}"
            ) from error
        if mode & 0o077:
            raise HiveError(
                f"the tokens in {self.path} are open to other users (mode {mode:04o}): chmod 600"
                f" {self.path}, and revoke those that you do not know"
            )
        if len(data) > _MOST_BYTES:
            raise HiveError(
                f"the tokens in {self.path} cannot be read: it has more than {_MOST_BYTES:,} bytes"
            )
        try:
            return _entries_in(parse_object(data))
        except (ProtocolError, TypeError, ValueError) as error:
            raise HiveError(
                f"the tokens in {self.path} cannot be read: {error}; restore the file, or remove it"
                " and make new tokens"
            ) from error

    def add(self, name: str, role: AccessRole, seconds: float | None) -> tuple[TokenEntry, str]:
        """
        Make a token.

        Args:
            name: The name of the person or machine that gets the token.
            role: The role of the token.
            seconds: Seconds until the token expires, None for never.

        Returns:
            The entry of the token, and the token itself, which is not kept.

        Raises:
            UsageError: The name is taken or invalid.
            HiveError: The token file is damaged.
            OSError: The token file cannot be written.

        """
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"--name {name!r:.80}: a token's name has 1 to 64 letters, digits and any of _ . @"
                " - and spaces"
            )
        with self._changing():
            known = self.read()
            if any(one.name == name for one in known):
                raise UsageError(f"--name {name}: there is a token of that name; revoke it first")
            if len(known) >= _MOST:
                raise UsageError(f"there are {_MOST} tokens already: revoke some first")
            token, now = secrets.token_urlsafe(_BYTES), int(time.time())
            expires = 0 if seconds is None else now + max(1, int(seconds))
            entry = TokenEntry(
                secrets.token_hex(8), name, role, digest_of(token).hex(), now, expires
            )
            self._write((*known, entry))
        return entry, token

    def revoke(self, wanted: str) -> TokenEntry:
        """
        Remove the token whose id or name is `wanted`, and return its entry.

        Raises UsageError if there is no such token, HiveError for a damaged file, and OSError.
        """
        with self._changing():
            known = self.read()
            found = _named(known, wanted)
            self._write([one for one in known if one is not found])
        return found

    def renew(self, wanted: str) -> tuple[TokenEntry, str]:
        """
        Replace the token whose id or name is `wanted` by a new one with its id, name and role.

        It lasts as long as the old one was made for. Returns and raises as `add` does.
        """
        with self._changing():
            known = self.read()
            found = _named(known, wanted)
            token, now = secrets.token_urlsafe(_BYTES), int(time.time())
            until = found.expires_at and now + found.expires_at - found.created_at
            sha256 = digest_of(token).hex()
            entry = replace(found, sha256=sha256, created_at=now, expires_at=until)
            self._write([entry if one is found else one for one in known])
        return entry, token

    def _write(self, entries: Sequence[TokenEntry]) -> None:
        document = {"version": _VERSION, "tokens": [asdict(one) for one in entries]}
        data = json.dumps(document, indent=1).encode() + b"\n"
        owner = owner_to_be(self.path.parent)
        write_atomic(self.path, data, durable=True, mode=_PRIVATE, owner=owner)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Keep other commands from changing the file. Raises OSError."""
        make_private(self.path.parent)
        name = self.path.with_name(f"{self.path.name}.lock")
        # No link is followed: the user of the service may have made it, and root uses the file.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, _PRIVATE)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise HiveError(
                f"{name} is a symbolic link, which is not followed: remove it"
            ) from None
        try:
            if (owner := owner_to_be(self.path.parent)) is not None:
                give_open(descriptor, owner)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _named(known: Sequence[TokenEntry], wanted: str) -> TokenEntry:
    """Return the token whose id or name is `wanted`. Raises UsageError if there is none."""
    found = next((one for one in known if wanted in (one.id, one.name)), None)
    if found is None:
        raise UsageError(
            f"there is no token {wanted!r:.80}; `arkml hive token list` shows {len(known)}"
        )
    return found


def _entries_in(document: Mapping[str, Any]) -> tuple[TokenEntry, ...]:
    """Return the tokens in the content of a file. Raises TypeError and ValueError."""
    version, entries = document.get("version"), document.get("tokens")
    if version != _VERSION or type(version) is not int:
        raise ValueError(f"it has version {version!r:.20}, and this release reads {_VERSION}")
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise TypeError("it holds no list of tokens")
    read = tuple(TokenEntry.from_json(one) for one in entries)
    if len({one.id for one in read}) < len(read) or len({one.sha256 for one in read}) < len(read):
        raise ValueError("it holds a token twice")
    return read
