"""How much of each limit a guest has used, as far as its host knows."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from arkml.cli.units import duration, size
from arkml.guests.guest import calls_of
from arkml.limits import Budget, Limits, call_limits

if TYPE_CHECKING:
    from arkml.guests.guest import Guest

Number = int | float

_SECONDS = "_seconds"
_BYTES = ("_bytes", "wasm_stack")


@dataclass(frozen=True, slots=True)
class LimitUse:
    """
    One of `Limits`, such as `memory_bytes`, and the most of it that was in use at once.

    `limit` is None where there is none, `used` where it is not known.
    """

    name: str
    limit: Number | None
    used: Number | None

    def cells(self) -> tuple[str, str, str]:
        """Return the name, the limit and its use as text."""
        limit = "none" if self.limit is None else self._text(self.limit)
        return self.name, limit, "-" if self.used is None else self._text(self.used)

    def document(self) -> dict[str, Number | None]:
        """Return the limit and its use as a JSON object."""
        return {"limit": self.limit, "used": self.used}

    def _text(self, number: Number) -> str:
        if self.name.endswith(_SECONDS):
            return duration(number)
        return size(int(number)) if self.name.endswith(_BYTES) else f"{number:,}"


class LimitUses:
    """
    The most that a guest has used of its limits, measured at each call of `note`.

    `budget` is the time budget of the guest's calls, `compile_seconds` the time that its module
    took to compile.
    """

    def __init__(self, guest: Guest, budget: Budget, compile_seconds: float) -> None:
        instance = calls_of(guest).instance
        self._guest = guest
        self._services = instance.services
        run_seconds, call_seconds = call_limits(instance.limits, budget)
        self._limits: Mapping[str, Any] = {
            **asdict(instance.limits), "run_seconds": run_seconds, "call_seconds": call_seconds,
        }  # fmt: skip
        self._charged = guest.account.run_seconds
        self._began = time.perf_counter()
        self._most: dict[str, Number] = {
            "module_bytes": guest.module.info.size, "compile_seconds": compile_seconds,
            "instances": 1, "run_seconds": 0.0, "call_seconds": 0.0,
        }  # fmt: skip
        self._note_present()

    def begin(self) -> None:
        """Note that a call begins."""
        self._charged = self._guest.account.run_seconds
        self._began = time.perf_counter()

    def note(self) -> None:
        """Note the resources that the guest has used, at the end of a call."""
        self._keep("call_seconds", time.perf_counter() - self._began)
        self._keep("run_seconds", self._guest.account.run_seconds - self._charged)
        self._note_present()

    def all(self) -> Sequence[LimitUse]:
        """Return the use of every limit, in the order of `Limits`."""
        return [
            LimitUse(field.name, self._limits[field.name], self._most.get(field.name))
            for field in fields(Limits)
        ]

    def most(self, name: str) -> Number:
        """Return the most that was used of a limit. Raises KeyError if it is not known."""
        return self._most[name]

    def _note_present(self) -> None:
        account = self._guest.account
        self._keep("memory_bytes", account.memory_bytes)
        self._keep("column_bytes", account.column_bytes)
        self._keep("guest_bytes", account.total_bytes)
        self._keep("host_bytes", account.total_bytes)
        self._keep("handles", self._guest.live_handles)
        self._keep("futures", self._services.live_futures)
        self._keep("requests", len(self._services.requests))

    def _keep(self, name: str, number: Number) -> None:
        self._most[name] = max(self._most.get(name, 0), number)
