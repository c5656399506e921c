"""A host for WebAssembly guests that act with trained policies."""

from __future__ import annotations

from arkml.host import Host

__all__ = ["Host"]
