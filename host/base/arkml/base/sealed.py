"""Objects that refuse unknown attributes."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import Any, ClassVar, get_args, get_type_hints

_PACKAGE = __name__.partition(".")[0]


class Sealed:
    """
    A mixin that refuses unknown attributes, which would silently do nothing.

    After `__init__`, only attributes that exist, that the class has or annotates, or that are
    private, such as `_name`, can be set; with `_is_read_only` only properties with a setter. No
    attribute can be deleted. Classes that programs derive are not restricted.
    """

    _is_read_only: ClassVar[bool] = False
    _is_sealed = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if ("__init__" in cls.__dict__ or cls.__init__ is object.__init__) and _is_ours(cls):
            setattr(cls, "__init__", _sealing(cls.__init__))  # noqa: B010  a method, to type checkers

    def __setattr__(self, name: str, value: Any) -> None:
        if name[0] != "_" and self._is_sealed:
            _require_settable(self, name)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if name[0] != "_" and self._is_sealed:
            raise AttributeError(
                f"a {type(self).__name__} keeps {name!r}: nothing of it is deleted"
            )
        super().__delattr__(name)


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == _PACKAGE


def _sealing(init: Any) -> Any:
    """Return an initializer that seals the object at its end, unless a subclass's called it."""

    @wraps(init)
    def initialize(self: Any, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        kind = type(self)
        if kind.__init__ is initialize and _is_ours(kind):
            self._is_sealed = True

    return initialize


def _require_settable(item: Sealed, name: str) -> None:
    """Raise AttributeError if an object does not accept an attribute."""
    kind = type(item)
    if isinstance(getattr(kind, name, None), property):
        return  # a property without a setter raises by itself
    is_known = name in item.__dict__ or hasattr(kind, name)
    if not item._is_read_only and (is_known or _is_annotated(kind, name)):  # noqa: SLF001
        return
    why = "is read-only" if is_known else "is not one of its attributes"
    way = f"; give it when you make one: {kind.__name__}({name}=...)" if _takes(kind, name) else ""
    raise AttributeError(f"a {kind.__name__} takes no {name!r}: it {why}{way}")


def _is_annotated(kind: type, name: str) -> bool:
    return any(name in inspect.get_annotations(base) for base in kind.__mro__)


def _takes(kind: type, name: str) -> bool:
    """Return whether a class has an initializer argument of this name."""
    for parameter in inspect.signature(kind).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            options = get_args(get_type_hints(kind.__init__).get(parameter.name))  # type: ignore[misc]
            if any(name in getattr(one, "__annotations__", ()) for one in options):
                return True
        elif parameter.name == name:
            return True
    return False
