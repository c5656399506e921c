"""Tools for tests of guests: a pytest plugin, the proxy guest and fakes."""

from __future__ import annotations

from importlib import import_module
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arkml.testing.fakes import (
        ConstantPolicy,
        FakeGame,
        MemoryQueue,
        RecordedBatch,
        RecordingPolicies,
        RecordingSink,
    )
    from arkml.testing.proxy import Proxy, proxy_text
    from arkml.testing.threaded import ThreadedFleet, ThreadedGuest, ThreadedHost

__path__ = extend_path(__path__, __name__)

__all__ = [
    "ConstantPolicy",
    "FakeGame",
    "MemoryQueue",
    "Proxy",
    "RecordedBatch",
    "RecordingPolicies",
    "RecordingSink",
    "ThreadedFleet",
    "ThreadedGuest",
    "ThreadedHost",
    "proxy_text",
]

# Imported when first asked for: pytest imports this package in every project of an environment.
_HOMES = {
    "ConstantPolicy": "arkml.testing.fakes",
    "FakeGame": "arkml.testing.fakes",
    "MemoryQueue": "arkml.testing.fakes",
    "Proxy": "arkml.testing.proxy",
    "RecordedBatch": "arkml.testing.fakes",
    "RecordingPolicies": "arkml.testing.fakes",
    "RecordingSink": "arkml.testing.fakes",
    "ThreadedFleet": "arkml.testing.threaded",
    "ThreadedGuest": "arkml.testing.threaded",
    "ThreadedHost": "arkml.testing.threaded",
    "proxy_text": "arkml.testing.proxy",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'arkml.testing' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
