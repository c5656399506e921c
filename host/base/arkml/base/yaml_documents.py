"""Reading of untrusted YAML documents, with limits on their expanded size."""

from __future__ import annotations

from typing import Any, Final

import yaml

from arkml.base.files import MOST_OF_SETTINGS
from arkml.base.short_reprs import cut_repr, cut_text

MOST_VALUES: Final = 100_000
"""Values in a document, those of an alias counted again for each use of it."""

_LETTERS_OF_VALUE = 64
"""Characters of a text that count as one value: a longer text counts as several."""

_MOST_LEVELS = 50
_MOST_DIGITS = 1000  # of a number or date, whose conversion takes the square of them
_TEXTS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:binary")
_MISFITS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""The exceptions of PyYAML for a text that is not of its type, such as the date 2001-99-99."""


def load_yaml(content: bytes) -> Any:
    """
    Return the document in YAML of standard types, None if it is empty.

    Anchors, aliases and merge keys may repeat values, but the document with all repetitions has at
    most `MOST_VALUES`. Raises ValueError, with a sentence of one line, for anything else.
    """
    if len(content) > MOST_OF_SETTINGS:
        raise ValueError(f"it has more than {MOST_OF_SETTINGS:,} bytes")
    try:
        loader = _Loader(content)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ValueError(cut_text(error)) from None


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # untyped
    """A loader that counts values before it converts any."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self._values = 0
        self._level = 0
        self._counts: dict[yaml.Node, int] = {}  # values of each node that is complete

    def compose_node(self, parent: Any, index: Any) -> Any:
        before, mark = self._values, self.peek_event().start_mark
        if self.check_event(yaml.AliasEvent):
            node = super().compose_node(parent, index)
            if node not in self._counts:
                raise _refusal("an alias repeats the value that it is part of", mark)
            self._count(self._counts[node], mark)
            return node
        self._level += 1
        if self._level > _MOST_LEVELS:
            raise _refusal(f"it has more than {_MOST_LEVELS} levels", mark)
        self._count(1, mark)
        node = super().compose_node(parent, index)
        if isinstance(node, yaml.ScalarNode):
            self._count(len(node.value) // _LETTERS_OF_VALUE, mark)
            _check_scalar(node)
        self._level -= 1
        self._counts[node] = self._values - before
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except _MISFITS as error:
            kind = node.tag.rpartition(":")[2]
            text = f"{cut_repr(node.value)} is not of type {cut_repr(kind)}"
            raise _refusal(text, node.start_mark) from error

    def _count(self, values: int, mark: yaml.Mark) -> None:
        self._values += values
        if self._values > MOST_VALUES:
            raise _refusal(f"it expands to more than {MOST_VALUES:,} values", mark)


def _check_scalar(node: yaml.ScalarNode) -> None:
    """Refuse half of a surrogate pair, and a number whose conversion would take long."""
    if any("\ud800" <= letter <= "\udfff" for letter in node.value):
        raise _refusal(f"{cut_repr(node.value)} is not Unicode text", node.start_mark)
    if node.tag not in _TEXTS and len(node.value) > _MOST_DIGITS:
        text = f"{cut_repr(node.value)} has more than {_MOST_DIGITS} characters, and is not a text"
        raise _refusal(text, node.start_mark)


def _refusal(problem: str, mark: yaml.Mark) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
