"""Validated configurations, and their YAML files."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, ClassVar, Self

from arkml.async_trainer.core.config_builder import ConfigBuilder
from arkml.base.files import MOST_OF_SETTINGS, read_file
from arkml.base.short_reprs import cut_repr, cut_text
from arkml.errors import UsageError

CONFIG = "config"
"""Key in the metadata of a field whose value is a configuration itself: its class."""


class YamlConfig:
    """
    A frozen dataclass that can be saved as YAML, created by keywords or with its `builder`.

    Use `dataclasses.replace` to get a changed copy.
    """

    builds: ClassVar[Any] = None
    """Class that this configures, if there is one."""

    @classmethod
    def builder(cls) -> ConfigBuilder[Self]:
        """Return a builder with a method for each field."""
        return ConfigBuilder(cls)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """
        Read a configuration from a file; missing fields have their defaults.

        Raises UsageError if the file cannot be read, or has an unknown field or an invalid value.
        """
        import_yaml()
        from arkml.base.yaml_documents import load_yaml

        try:
            found = load_yaml(read_file(Path(path), most=MOST_OF_SETTINGS))
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
        except ValueError as error:
            raise UsageError(f"{path} is not YAML: {error}") from error
        config: Self = _of_mapping(cls, {} if found is None else found, str(path))
        return config

    def save(self, path: str | Path) -> None:
        """Write the configuration to a file. Raises UsageError if it cannot be written."""
        yaml = import_yaml()
        text = yaml.safe_dump(dataclasses.asdict(self), sort_keys=False)  # type: ignore[call-overload]
        try:
            Path(path).write_text(text)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error


def import_yaml() -> Any:
    """Return the package yaml. Raises UsageError, naming the extra to install, if it is missing."""
    try:
        import yaml
    except ImportError:
        raise UsageError("files of configurations need PyYAML: pip install 'arkml[yaml]'") from None
    return yaml


def check_whole(name: str, value: object, least: int = 0, most: float = math.inf) -> None:
    """Raise UsageError unless a value is an integer from `least` to `most`."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not least <= value <= most:  # type: ignore[operator]
        bounds = f"{least} or more" if math.isinf(most) else f"from {least} to {most}"
        raise UsageError(f"{name} is {cut_repr(value)}, it must be a whole number, {bounds}")


def check_number(name: str, value: object, least: float, most: float = math.inf) -> None:
    """Raise UsageError unless a value is a finite number from `least` to `most`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not least <= value <= most:  # type: ignore[operator, arg-type]
        bounds = f"{least} or more" if math.isinf(most) else f"from {least} to {most}"
        raise UsageError(f"{name} is {cut_repr(value)}, it must be a number, {bounds}")


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise UsageError unless a value is one of `choices`."""
    if value not in choices:
        raise UsageError(
            f"{name} is {cut_repr(value)}, it must be one of {', '.join(map(repr, choices))}"
        )


def _of_mapping(kind: Any, found: object, where: str) -> Any:
    if not isinstance(found, dict):
        raise UsageError(
            f"{where} has {cut_repr(found)} where the fields of {kind.__name__} are expected"
        )
    fields = {field.name: field for field in dataclasses.fields(kind)}
    unknown = [str(name) for name in found if name not in fields]
    if unknown:
        raise UsageError(
            f"{where} has the unknown field {cut_text(', '.join(unknown))}; {kind.__name__} has"
            f" {', '.join(fields) or 'no fields'}"
        )
    values = {
        name: _of_mapping(inner, value, where)
        if (inner := fields[name].metadata.get(CONFIG)) is not None and value is not None
        else value
        for name, value in found.items()
    }
    try:
        return kind(**values)
    except TypeError as error:
        raise UsageError(f"{where} does not make a {kind.__name__}: {cut_text(error)}") from error
