"""Parameters of one actor, and the list of actors in a trial's parameters."""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence
from typing import Any, overload

from google.protobuf.message import Message

from arkml.base.sealed import Sealed
from arkml.trials.core.error import TrialError
from arkml.trials.sdk.message_specs import ActorClass, CogSettings
from arkml.trials.sdk.raw_fields import RawContent, RawField, decoded, encoded, set_all
from arkml.trials.wire.common_pb2 import ActorParams, TrialParams


class ActorParameters(Sealed):
    """
    The parameters of an actor.

    Args:
        cog_settings: Message types of the project. With None, messages can be set, but read only as
            bytes, by the attribute with `_serialized` at the end of its name.
        class_name: Name of the actor's class; `actor_class` is accepted, too.
        **attributes: Values of other attributes: `name`, `endpoint`, `implementation`, `config`,
            `initial_connection_timeout` and `response_timeout` (seconds, 0 for no limit),
            `optional` and `default_action`.

    Attributes:
        raw_params: The protobuf message behind the attributes.

    Raises:
        TrialError: An attribute is unknown, or a value has another type.

    Example:
        ActorParameters(settings, class_name="pilot", name="ann", endpoint="cogment://client")

    """

    name: RawField[str] = RawField(str, "name")
    endpoint: RawField[str] = RawField(str, "endpoint")
    implementation: RawField[str] = RawField(str, "implementation")
    initial_connection_timeout: RawField[float] = RawField(float, "initial_connection_timeout")
    response_timeout: RawField[float] = RawField(float, "response_timeout")
    optional: RawField[bool] = RawField(bool, "optional")
    config_serialized: RawContent = RawContent("config")
    default_action_serialized: RawContent = RawContent("default_action")

    def __init__(
        self, cog_settings: CogSettings | None, class_name: str | None = None, **attributes: Any
    ) -> None:
        if class_name is None:
            class_name = attributes.pop("actor_class", None)
            if class_name is None:
                raise TrialError("Required attribute 'actor_class' missing")
        if not isinstance(class_name, str):
            raise TrialError(f"Wrong type for 'class_name' [{type(class_name)}]")
        self._cog_settings = cog_settings
        self.raw_params: ActorParams = ActorParams(actor_class=class_name)
        set_all(self, attributes)

    @classmethod
    def of(cls, cog_settings: CogSettings | None, raw: ActorParams) -> ActorParameters:
        """Return parameters that are a live view of the protobuf message `raw`."""
        made = cls(cog_settings, raw.actor_class)
        made.raw_params = raw
        return made

    def __repr__(self) -> str:
        return f"ActorParameters(name={self.name!r}, class_name={self.class_name!r})"

    @property
    def class_name(self) -> str:
        """Name of the actor's class."""
        return self.raw_params.actor_class

    @property
    def actor_class(self) -> str:
        """Name of the actor's class. It can be changed only if `cog_settings` is None."""
        return self.raw_params.actor_class

    @actor_class.setter
    def actor_class(self, value: str) -> None:
        if value == self.actor_class:
            return
        if self._cog_settings is not None:
            raise TrialError(
                f"the actor has the class [{self.actor_class}], which its configuration and its"
                " action go with: make other parameters for another class"
            )
        if not (isinstance(value, str) and value):
            raise TrialError(f"actor_class [{value!r}] is not the name of a class")
        self.raw_params.actor_class = value

    def has_specs(self) -> bool:
        """Return whether `cog_settings`, the message types of the project, are known."""
        return self._cog_settings is not None

    @property
    def actor_class_spec(self) -> ActorClass | None:
        """
        The actor's class, None if `cog_settings` is None. Raises TrialError for an unknown class.
        """
        return self._cog_settings.actor_classes[self.class_name] if self._cog_settings else None

    @property
    def config(self) -> Message | None:
        """Configuration of the actor, None if it is not set."""
        return decoded(self.config_serialized, self._kind("config_type"))

    @config.setter
    def config(self, value: Message | None) -> None:
        self.config_serialized = encoded(value, self._kind("config_type"))

    @property
    def default_action(self) -> Message | None:
        """Action that is used while an optional actor is missing."""
        return decoded(self.default_action_serialized, self._kind("action_space"))

    @default_action.setter
    def default_action(self, value: Message | None) -> None:
        self.default_action_serialized = encoded(value, self._kind("action_space"))

    def _kind(self, name: str) -> type[Message] | None:
        spec = self.actor_class_spec
        kind: type[Message] | None = None if spec is None else getattr(spec, name)
        return kind


class ActorsList(MutableSequence[ActorParameters]):
    """
    The actors in a trial's parameters, by index or by name.

    Items are live views of the trial's parameters; assigned and inserted parameters are copied.
    """

    def __init__(self, cog_settings: CogSettings | None, raw: TrialParams) -> None:
        self._cog_settings = cog_settings
        self.raw_params = raw

    def __len__(self) -> int:
        return len(self.raw_params.actors)

    @overload
    def __getitem__(self, key: int | str) -> ActorParameters: ...
    @overload
    def __getitem__(self, key: slice) -> list[ActorParameters]: ...
    def __getitem__(self, key: int | str | slice) -> ActorParameters | list[ActorParameters]:
        raw = self.raw_params.actors
        if isinstance(key, slice):
            return [ActorParameters.of(self._cog_settings, actor) for actor in raw[key]]
        if isinstance(key, int):
            return ActorParameters.of(self._cog_settings, raw[key])
        for actor in raw:
            if actor.name == key:
                return ActorParameters.of(self._cog_settings, actor)
        raise TrialError(f"Unknown actor name [{key}]")

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, int):
            raise TrialError(f"actors are set one by one, not with [{key}]")
        self.raw_params.actors[key].CopyFrom(_raw(value))

    def __delitem__(self, key: int | slice) -> None:
        del self.raw_params.actors[key]

    def insert(self, index: int, value: ActorParameters) -> None:
        """Insert parameters before `index`."""
        actors = [*self.raw_params.actors]
        actors.insert(index, _raw(value))
        self._replace(actors)

    def set(self, values: Iterable[ActorParameters]) -> None:
        """Replace all actors."""
        self._replace([_raw(value) for value in values])

    def _replace(self, actors: list[ActorParams]) -> None:
        copy = TrialParams(actors=actors)
        self.raw_params.ClearField("actors")
        self.raw_params.actors.MergeFrom(copy.actors)


def _raw(value: object) -> ActorParams:
    if not isinstance(value, ActorParameters):
        raise TrialError(f"Wrong type for actor parameter [{type(value)}]")
    return value.raw_params
