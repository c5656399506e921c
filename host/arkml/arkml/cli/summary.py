"""The figures of a finished run, also as the JSON object of `arkml run --json`."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arkml.cli.guest_task import error_document
from arkml.cli.timing import Timings

if TYPE_CHECKING:
    from arkml.guests.counts import Statistics
    from arkml.runtime.account import Usage


@dataclass(frozen=True, slots=True)
class Summary:
    """
    The figures of a finished run.

    `late` is None if frames were not paced; `result` is the last result of a function of numbers,
    `returned` the bytes that the last call passed to `return_slice`; `complaints` are sentences,
    each of which makes the run a failure.
    """

    guest: str
    kind: str
    function: str
    instances: int
    timings: Timings
    statistics: Statistics
    account: Usage
    fps: float | None = None
    late: int | None = None
    failed: int = 0
    result: Any = None
    returned: bytes = b""
    complaints: tuple[str, ...] = ()

    @property
    def actions_per_second(self) -> float:
        """Rows answered per second of the frames, not counting waits for `--fps`."""
        total = self.timings.total
        return self.statistics.rows / total if total else 0.0

    @property
    def is_of_frames(self) -> bool:
        """True if the calls are the frames of an applet."""
        return self.function == "ark_applet_update"

    def document(self) -> dict[str, Any]:
        """Return the summary as a JSON object."""
        median, p99 = self.timings.quantiles(0.5, 0.99)
        counted = self.statistics
        return {
            **error_document(self.complaints),
            "guest": self.guest,
            "kind": self.kind,
            "function": self.function,
            "instances": self.instances,
            "failed": self.failed,
            "frames": len(self.timings),
            "submits": counted.submits,
            "rows": counted.rows,
            "seconds": self.timings.total,
            "actions_per_second": self.actions_per_second,
            "frame_seconds": {"median": median, "p99": p99, "max": self.timings.longest},
            "fps": self.fps,
            "late_frames": self.late,
            "errors": dict(sorted(counted.errors.items())),
            "limits": dict(sorted(counted.limits.items())),
            "refusals": dict(sorted(counted.refusals.items())),
            "account": self.account.as_dict(),
            "non_finite_features": counted.non_finite_features,
            "non_finite_actions": counted.non_finite_actions,
            "result": plain(self.result),
            "returned": returned_document(self.returned),
        }


def plain(value: Any) -> Any:
    """
    Return a wasm result as a JSON value; numbers that are not finite become text, such as `nan`.
    """
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def returned_document(data: bytes) -> dict[str, Any] | None:
    """
    Return a return slice for JSON: as text if it is valid, else in base64; None if it is empty.
    """
    if not data:
        return None
    text = text_of(data)
    if text is None:
        return {"bytes": len(data), "base64": base64.b64encode(data).decode()}
    return {"bytes": len(data), "text": text}


def text_of(data: bytes) -> str | None:
    """Return `data` as text, None if it is not text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
