"""Parameters of a trial, written by controllers and pre-trial hooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

from google.protobuf.message import DecodeError, Message

from arkml.base.sealed import Sealed
from arkml.trials.core.error import TrialError
from arkml.trials.sdk.actor_parameters import ActorParameters, ActorsList
from arkml.trials.sdk.message_specs import CogSettings
from arkml.trials.sdk.raw_fields import RawContent, RawField, decoded, encoded, set_all
from arkml.trials.wire.common_pb2 import TrialParams

_SERIALIZATION = 3
"""Number of Cogment's format of serialized parameters."""


class TrialParameters(Sealed):
    """
    The parameters of a trial.

    Args:
        cog_settings: Message types of the project. With None, messages can be set, but read only as
            bytes, by the attribute with `_serialized` at the end of its name.
        **attributes: Values of attributes, such as `config`, `actors`, `max_steps` (ticks after
            which the trial ends, 0 for no limit) and `max_inactivity` (seconds, 0 for no limit).

    Attributes:
        raw_params: The protobuf message behind the attributes.

    Raises:
        TrialError: An attribute is unknown, or a value has another type.

    """

    max_steps: RawField[int] = RawField(int, "max_steps")
    max_inactivity: RawField[int] = RawField(int, "max_inactivity")
    nb_buffered_ticks: RawField[int] = RawField(int, "nb_buffered_ticks")
    datalog_endpoint: RawField[str] = RawField(str, "datalog.endpoint")
    environment_name: RawField[str] = RawField(str, "environment.name")
    environment_endpoint: RawField[str] = RawField(str, "environment.endpoint")
    environment_implementation: RawField[str] = RawField(str, "environment.implementation")
    config_serialized: RawContent = RawContent("trial_config")
    environment_config_serialized: RawContent = RawContent("environment.config")

    def __init__(self, cog_settings: CogSettings | None, **attributes: Any) -> None:
        self._cog_settings = cog_settings
        self.raw_params: TrialParams = TrialParams()
        set_all(self, attributes)

    @classmethod
    def of(cls, cog_settings: CogSettings | None, raw: TrialParams) -> TrialParameters:
        """Return parameters that are a live view of the protobuf message `raw`."""
        made = cls(cog_settings)
        made.raw_params = raw
        return made

    def __repr__(self) -> str:
        return f"TrialParameters({self.raw_params})"

    def has_specs(self) -> bool:
        """Return whether `cog_settings`, the message types of the project, are known."""
        return self._cog_settings is not None

    def get_serialization_type(self) -> int:
        """Return the number of the format that `serialize` writes."""
        return _SERIALIZATION

    def serialize(self) -> bytes:
        """Return the parameters as bytes, a serialized protobuf message."""
        return self.raw_params.SerializeToString()

    def deserialize(self, raw_string: bytes, type: int | None = None) -> None:
        """
        Read parameters that `serialize` has written.

        Raises TrialError for invalid bytes, and for a `type` other than that of `serialize`.
        """
        if type not in (None, _SERIALIZATION):
            raise TrialError(f"Unknown serialization type {type}: there is {_SERIALIZATION}")
        try:
            self.raw_params = TrialParams.FromString(raw_string)
        except (DecodeError, TypeError) as error:
            raise TrialError(f"the bytes are not parameters of a trial: {error}") from error

    @property
    def config(self) -> Message | None:
        """Configuration of the trial, for pre-trial hooks; None if it is not set."""
        return decoded(self.config_serialized, self._kind("trial"))

    @config.setter
    def config(self, value: Message | None) -> None:
        self.config_serialized = encoded(value, self._kind("trial"))

    @property
    def environment_config(self) -> Message | None:
        """Configuration of the environment, None if it is not set."""
        return decoded(self.environment_config_serialized, self._kind("environment"))

    @environment_config.setter
    def environment_config(self, value: Message | None) -> None:
        self.environment_config_serialized = encoded(value, self._kind("environment"))

    @property
    def properties(self) -> MutableMapping[str, str]:
        """Properties of the trial, a mutable mapping."""
        properties: MutableMapping[str, str] = self.raw_params.properties
        return properties

    @properties.setter
    def properties(self, value: Mapping[str, str] | None) -> None:
        wanted = TrialParams(properties=value or {})
        self.raw_params.properties.clear()
        self.raw_params.properties.update(wanted.properties)

    @property
    def datalog_exclude_fields(self) -> tuple[str, ...]:
        """Names of the fields to leave out of samples."""
        return tuple(self.raw_params.datalog.exclude_fields)

    @datalog_exclude_fields.setter
    def datalog_exclude_fields(self, value: Iterable[str] | None) -> None:
        wanted = list(value or ())
        for name in wanted:
            if not isinstance(name, str):
                raise TrialError(f"Wrong type for field name [{type(name)}]")
        self.raw_params.datalog.exclude_fields[:] = wanted

    @property
    def actors(self) -> ActorsList:
        """Actors of the trial, a mutable list."""
        return ActorsList(self._cog_settings, self.raw_params)

    @actors.setter
    def actors(self, value: Iterable[ActorParameters] | None) -> None:
        self.actors.set(value or ())

    def _kind(self, section: str) -> type[Message] | None:
        if self._cog_settings is None:
            return None
        kind: type[Message] | None = getattr(self._cog_settings, section).config_type
        return kind


class PrehookSession(Sealed):
    """
    The start of one trial, given to the implementation of a pre-trial hook.

    Args:
        trial_id: Id of the trial.
        user_id: Id of the user who starts it.
        trial_parameters: The parameters. The hook changes or replaces them, for the next hook or
            the trial itself.

    """

    def __init__(self, trial_id: str, user_id: str, trial_parameters: TrialParameters) -> None:
        self._trial_id = trial_id
        self._user_id = user_id
        self.trial_parameters = trial_parameters

    def __repr__(self) -> str:
        return f"PrehookSession(trial_id={self._trial_id!r}, user_id={self._user_id!r})"

    def validate(self) -> None:
        """Raise TrialError unless `trial_parameters` is a TrialParameters."""
        if not isinstance(self.trial_parameters, TrialParameters):
            raise TrialError(
                f"trial_parameters are {self.trial_parameters!r}, and not TrialParameters"
            )

    def get_trial_id(self) -> str:
        """Return the id of the trial that starts."""
        return self._trial_id

    def get_user_id(self) -> str:
        """Return the id of the user who starts the trial."""
        return self._user_id
