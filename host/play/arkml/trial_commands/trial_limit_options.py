"""The parameters, hooks and limits of `arkml trials serve`, read from its options."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arkml.cli.values import read_count
from arkml.errors import UsageError

if TYPE_CHECKING:
    from arkml.trials.datalog.datalog import DatalogOptions
    from arkml.trials.server.server_options import TrialsOptions


def trials_options(
    params: Path | None, hooks: tuple[str, ...], limits: tuple[str, ...]
) -> TrialsOptions:
    """
    Return the options of a trial server, read from the options of the command.

    Args:
        params: The file of default parameters, None without one.
        hooks: The endpoints of hooks before trials.
        limits: The limits to change, for example "live_trials=100".

    Raises:
        UsageError: A limit cannot be read.
        TrialError: The file or an endpoint cannot be used.

    """
    from arkml.trials.core.parameters import TrialEndpoint
    from arkml.trials.server.parameter_file import read_parameters
    from arkml.trials.server.server_options import TrialsOptions
    from arkml.trials.wire.common_pb2 import TrialParams

    for hook in hooks:
        TrialEndpoint.parse(hook)
    return TrialsOptions(
        params=TrialParams() if params is None else read_parameters(params),
        hooks=hooks,
        limits=_trial_limits(limits),
    )


def _trial_limits(settings: tuple[str, ...]) -> Any:
    from arkml.trials.server.server_options import TrialLimits

    known = [one.name for one in fields(TrialLimits)]
    changed: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in known:
            raise UsageError(f"--limit {setting}: it takes NAME=VALUE, of {', '.join(known)}")
        changed[name] = read_count(name, value)
    return TrialLimits(**changed)


def datalog_options(kept_trials: int, most_bytes: str) -> DatalogOptions:
    """Return the options of a trial log: its limits on trials and bytes. Raises UsageError."""
    from arkml.trials.datalog.datalog import DatalogOptions
    from arkml.trials.datalog.retention import Retention

    return DatalogOptions(Retention(kept_trials, read_count("--most-bytes", most_bytes)))
