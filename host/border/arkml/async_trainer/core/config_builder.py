"""Builders of configurations, with a setter for each field, as in Rust's border."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any, Generic, Self, TypeVar

from arkml.errors import UsageError

Config = TypeVar("Config")


class ConfigBuilder(Generic[Config]):
    """
    Builder of a configuration: a method for each field, and `build`.

    Rust allows a field and its setter to share a name; Python does not, so setters are methods of
    this class. Each returns a new builder and leaves the original unchanged. Fields that are not
    set have their defaults.

    Args:
        kind: Dataclass to build.
        values: Initial values of its fields.

    Example:
        config = TrainerConfig.builder().max_opts(1_000).eval_interval(100).build()

    """

    __slots__ = ("_kind", "_name", "_values")

    def __init__(self, kind: type[Config], values: Mapping[str, Any] | None = None) -> None:
        """Begin with the defaults of `kind`, a dataclass, and the given values of its fields."""
        self._kind = kind
        self._name = kind.__name__
        self._values = dict(values or {})

    def build(self) -> Config:
        """
        Return the configuration.

        Raises UsageError for an invalid value, and for a required field that is not set.
        """
        unset = [
            field.name
            for field in self._fields()
            if field.default is dataclasses.MISSING
            and field.default_factory is dataclasses.MISSING
            and field.name not in self._values
        ]
        if unset:
            raise UsageError(
                f"{self._name} has no default for {', '.join(unset)}: call"
                f" {', '.join(f'.{name}(…)' for name in unset)} before .build()"
            )
        return self._kind(**self._values)

    def __getattr__(self, name: str) -> Callable[[Any], Self]:
        """Return the setter of a field. Raises AttributeError for another name."""
        if name.startswith("__") or name in self.__slots__:  # copy and pickle probe for them
            raise AttributeError(name)
        setters = self._setters()
        if name not in setters:
            near = get_close_matches(name, setters, 1)
            known = ", ".join([*setters, "build"])
            way = f"did you mean {near[0]!r}?" if near else f"it has {known}"
            raise AttributeError(f"the builder of {self._name} has no {name!r}: {way}")
        return partial(self._with, name)

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *self._setters()]

    def __repr__(self) -> str:
        values = "".join(f".{name}({value!r})" for name, value in self._values.items())
        return f"{self._name}.builder(){values}"

    def _with(self, name: str, value: Any, /) -> Self:
        return type(self)(self._kind, {**self._values, name: value})

    def _fields(self) -> tuple[dataclasses.Field[Any], ...]:
        kind: Any = self._kind
        return dataclasses.fields(kind)

    def _setters(self) -> list[str]:
        return [field.name for field in self._fields()]
