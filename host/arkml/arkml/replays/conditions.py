"""Conditions at which a replay stops, such as `reward < -1 and observation[2] > 0.5`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from arkml.base.short_reprs import cut_repr
from arkml.errors import UsageError
from arkml.guests.trace_player import ReplayedSubmit

_MOST_TEXT = 1_000
_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_COUNTED: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_STATES = {"running": 0, "terminal": 1, "interrupted": 2, "initial": 3}
_COLUMNS = {"agent": "id", "state": "state", "reward": "reward"}
_NAMES = ("frame", "rows", "value", *_COLUMNS, *_STATES)
_INDEXED = ("observation", "action")


class Condition:
    """
    A condition on the rows of a frame, which holds if it holds for one row.

    It is made of numbers, the names `frame`, `rows` (their number in the submit), `agent`, `state`
    (`initial`, `running`, `terminal` or `interrupted`), `reward`, `value`, `observation[k]` and
    `action[k]`, the operators + - * /, abs(), comparisons, and, or, not, and parentheses. The text
    is parsed, and never run as Python. In a frame without a submit, only `frame` and `rows` have
    values, and rows is 0.
    """

    def __init__(self, text: str) -> None:
        """Parse a condition. Raises UsageError."""
        self.text = text
        if not isinstance(text, str) or len(text) > _MOST_TEXT:
            raise UsageError(f"the condition is {cut_repr(text)}: it takes a text, as 'reward < 0'")
        try:
            self._node = ast.parse(text.strip(), mode="eval").body
            self._uses_rows = self._check(self._node)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            told = error.msg if isinstance(error, SyntaxError) else str(error)
            raise UsageError(
                f"the condition {cut_repr(text)} cannot be read ({told}): it takes comparisons, as"
                " 'reward < 0 and observation[2] > 1'"
            ) from None

    def holds(self, frame: int, submits: tuple[ReplayedSubmit, ...]) -> bool:
        """
        Return whether it holds in a frame, for one of its rows if it is about rows.

        Raises UsageError for the number of an observation or an action that there is not.
        """
        if not submits:
            return not self._uses_rows and bool(np.any(self._value(self._node, frame, None)))
        with np.errstate(all="ignore"):
            return any(np.any(self._value(self._node, frame, each)) for each in submits)

    def _check(self, node: ast.expr) -> bool:
        """Return whether a part is about rows. Raises ValueError for what is not allowed."""
        match node:
            case ast.BoolOp(values=parts):
                return any([self._check(part) for part in parts])
            case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd(), operand=part):
                return self._check(part)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _COUNTED:
                return any([self._check(left), self._check(right)])
            case ast.Compare(left=left, ops=ops, comparators=others) if all(
                type(op) in _COMPARED for op in ops
            ):
                return any([self._check(part) for part in (left, *others)])
            case ast.Constant(value=int() | float()):
                return False
            case ast.Name(id=name) if name in _NAMES:
                return name not in ("frame", "rows", *_STATES)
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(place))) if (
                name in _INDEXED and not isinstance(place, bool)
            ):
                return True
            case ast.Call(func=ast.Name(id="abs"), args=[part], keywords=[]):
                return self._check(part)
        known = ", ".join((*_NAMES, *(f"{name}[k]" for name in _INDEXED)))
        raise ValueError(f"{ast.unparse(node)!r} is not one of {known}, or a comparison of them")

    def _value(self, node: ast.expr, frame: int, submit: ReplayedSubmit | None) -> Any:
        """Return the value of a part: a number, or one for each row, [n]."""

        def value(part: ast.expr) -> Any:
            return self._value(part, frame, submit)

        match node:
            case ast.BoolOp(op=op, values=parts):
                join = np.logical_and if isinstance(op, ast.And) else np.logical_or
                joined = value(parts[0])
                for part in parts[1:]:
                    joined = join(joined, value(part))
                return joined
            case ast.UnaryOp(op=ast.Not(), operand=part):
                return np.logical_not(value(part))
            case ast.UnaryOp(op=op, operand=part):
                return -value(part) if isinstance(op, ast.USub) else value(part)
            case ast.BinOp(left=left, op=op, right=right):
                return _COUNTED[type(op)](np.float64(value(left)), value(right))
            case ast.Compare(left=left, ops=ops, comparators=others):
                holds: Any = True
                before = value(left)
                for op, other in zip(ops, others, strict=True):
                    after = value(other)
                    holds = np.logical_and(holds, _COMPARED[type(op)](before, after))
                    before = after
                return holds
            case ast.Constant(value=number):
                return number
            case ast.Call(args=[part]):
                return np.abs(value(part))
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(place))):
                return self._column(name, place, submit)
            case ast.Name(id=name):
                return self._named(name, frame, submit)
        raise AssertionError(node)  # `_check` has refused it

    def _named(self, name: str, frame: int, submit: ReplayedSubmit | None) -> Any:
        if name in _STATES:
            return _STATES[name]
        if name == "frame":
            return frame
        if submit is None:
            return 0
        if name == "rows":
            return len(submit.rows)
        if name == "value":
            return submit.values
        return submit.rows[_COLUMNS[name]]

    def _column(self, name: str, place: int, submit: ReplayedSubmit | None) -> Any:
        assert submit is not None  # `holds` asks for no rows where there are none
        columns = submit.observations if name == "observation" else submit.actions
        if not 0 <= place < columns.shape[1]:
            raise UsageError(
                f"the condition {cut_repr(self.text)} asks for {name}[{place}]: the guest has"
                f" {columns.shape[1]}, from 0"
            )
        return columns[:, place]
