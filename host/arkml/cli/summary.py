"""What a run came to, in numbers, and as the JSON object of `arkml run --json`."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arkml.cli.outcome import error_document
from arkml.cli.timing import Timings

if TYPE_CHECKING:
    from arkml.guests.counts import Statistics


@dataclass(frozen=True, slots=True)
class Summary:
    """
    A finished run.

    `late` is None where frames were not paced; `result` is what a function of numbers returned
    last, `returned` what the last call gave to `return_slice`; `complaints` are the sentences that
    make it a failure.
    """

    guest: str
    kind: str
    function: str
    instances: int
    timings: Timings
    statistics: Statistics
    fps: float | None = None
    late: int | None = None
    failed: int = 0
    result: Any = None
    returned: bytes = b""
    complaints: tuple[str, ...] = ()

    @property
    def actions_per_second(self) -> float:
        """Rows that were answered, by the time the frames took; waiting for --fps is not in it."""
        total = self.timings.total
        return self.statistics.rows / total if total else 0.0

    @property
    def is_of_frames(self) -> bool:
        """Whether its calls are the frames of an applet."""
        return self.function == "ark_applet_update"

    def document(self) -> dict[str, Any]:
        """The summary as JSON knows it."""
        median, p99, longest = self.timings.quantiles(0.5, 0.99, 1.0)
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
            "frame_seconds": {"median": median, "p99": p99, "max": longest},
            "fps": self.fps,
            "late_frames": self.late,
            "errors": dict(sorted(counted.errors.items())),
            "limits": dict(sorted(counted.limits.items())),
            "non_finite_features": counted.non_finite_features,
            "non_finite_actions": counted.non_finite_actions,
            "result": plain(self.result),
            "returned": returned_document(self.returned),
        }


def plain(value: Any) -> Any:
    """A wasm result as JSON knows it; numbers that are not finite become text."""
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def returned_document(data: bytes) -> dict[str, Any] | None:
    """A return slice as text if it is some, else in base64; None if there is none."""
    if not data:
        return None
    text = text_of(data)
    if text is None:
        return {"bytes": len(data), "base64": base64.b64encode(data).decode()}
    return {"bytes": len(data), "text": text}


def text_of(data: bytes) -> str | None:
    """The text in `data`, or None if it is something else."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
