"""The context, under the module name of Cogment's SDK."""

from __future__ import annotations

from arkml.trials.sdk.program_context import Context

__all__ = ["Context"]
