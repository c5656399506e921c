"""The OpenAPI document of a hive: current, complete, and whole in itself."""

import json
from pathlib import Path

from tools import openapi

from arkml.server.hive_app import routes_of

ROOT = Path(__file__).parents[2]


def references_in(value):
    """Every `$ref` below a JSON value."""
    if isinstance(value, dict):
        found = [value["$ref"]] if "$ref" in value else []
        return found + [one for inner in value.values() for one in references_in(inner)]
    if isinstance(value, list):
        return [one for inner in value for one in references_in(inner)]
    return []


def test_the_document_in_docs_is_current(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)

    assert openapi.main(["--check"]) == 0, capsys.readouterr().err


def test_a_document_that_is_out_of_date_fails_the_check_until_it_is_written(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    missing = openapi.main(["--check"])
    (tmp_path / openapi.PATH).write_text("{}")
    stale = openapi.main(["--check"])
    said = capsys.readouterr().err
    openapi.main([])

    assert (missing, stale) == (1, 1)
    assert said == 2 * "docs/hive_openapi.json is out of date: run `make generate`\n"
    assert openapi.main(["--check"]) == 0
    assert openapi.main(["--wrong"]) == 2


def test_every_route_of_the_application_is_in_the_document_and_no_other():
    served = {
        (route.path, method.lower())
        for route in routes_of(None)
        for method in route.methods - ({"HEAD"} if "GET" in route.methods else set())  # added
    }
    described = {
        (path, method)
        for path, methods in openapi.document()["paths"].items()
        for method in methods
    }

    assert served == described


def test_every_reference_in_the_document_leads_to_a_schema_and_every_schema_is_referred_to():
    document = openapi.document()
    names = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}

    assert set(references_in(document)) == names


def test_every_parameter_in_a_path_is_described():
    for path, methods in openapi.document()["paths"].items():
        for operation in methods.values():
            names = [one["name"] for one in operation["parameters"] if one["in"] == "path"]

            assert [f"{{{name}}}" in path for name in names] == [True] * path.count("{")


def test_the_document_is_json_with_the_ranges_of_the_structs():
    settings = json.loads(openapi.text())["components"]["schemas"]["Settings"]

    assert settings["properties"]["batch_size"] == {
        "type": "integer", "minimum": 2, "maximum": 131_072, "default": 256,
    }  # fmt: skip
    assert settings["additionalProperties"] is False
    assert settings["required"] == ["features", "actions"]
