"""Conditions at which a replay stops, such as `reward < -1 and observation[2] > 0.5`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from arkml.base.short_reprs import cut_repr
from arkml.errors import UsageError
from arkml.guests.trace_player import ReplayedSubmit

_MOST_TEXT = 1_000
_MOST_PARTS = 200  # which may lie in each other
_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_SIGNS: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: np.logical_not,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_COUNTED: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_STATES = {"running": 0, "terminal": 1, "interrupted": 2, "initial": 3}
_COLUMNS = {"agent": "id", "state": "state", "reward": "reward"}
_KNOWN = ", ".join(
    ("frame", "rows", *_COLUMNS, *_STATES, "value", "observation[k]", "action[k]", "abs()")
)
_Value: TypeAlias = Callable[[int, ReplayedSubmit | None], Any]
"""Returns the value of a part in a frame and one of its submits: a number, or one a row, [n]."""


class Condition:
    """
    A condition on the rows of a frame; it holds for the frame if it holds for one of the rows.

    It is made of numbers, the names `frame`, `rows` (their number in the submit), `agent`, `state`
    (`initial`, `running`, `terminal` or `interrupted`), `reward`, `value`, `observation[k]` and
    `action[k]`, the operators + - * /, abs(), comparisons, and, or, not, and parentheses. The text
    is parsed, and never run as Python. In a frame without a submit, only `frame` and `rows` have
    values, and rows is 0.
    """

    def __init__(self, text: str) -> None:
        """Parse a condition. Raises UsageError."""
        if not isinstance(text, str) or len(text) > _MOST_TEXT:
            raise UsageError(f"the condition is {cut_repr(text)}: it takes a text, as 'reward < 0'")
        self.text = text
        self._uses_rows = False
        self._parts = 0
        try:
            self._holds = self._part(ast.parse(text.strip(), mode="eval").body)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            told = error.msg if isinstance(error, SyntaxError) else str(error)
            raise UsageError(
                f"the condition {cut_repr(text)} cannot be read ({told}): it takes comparisons, as"
                " 'reward < 0 and observation[2] > 1'"
            ) from None

    def holds(self, frame: int, submits: Sequence[ReplayedSubmit]) -> bool:
        """
        Return whether the condition holds in a frame: for one of its rows, if it is about rows.

        Raises UsageError for the index of an observation or an action that does not exist.
        """
        if not submits:
            return not self._uses_rows and bool(self._holds(frame, None))
        with np.errstate(all="ignore"):
            return any(bool(np.any(self._holds(frame, each))) for each in submits)

    def _part(self, node: ast.expr) -> _Value:
        """Return a function for a part. Raises ValueError for parts that are not allowed."""
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise ValueError(f"it has more than {_MOST_PARTS} parts")
        match node:
            case ast.BoolOp(op=joined, values=parts):
                join = np.logical_and if isinstance(joined, ast.And) else np.logical_or
                return _joined(join, [self._part(part) for part in parts])
            case ast.UnaryOp(op=sign, operand=part) if type(sign) in _SIGNS:
                return _applied(_SIGNS[type(sign)], self._part(part))
            case ast.BinOp(left=left, op=counted, right=right) if type(counted) in _COUNTED:
                values = [_applied(np.float64, self._part(each)) for each in (left, right)]
                return _applied(_COUNTED[type(counted)], *values)
            case ast.Compare(left=left, ops=compared, comparators=others):
                return self._compared(left, compared, others)
            case ast.Constant(value=int() | float() as number):
                return _constant(number)
            case ast.Call(func=ast.Name(id="abs"), args=[part], keywords=[]):
                return _applied(np.abs, self._part(part))
            case ast.Name(id=name) if name in _STATES:
                return _constant(_STATES[name])
            case ast.Name(id="frame"):
                return lambda frame, _: frame
            case ast.Name(id="rows"):
                return lambda _, submit: 0 if submit is None else len(submit.rows)
            case ast.Name(id="value"):
                return self._of_rows(lambda submit: submit.values)
            case ast.Name(id=name) if name in _COLUMNS:
                return self._of_rows(lambda submit: submit.rows[_COLUMNS[name]])
            case ast.Subscript(
                value=ast.Name(id="observation" | "action" as name),
                slice=ast.Constant(value=int() as place),
            ):
                return self._of_rows(lambda submit: self._column(submit, name, place))
            case _:
                raise ValueError(f"{ast.unparse(node)!r} is none of {_KNOWN}")

    def _compared(
        self, left: ast.expr, operators: Sequence[ast.cmpop], others: Sequence[ast.expr]
    ) -> _Value:
        """Return a function for comparisons such as `0 < reward <= 1`."""
        parts = [self._part(each) for each in (left, *others)]
        steps = []
        for place, step in enumerate(operators):
            if type(step) not in _COMPARED:
                raise ValueError("it compares by < <= > >= == !=")
            steps.append(_applied(_COMPARED[type(step)], parts[place], parts[place + 1]))
        return _joined(np.logical_and, steps)

    def _of_rows(self, column: Callable[[ReplayedSubmit], Any]) -> _Value:
        """Return a function for a column of the rows."""
        self._uses_rows = True

        def value(frame: int, submit: ReplayedSubmit | None) -> Any:
            del frame
            assert submit is not None  # `holds` asks for no rows where there are none
            return column(submit)

        return value

    def _column(self, submit: ReplayedSubmit, name: str, place: int) -> Any:
        columns = submit.observations if name == "observation" else submit.actions
        if not 0 <= place < columns.shape[1]:
            raise UsageError(
                f"the condition {cut_repr(self.text)} asks for {name}[{place}]: the guest has"
                f" {columns.shape[1]}, from 0"
            )
        return columns[:, place]


def _constant(number: float) -> _Value:
    return lambda _frame, _submit: number


def _applied(function: Callable[..., Any], *parts: _Value) -> _Value:
    return lambda frame, submit: function(*(part(frame, submit) for part in parts))


def _joined(join: Callable[[Any, Any], Any], parts: Sequence[_Value]) -> _Value:
    return lambda frame, submit: reduce(join, (part(frame, submit) for part in parts))
