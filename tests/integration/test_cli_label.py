"""`arkml hive label`, and what `list` and `show` say of it."""

import pytest
from tests.integration.command_line import arkml
from tests.integration.hive_service import Service, request, start_hive


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with start_hive(tmp_path_factory.mktemp("hive")) as hive:
        service = Service(hive)
        yield service
        service.close()


@pytest.fixture
def ask(service):
    """Ask the hive as a person would."""
    address = service.base.removeprefix("http://").removesuffix("/v1")
    variables = {"ARKML_HIVE_TOKEN": service.token, "COLUMNS": "160"}
    return lambda *words, **more: arkml("hive", *words, "--hive", address, **variables, **more)


def made(service, name, **more):
    answer = service.post("/runs", {**request(name), **more})
    return answer.json()["run"]["id"]


def test_a_run_is_labeled_listed_and_shown(service, ask):
    run = made(service, "first", origin={"command": "arkml train npc.wasm", "git": "v1-dirty"})
    made(service, "second")
    said = ask("label", "first", "--title", "the good one", "--tag", "a", "--tag", "b", "--star",
               "--note", "line 1\nline 2")  # fmt: skip
    ask("label", "first", "--untag", "a", "--tag", "c")
    listed, shown = ask("list"), ask("show", "first")

    assert said.status == 0, said.err
    assert said.out == f"run the good one ({run}): title, note, tags, starred changed\n"
    assert listed.out.index("the good one (first)") < listed.out.index("second")
    assert "★" in listed.out
    assert "b, c" in listed.out
    assert "run the good one" in shown.out
    assert "line 1\nline 2\n" in shown.out
    assert "arkml train npc.wasm" in shown.out
    assert "v1-dirty" in shown.out
    assert service.get(f"/runs/{run}").json()["run"]["name"] == "first"


def test_an_archived_run_is_hidden_until_it_is_asked_for(service, ask):
    run = made(service, "old")
    ask("label", "old", "--archive")
    listed, whole = ask("list"), ask("list", "--archived", "--json")
    ask("label", "old", "--restore")
    again = ask("list")

    assert run not in listed.out
    assert "1 archived (--archived)" in listed.out
    assert run in [one["id"] for one in whole.json["runs"]]
    assert run in again.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "say what to note about third: --title, --note, --tag"),
        (("--untag", "x"), "--untag 'x': third has the tags none"),
        (("--tag", "a,b"), "'a,b': it takes letters without commas"),
        (("--title", "x" * 300), "of 300 letters: 200 at most"),
        (("--note", "x" * 70_000), "the note has 70000 bytes: 65536 at most"),
    ],
)
def test_what_cannot_be_noted_is_one_sentence(service, ask, words, sentence):
    if not any(run["name"] == "third" for run in service.get("/runs").json()["runs"]):
        made(service, "third")
    refused = ask("label", "third", *words)

    assert refused.status == 2
    assert sentence in refused.err
    assert refused.err.count("\n") == 1
