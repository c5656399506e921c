"""The spec file of a project, cogment.yaml, with its message types and actor classes."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from arkml.base.short_reprs import cut_repr
from arkml.trials.core.error import TrialError

LARGEST: Final = 1 << 20
"""Maximum size of a spec file in bytes."""

_PROTO = re.compile(r"(?:[A-Za-z_][\w-]*/)*[A-Za-z_][\w-]*\.proto", re.ASCII)
_TYPE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class ActorClassEntry:
    """An actor class, with the names of its message types."""

    name: str
    action_space: str
    observation_space: str
    config_type: str | None


@dataclass(frozen=True, slots=True)
class SpecFile:
    """A spec file whose entries are checked; the message types it names may still be unknown."""

    path: Path
    protos: tuple[str, ...]
    trial_config: str | None
    environment_config: str | None
    actor_classes: tuple[ActorClassEntry, ...]

    def types(self) -> dict[str, str]:
        """Return the names of message types in the file, by the path of the entry that has each."""
        named = {
            "trial.config_type": self.trial_config,
            "environment.config_type": self.environment_config,
        }
        for actor_class in self.actor_classes:
            entry = f"actor class {cut_repr(actor_class.name)}"
            named[f"{entry}, action.space"] = actor_class.action_space
            named[f"{entry}, observation.space"] = actor_class.observation_space
            named[f"{entry}, config_type"] = actor_class.config_type
        return {entry: name for entry, name in named.items() if name is not None}


def read_spec(path: Path) -> SpecFile:
    """
    Read and check a spec file.

    Raises TrialError with the missing or invalid entry.
    """
    document = _section(_loaded(path), path, "the file")
    imports = _section(document.get("import"), path, "'import'")
    for language in ("python", "javascript"):
        if imports.get(language):
            raise TrialError(
                f"{path}: 'import.{language}' is not supported since Cogment 2.0: remove it"
            )
    return SpecFile(
        path=path,
        protos=_protos(imports.get("proto"), path),
        trial_config=_config_type(document, "trial", path),
        environment_config=_config_type(document, "environment", path),
        actor_classes=_actor_classes(document.get("actor_classes"), path),
    )


def _loaded(path: Path) -> object:
    from arkml.base.yaml_documents import load_yaml

    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise TrialError(f"cannot read the spec file {path}: {error.strerror}") from error
    if len(content) > LARGEST:
        raise TrialError(f"{path} has more than {LARGEST} bytes: it is not a spec file")
    try:
        return load_yaml(content)
    except ValueError as error:
        raise TrialError(f"{path} is not YAML: {error}") from error


def _section(value: object, path: Path, entry: str) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise TrialError(f"{path}: {entry} must be a mapping, got {_shown(value)}")
    return value


def _protos(value: object, path: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise TrialError(f"{path}: 'import.proto' must list .proto files, got {_shown(value)}")
    for name in value:
        if not isinstance(name, str) or not _PROTO.fullmatch(name):
            raise TrialError(
                f"{path}: 'import.proto' has {_shown(name)}: name a .proto file below the folder of"
                " the spec file, of letters, digits, '_' and '-'"
            )
        if not _is_file(path.parent / name):
            raise TrialError(f"{path}: 'import.proto' names {cut_repr(name)}, which is not a file")
    return tuple(dict.fromkeys(value))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # the name is too long
        return False


def _config_type(document: Mapping[Any, Any], entry: str, path: Path) -> str | None:
    if document.get(entry) is None:
        return None
    section = _section(document[entry], path, f"{entry!r}")
    return _optional_type(section.get("config_type"), path, f"'{entry}.config_type'")


def _actor_classes(value: object, path: Path) -> tuple[ActorClassEntry, ...]:
    if value is None:
        value = []
    if not isinstance(value, list):
        raise TrialError(f"{path}: 'actor_classes' must be a list, got {_shown(value)}")
    found: dict[str, ActorClassEntry] = {}
    for entry in value:
        actor_class = _actor_class(_section(entry, path, "an entry of 'actor_classes'"), path)
        if actor_class.name in found:
            raise TrialError(f"{path}: two actor classes are called {cut_repr(actor_class.name)}")
        found[actor_class.name] = actor_class
    return tuple(found.values())


def _actor_class(entry: Mapping[Any, Any], path: Path) -> ActorClassEntry:
    name = entry.get("name")
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise TrialError(
            f"{path}: an actor class is called {_shown(name)}: its name must be an identifier"
        )
    where = f"actor class {cut_repr(name)}"
    action = _section(entry.get("action"), path, f"'action' of {where}")
    observation = _section(entry.get("observation"), path, f"'observation' of {where}")
    for removed in ("delta", "delta_apply_fn"):
        if observation.get(removed) is not None:
            raise TrialError(
                f"{path}: 'observation.{removed}' of {where} is not supported since Cogment 2.0:"
                " remove it"
            )
    return ActorClassEntry(
        name,
        _type(action.get("space"), path, f"'action.space' of {where}"),
        _type(observation.get("space"), path, f"'observation.space' of {where}"),
        _optional_type(entry.get("config_type"), path, f"'config_type' of {where}"),
    )


def _optional_type(value: object, path: Path, entry: str) -> str | None:
    return None if value is None else _type(value, path, entry)


def _type(value: object, path: Path, entry: str) -> str:
    if not isinstance(value, str) or not _TYPE.fullmatch(value):
        raise TrialError(
            f"{path}: {entry} must name a message type as package.Message, got {_shown(value)}"
        )
    return value


def _shown(value: object) -> str:
    return "nothing" if value is None else cut_repr(value)
