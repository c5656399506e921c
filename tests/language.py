"""Rules of plain English, and the texts of modules and guides to which they apply."""

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

PLACEHOLDER = "{}"
LOGGING = {"debug", "info", "warning", "error", "exception", "critical", "log", "say"}
EXCEPTIONS = {
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
}


class Rule(NamedTuple):
    """A refused pattern, with a sentence that contains it and one that does not."""

    name: str
    pattern: re.Pattern[str]
    bad: str
    good: str

    def finds(self, text: str) -> Iterator[re.Match[str]]:
        return self.pattern.finditer(text)


def _rule(name: str, pattern: str, bad: str, good: str) -> Rule:
    return Rule(name, re.compile(pattern, re.IGNORECASE), bad, good)


OPENINGS = (
    _rule(
        "opens with a question word",
        r"\A\s*(?:what|how|whether|who|where|which|why)\b",
        "What is within the bounds.",
        "Return the mask of values within the bounds.",
    ),
    _rule(
        "opens with 'The same'",
        r"\A\s*the same\b",
        "The same for a guest that was run.",
        "Return the same decision again.",
    ),
)
WORDS = (
    _rule(
        "nobody, somebody, everybody, whoever",
        r"\b(?:nobody|somebody|everybody|whoever)\b",
        "Drop all agents; nobody is told.",
        "Drop all agents without reporting them.",
    ),
    _rule(
        "goes on",
        r"\b(?:go|goes|gone|went)\s+on\b",
        "A guest that is gone on with.",
        "A guest that is resumed.",
    ),
    _rule(
        "so many, so often",
        r"\bso\s+(?:many|often)\b",
        "Return so many bytes.",
        "Return `size` bytes.",
    ),
    _rule(
        "is no",
        r"(?<!\bthere\s)\bis\s+no\b(?!\s+longer\b)",
        "text is no address of a hive",
        "there is no hive at this address, and it is no longer asked",
    ),
    _rule(
        "of ours, of theirs",
        r"\bof\s+(?:ours|theirs)\b",
        "A thread of ours.",
        "A thread of this package.",
    ),
    _rule(
        "tells of, says of",
        r"\b(?:tells?|says?)\s+of\b",
        "The record says of a run what it is.",
        "The record describes a run.",
    ),
)


class Finding(NamedTuple):
    """A place where a text breaks a rule."""

    line: int
    rule: str
    text: str

    def at(self, path: Path) -> str:
        return f"{path}:{self.line}: {self.rule}: {self.text}"


class Text(NamedTuple):
    """A docstring or message; `opening` is false for a part that stands inside another one."""

    line: int
    value: str
    opening: bool = True


def findings(texts: Iterable[Text]) -> list[Finding]:
    """Return the places of `texts` that break a rule, by line."""
    found = []
    for line, value, opening in texts:
        rules = OPENINGS + WORDS if opening else WORDS
        for rule in rules:
            for match in rule.finds(value):
                before = value.count("\n", 0, match.start())
                found.append(Finding(line + before, rule.name, _excerpt(value, match)))
    return sorted(found)


def _excerpt(value: str, match: re.Match[str]) -> str:
    start, end = max(0, match.start() - 40), match.end() + 40
    return " ".join(value[start:end].split())


def docstrings(tree: ast.Module) -> Iterator[Text]:
    """Yield the docstrings of a module, its classes, functions and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(value))):
                yield Text(node.lineno, value)


def messages(tree: ast.Module, exceptions: frozenset[str]) -> Iterator[Text]:
    """Yield the literals given to errors, loggers and `help=`.

    `exceptions` are the names of error classes and of functions that return errors.
    """
    reader = _MessageReader(_constants(tree), exceptions)
    seen = set()
    for node in ast.walk(tree):
        for text in reader.of(node):
            if text not in seen:
                seen.add(text)
                yield text


def exceptions_of(trees: Iterable[ast.Module]) -> frozenset[str]:
    """Return the names of the error classes of `trees`, and of functions that return errors."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    bases = {
        node.name: {_last_name(base) for base in node.bases}
        for node in nodes
        if isinstance(node, ast.ClassDef)
    }
    names, before = set(EXCEPTIONS), 0
    while len(names) != before:
        before = len(names)
        names |= {name for name, above in bases.items() if above & names}
    builders = {
        node.name
        for node in nodes
        if isinstance(node, ast.FunctionDef)
        and node.returns is not None
        and _last_name(node.returns) in names
    }
    return frozenset(names | builders)


def prose(markdown: str) -> Text:
    """Return the running text of a guide, its code blanked and its lines kept."""
    without_blocks = re.sub(
        r"^(```|~~~).*?^\1",
        lambda block: "\n" * block.group().count("\n"),
        markdown,
        flags=re.MULTILINE | re.DOTALL,
    )
    return Text(1, re.sub(r"`[^`\n]*`", "`code`", without_blocks), opening=False)


class _MessageReader:
    """Finds the message literals at a node."""

    def __init__(self, constants: dict[str, ast.expr], exceptions: frozenset[str]) -> None:
        self._constants = constants
        self._exceptions = exceptions

    def of(self, node: ast.AST) -> Iterator[Text]:
        match node:
            case ast.Raise(exc=ast.Call(args=arguments, keywords=keywords)):
                yield from self._all(arguments, keywords)
            case ast.Call(func=function, args=arguments, keywords=keywords):
                if self._takes_a_message(function):
                    yield from self._all(arguments, keywords)
                for keyword in keywords:
                    if keyword.arg == "help":
                        yield from self._texts(keyword.value)

    def _takes_a_message(self, function: ast.expr) -> bool:
        match function:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="__init__"):
                return True
            case ast.Attribute(value=owner, attr=method) if method in LOGGING:
                return "log" in _last_name(owner).lower()
        name = _last_name(function)
        return name in self._exceptions or name.endswith(("Error", "Exception", "Warning"))

    def _all(self, arguments: list[ast.expr], keywords: list[ast.keyword]) -> Iterator[Text]:
        for argument in [*arguments, *(keyword.value for keyword in keywords)]:
            yield from self._texts(argument)

    def _texts(self, node: ast.expr, *, opening: bool = True) -> Iterator[Text]:
        match node:
            case ast.Constant(value=str(value)):
                yield Text(node.lineno, value, opening)
            case ast.JoinedStr(values=parts):
                yield Text(node.lineno, "".join(_literal(part) for part in parts), opening)
                for part in parts:
                    if isinstance(part, ast.FormattedValue):
                        yield from self._texts(part.value, opening=False)
            case ast.Name(id=name) if name in self._constants:
                yield from self._texts(self._constants[name], opening=opening)
            case ast.BinOp(left=left, right=right):
                yield from self._texts(left, opening=opening)
                yield from self._texts(right, opening=False)
            case ast.IfExp(body=body, orelse=other):
                yield from self._texts(body, opening=opening)
                yield from self._texts(other, opening=opening)
            case ast.BoolOp(values=values):
                for value in values:
                    yield from self._texts(value, opening=opening)
            case ast.Call(func=ast.Attribute(value=owner), args=arguments):
                yield from self._texts(owner, opening=opening)
                for argument in arguments:
                    yield from self._texts(argument, opening=False)


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    return {
        target.id: statement.value
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Constant | ast.JoinedStr)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }


def _literal(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else PLACEHOLDER


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
            return name
    return ""
