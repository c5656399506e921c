"""The message types of a project: its actor classes and configurations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from google.protobuf.message import Message

from arkml.base.sealed import Sealed
from arkml.trials.core.error import TrialError


class ActorClass(Sealed):
    """
    A class of actors.

    Args:
        name: Name of the class.
        config_type: Message type of an actor's configuration, None without one.
        action_space: Message type of actions.
        observation_space: Message type of observations.

    """

    def __init__(
        self,
        name: str,
        config_type: type[Message] | None,
        action_space: type[Message],
        observation_space: type[Message],
    ) -> None:
        self.name = name
        self.config_type = config_type
        self.action_space = action_space
        self.observation_space = observation_space

    def __repr__(self) -> str:
        return f"ActorClass({self.name!r})"


class ActorClassList(Sealed):
    """
    The actor classes of a project by name, as items (`["pilot"]`) and as attributes (`.pilot`).
    """

    def __init__(self, *classes: ActorClass) -> None:
        self._classes = {actor_class.name: actor_class for actor_class in classes}

    def __iter__(self) -> Iterator[ActorClass]:
        return iter(self._classes.values())

    def __len__(self) -> int:
        return len(self._classes)

    def __contains__(self, name: object) -> bool:
        return name in self._classes

    def __getitem__(self, name: str) -> ActorClass:
        if name not in self._classes:
            known = ", ".join(self._classes) or "none"
            raise TrialError(f"the project has no actor class {name!r}; known: {known}")
        return self._classes[name]

    def __getattr__(self, name: str) -> ActorClass:
        if name.startswith("_") or name not in self._classes:
            raise AttributeError(f"the project has no actor class {name!r}")
        return self._classes[name]

    def get_class_by_index(self, index: int) -> ActorClass:
        """Return the class at an index. Raises TrialError if it is out of range."""
        classes = list(self._classes.values())
        if not 0 <= index < len(classes):
            raise TrialError(f"the project has {len(classes)} actor classes, and none at {index}")
        return classes[index]

    def get(self, key: str, default: ActorClass | None = None) -> ActorClass | None:
        """Return the class with a name, or `default`."""
        return self._classes.get(key, default)


class ConfigSection(Protocol):
    """A section of a project's settings, for the configuration of trials or of environments."""

    @property
    def config_type(self) -> type[Message] | None:
        """Message type of the configuration, None without one."""


class CogSettings(Protocol):
    """The settings of a project, for example a module that `arkml trials generate` has written."""

    @property
    def actor_classes(self) -> ActorClassList:
        """Actor classes of the project."""

    @property
    def trial(self) -> ConfigSection:
        """Section with the type of the trial's configuration."""

    @property
    def environment(self) -> ConfigSection:
        """Section with the type of the environment's configuration."""


def parsed_config(content: bytes, config_type: type[Message] | None, where: str) -> Message:
    """
    Parse a serialized configuration.

    Args:
        content: The serialized message.
        config_type: Type of the message, None if the project names none.
        where: Beginning of the error's sentence.

    Raises:
        TrialError: `config_type` is None.

    """
    if config_type is None:
        raise TrialError(
            f"{where} received config data of unknown type (was it defined in cogment.yaml?)"
        )
    config = config_type()
    config.ParseFromString(content)
    return config
