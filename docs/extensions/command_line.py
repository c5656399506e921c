"""The directive `command-line`: the help of every command of arkml, read from the commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True}


class CommandLine(SphinxDirective):
    """A section for each command, with its arguments and options."""

    def run(self) -> list[nodes.Node]:
        from arkml.cli.application import application

        root = typer.main.get_command(application())
        return [self._section(path, command) for path, command in _commands(root)]

    def _section(self, path: str, command: Any) -> nodes.Node:
        section = nodes.section(ids=[path.replace(" ", "-")])
        section += nodes.title(text=path)
        context = command.context_class(command, info_name=path)
        usage = " ".join([path, *command.collect_usage_pieces(context)])
        section += nodes.literal_block(text=usage, language="text")
        for paragraph in (command.help or "").split("\n\n"):
            section += nodes.paragraph(text=" ".join(paragraph.split()))
        rows = [_row(one, context) for one in command.get_params(context)]
        if rows := [row for row in rows if row]:
            section += _table(rows)
        self.state.document.note_explicit_target(section)
        return section


def _commands(root: Any, path: str = "arkml") -> Iterator[tuple[str, Any]]:
    if commands := getattr(root, "commands", None):
        for name, command in commands.items():
            if not command.hidden:
                yield from _commands(command, f"{path} {name}")
    else:
        yield path, root


def _row(parameter: Any, context: Any) -> tuple[str, str] | None:
    """Return what an argument or option is called, and its help; None for a hidden one."""
    record = parameter.get_help_record(context)
    if getattr(parameter, "hidden", False) or record is None:
        return None
    return record[0], " ".join(record[1].split())


def _table(rows: list[tuple[str, str]]) -> nodes.Node:
    group = nodes.tgroup(cols=2)
    group += [nodes.colspec(colwidth=35), nodes.colspec(colwidth=65)]
    body = nodes.tbody()
    for name, text in rows:
        row = nodes.row()
        row += nodes.entry("", nodes.paragraph("", "", nodes.literal(text=name)))
        row += nodes.entry("", nodes.paragraph(text=text))
        body += row
    group += body
    return nodes.table("", group)
