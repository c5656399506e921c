"""The file of default parameters of trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError

from arkml.base.files import MOST_OF_SETTINGS, read_file
from arkml.base.short_reprs import cut_text
from arkml.base.yaml_documents import load_yaml
from arkml.trials.core.error import TrialError
from arkml.trials.core.parameters import DEFAULT_INACTIVITY, TrialEndpoint, checked
from arkml.trials.wire.common_pb2 import TrialParams

_SECTION = "trial_params"
_UNSET = ("config", "default_action", "trial_config")


def read_parameters(path: Path) -> TrialParams:
    """
    Return the parameters in a YAML file's section `trial_params`; other sections are ignored.

    Configurations and default actions cannot be set in a file, only by hooks and calls. Raises
    TrialError, with the file and the value, for invalid contents.
    """
    try:
        document = load_yaml(read_file(path, most=MOST_OF_SETTINGS))
    except OSError as error:
        raise TrialError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TrialError(f"{path} cannot be read: {error}") from error
    section = document.get(_SECTION) if isinstance(document, dict) else None
    if not isinstance(section, dict):
        raise TrialError(f"{path} has no section {_SECTION}")
    _check_settable(path, section)
    section.setdefault("max_inactivity", DEFAULT_INACTIVITY)
    try:
        params = ParseDict(section, TrialParams())
        return checked(params)
    except (ParseError, TrialError) as error:
        raise TrialError(f"{path}: {cut_text(error)}") from error


def endpoints_of(params: TrialParams) -> frozenset[TrialEndpoint]:
    """Return all endpoints that trial parameters name."""
    names = [params.environment.endpoint, params.datalog.endpoint]
    names += [actor.endpoint for actor in params.actors]
    return frozenset(TrialEndpoint.parse(name) for name in names if name)


def _check_settable(path: Path, section: dict[Any, Any]) -> None:
    actors = section.get("actors")
    parts = [section, section.get("environment"), *(actors if isinstance(actors, list) else ())]
    for part in parts:
        for name in _UNSET:
            if isinstance(part, dict) and name in part:
                raise TrialError(
                    f"{path} sets {name}, which is a message of the spec: a pre-trial hook, or the"
                    " call that starts a trial, can set it"
                )
