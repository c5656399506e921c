"""Classes whose objects are built from configurations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from arkml.base.sealed import Sealed
from arkml.errors import UsageError

Config = TypeVar("Config")
Built = TypeVar("Built")


class Configurable(Sealed, ABC, Generic[Config]):
    """A class whose objects can be built from a configuration, in any thread or process."""

    config_class: ClassVar[Any] = None
    """Class of the configurations, with `load(path)`, for `build_from_path`."""

    @classmethod
    @abstractmethod
    def build(cls, config: Config) -> Self:
        """Build an object from a configuration."""

    @classmethod
    def build_from_path(cls, path: str | Path) -> Self:
        """Build an object from the configuration in a YAML file. Raises UsageError."""
        if cls.config_class is None:
            raise UsageError(
                f"{cls.__name__} cannot be built from {path}: set its attribute `config_class`"
            )
        return cls.build(cls.config_class.load(path))


def class_of(config: object, given: type[Built] | None, keyword: str) -> type[Built]:
    """
    Return `given`, or the class that the configuration's attribute `builds` names.

    Raises UsageError, naming the argument `keyword`, if there is neither.
    """
    named: Any = given if given is not None else getattr(config, "builds", None)
    if named is None:
        raise UsageError(
            f"{config!r} does not name the class that it configures: pass {keyword}=CLASS, or set"
            f" the attribute `builds` of {type(config).__name__}"
        )
    built: type[Built] = named
    return built
