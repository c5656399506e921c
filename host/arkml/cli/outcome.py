"""Why a run that came to its end is a failure all the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from arkml.cli.exits import FAILED, GOOD, print_error
from arkml.cli.launch import Grants
from arkml.cli.task_runner import Player, told
from arkml.terminal import harmless

if TYPE_CHECKING:
    from arkml.guests.counts import Statistics


def complaints_of(grants: Grants, player: Player, instances: int) -> tuple[str, ...]:
    """What is to be said of guests that failed and of a policy that never acted."""
    failed = [told(player.failures, instances)] if player.failures else []
    idle = idle_policy(grants, player.statistics)
    return (*failed, *([idle] if idle else []))


def idle_policy(grants: Grants, statistics: Statistics) -> str | None:
    """What to say of a policy that the user gave and that never acted, as it does not fit."""
    if grants.policy is None or statistics.submits or not statistics.errors:
        return None
    refused = ", ".join(f"{name} {count:,}" for name, count in sorted(statistics.errors.items()))
    return (
        f"{grants.policy} never acted: nothing was submitted, and import calls were refused"
        f" ({refused}); the warnings of the guest say why"
    )


def error_document(complaints: Sequence[str]) -> dict[str, str]:
    """What `--json` adds to its object."""
    return {"error": "\n".join(complaints), "type": "GuestError"} if complaints else {}


def say_complaints(complaints: Sequence[str]) -> int:
    """Put each in a line on stderr, and return the exit code."""
    for complaint in complaints:
        print_error(harmless(complaint))
    return FAILED if complaints else GOOD
