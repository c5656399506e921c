"""Classes that are built from a configuration, and the configuration's way to its class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Self, TypeVar

from arkml.errors import UsageError

Config = TypeVar("Config")
Built = TypeVar("Built")


class Configurable(ABC, Generic[Config]):
    """A class whose objects are built from a configuration, in any thread or process."""

    @classmethod
    @abstractmethod
    def build(cls, config: Config) -> Self:
        """Return an object made by the configuration."""


def class_of(config: object, given: type[Built] | None, keyword: str) -> type[Built]:
    """
    Return `given`, or else the class that the configuration names in its attribute `builds`.

    Raises UsageError if there is neither; `keyword` is the argument for the class.
    """
    named: Any = given if given is not None else getattr(config, "builds", None)
    if named is None:
        raise UsageError(
            f"{config!r} does not name the class that it configures: pass {keyword}=CLASS, or set"
            f" the attribute `builds` of {type(config).__name__}"
        )
    built: type[Built] = named
    return built
