"""Descriptors that expose the fields of a protobuf message as attributes of parameters."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, overload

from google.protobuf.message import Message

from arkml.trials.core.error import TrialError

T = TypeVar("T", str, int, float, bool)


class _RawPath:
    """A field of the message `raw_params`, by its path."""

    def __init__(self, path: str) -> None:
        *self._parents, self._name = path.split(".")

    def _parent(self, owner: Any) -> Any:
        parent = owner.raw_params
        for name in self._parents:
            parent = getattr(parent, name)
        return parent


class RawField(_RawPath, Generic[T]):
    """
    An attribute that reads and writes the field `path` of the message `raw_params`.

    Setting None clears the field. Raises TrialError for a value of another type.
    """

    def __init__(self, kind: type[T], path: str) -> None:
        super().__init__(path)
        self._kind: type[T] = kind

    @overload
    def __get__(self, owner: None, owners: Any) -> RawField[T]: ...
    @overload
    def __get__(self, owner: Any, owners: Any) -> T: ...
    def __get__(self, owner: Any, owners: Any) -> RawField[T] | T:
        if owner is None:
            return self
        value: T = getattr(self._parent(owner), self._name)
        return value

    def __set__(self, owner: Any, value: T | None) -> None:
        parent = self._parent(owner)
        if value is None:
            parent.ClearField(self._name)
            return
        is_number = self._kind is float and type(value) is int
        if type(value) is not self._kind and not is_number:
            raise TrialError(f"Wrong type [{type(value)}] for {self._name}: not {self._kind}")
        try:
            setattr(parent, self._name, value)
        except ValueError as error:
            raise TrialError(f"{value!r} cannot be {self._name}: {error}") from error


class RawContent(_RawPath):
    """
    An attribute with the bytes in the field `content` of the message at `path`.

    It is None if that message is not set.
    """

    @overload
    def __get__(self, owner: None, owners: Any) -> RawContent: ...
    @overload
    def __get__(self, owner: Any, owners: Any) -> bytes | None: ...
    def __get__(self, owner: Any, owners: Any) -> RawContent | bytes | None:
        if owner is None:
            return self
        parent = self._parent(owner)
        if not parent.HasField(self._name):
            return None
        content: bytes = getattr(parent, self._name).content
        return content

    def __set__(self, owner: Any, value: bytes | None) -> None:
        parent = self._parent(owner)
        if value is None:
            parent.ClearField(self._name)
        elif isinstance(value, bytes):
            getattr(parent, self._name).content = value
        else:
            raise TrialError(f"Wrong type [{type(value)}] for {self._name}: not bytes")


def decoded(content: bytes | None, kind: type[Message] | None) -> Message | None:
    """Parse `content` as a message. Raises TrialError if its type is unknown."""
    if content is None:
        return None
    if kind is None:
        raise TrialError("Unknown type to return (was it defined in cogment.yaml?)")
    message = kind()
    message.ParseFromString(content)
    return message


def encoded(value: Message | None, kind: type[Message] | None) -> bytes | None:
    """Return the bytes of a message. Raises TrialError if its type is not `kind`."""
    if value is None:
        return None
    expected = kind or Message
    if not isinstance(value, expected):
        raise TrialError(f"Wrong type [{type(value)}]: not {expected}")
    content: bytes = value.SerializeToString()
    return content


def set_all(target: object, values: dict[str, Any]) -> None:
    """
    Set attributes of an object to values, all or none.

    Raises TrialError for an unknown name, before any is set.
    """
    for name in values:
        known = getattr(type(target), name, None)
        if name.startswith("_") or not hasattr(known, "__set__"):
            raise TrialError(f"Unknown attribute [{name}]")
    for name, value in values.items():
        setattr(target, name, value)
