"""
The OpenAPI document of a hive, from its routes and their structs.

    python -m tools.openapi            write docs/hive_openapi.json of the working directory
    python -m tools.openapi --check    exit 1 if that is out of date
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from arkml.hive.protocol.rows import CONTENT_TYPE
from arkml.hive.protocol.runs import PROTOCOL, ModuleReply, Refusal
from arkml.hive.protocol.session_messages import OutOfTurn, RowsReply
from arkml.hive.protocol.wire import Nothing, WireStruct
from arkml.server.bodies import JSON
from arkml.server.hive_app import OPERATIONS, ROWS_PATH
from arkml.server.module_routes import MODULE_PATH
from arkml.server.monitoring.health import HEALTH_PATH, READY_PATH
from arkml.server.monitoring.prometheus import METRICS_PATH
from arkml.server.routes import PREFIX, TEXT, WASM, WITH_BODY, Operation
from tools.generated_files import GeneratedFiles, command

PATH = "docs/hive_openapi.json"

_REFERENCE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+)\}")
_DESCRIPTION = (
    "Runs, their sessions and what they learn. Written by `make generate` from the routes and the"
    " structs of arkml.hive.protocol; rows have a binary format, see arkml.hive.protocol.rows."
)

Json = dict[str, Any]

_PLAIN = {
    HEALTH_PATH: ("Say that the hive answers.", True),
    READY_PATH: ("Say if the hive takes work: 503 while it ends, or cannot write.", True),
    METRICS_PATH: ("Return the state of the hive for Prometheus, or as OpenMetrics.", False),
}
"""Routes outside of the versions of the protocol: their summaries, and if they need no token."""


def document() -> Json:
    """Return the OpenAPI document, as dicts and lists."""
    kinds: set[type] = {RowsReply, OutOfTurn, ModuleReply, Refusal}
    for operation in OPERATIONS:
        kinds |= {kind for kind in (operation.takes, operation.gives) if isinstance(kind, type)}
    structs = sorted(kinds - {Nothing}, key=lambda kind: kind.__name__)
    references, schemas = msgspec.json.schema_components(structs, ref_template=_REFERENCE)
    named: dict[type, Json] = dict(zip(structs, references, strict=True))
    paths: dict[str, Json] = {
        PREFIX + ROWS_PATH: {"post": _rows(named)},
        PREFIX + MODULE_PATH: {"put": _module(named)},
    }
    for name, (summary, is_open) in _PLAIN.items():
        paths[name] = {"get": _plain(named, summary, is_open=is_open)}
    for operation in OPERATIONS:
        path = paths.setdefault(PREFIX + operation.path, {})
        path[operation.method.lower()] = _described(operation, named, schemas)
    queries = {one.takes.__name__ for one in OPERATIONS if one.method not in WITH_BODY}
    return {
        "openapi": "3.1.0",
        "info": {"title": "arkml hive", "version": str(PROTOCOL), "description": _DESCRIPTION},
        "security": [{"token": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": {name: schemas[name] for name in sorted(schemas.keys() - queries)},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def text() -> str:
    """Return the document as the file has it."""
    return json.dumps(document(), indent=1) + "\n"


def main(arguments: list[str]) -> int:
    """Run the command line. Returns the exit status."""
    return command(arguments, lambda: [GeneratedFiles(Path.cwd(), {PATH: text()})])


def _described(operation: Operation[Any], named: dict[type, Json], schemas: Json) -> Json:
    """Return the description of one operation."""
    summary, _, details = (inspect.getdoc(operation.answer) or "").partition("\n\n")
    described: Json = {"summary": summary, "parameters": _path_parameters(operation.path)}
    if details:
        described["description"] = " ".join(details.split())
    if operation.takes is not Nothing and operation.method in WITH_BODY:
        content = {JSON: {"schema": named[operation.takes]}}
        described["requestBody"] = {"required": True, "content": content}
    elif operation.takes is not Nothing:
        described["parameters"] += _query_parameters(schemas[operation.takes.__name__])
    if operation.key_header:
        header = {"name": operation.key_header, "in": "header", "schema": {"type": "string"}}
        described["parameters"].append(header)
    if operation.is_open:
        described["security"] = []
    responses: Json = {"default": _response(named[Refusal], "refused: one sentence")}
    for status in operation.statuses:
        match operation.gives:
            case _ if status == 204:
                responses[str(status)] = {"description": "nothing newer"}
            case _ if operation.method == "HEAD":
                responses[str(status)] = {"description": summary}
            case str(media_type):
                file = {"description": summary, "content": {media_type: {}}}
                responses[str(status)] = file
            case kind:
                responses[str(status)] = _response(named[kind], _summary(kind))
    return described | {"responses": dict(sorted(responses.items()))}


def _rows(named: dict[type, Json]) -> Json:
    """Return the description of the route that takes rows."""
    return {
        "summary": "Append a body of rows to the log of the session's run.",
        "parameters": _path_parameters(ROWS_PATH),
        "requestBody": {"required": True, "content": {CONTENT_TYPE: {}}},
        "responses": {
            "200": _response(named[RowsReply], _summary(RowsReply)),
            "409": _response(named[OutOfTurn], _summary(OutOfTurn)),
            "default": _response(named[Refusal], "refused: one sentence"),
        },
    }


def _module(named: dict[type, Json]) -> Json:
    """Return the description of the route that takes modules."""
    kept = _response(named[ModuleReply], _summary(ModuleReply))
    return {
        "summary": "Keep a module for rollout workers, by its SHA-256.",
        "parameters": _path_parameters(MODULE_PATH),
        "requestBody": {"required": True, "content": {WASM: {}}},
        "responses": {
            "200": kept,
            "201": kept,
            "default": _response(named[Refusal], "refused: one sentence"),
        },
    }


def _plain(named: dict[type, Json], summary: str, *, is_open: bool) -> Json:
    """Return the description of a route that answers with text."""
    described: Json = {"summary": summary, "parameters": []}
    if is_open:
        described["security"] = []
    text = {"description": summary, "content": {TEXT: {}}}
    refused = _response(named[Refusal], "refused: one sentence")
    return described | {"responses": {"200": text, "default": refused}}


def _response(schema: Json, description: str) -> Json:
    return {"description": description, "content": {JSON: {"schema": schema}}}


def _summary(kind: type[WireStruct]) -> str:
    return (inspect.getdoc(kind) or "").partition("\n")[0]


def _path_parameters(path: str) -> list[Json]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(path)
    ]


def _query_parameters(schema: Json) -> list[Json]:
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": kind}
        for name, kind in schema["properties"].items()
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
