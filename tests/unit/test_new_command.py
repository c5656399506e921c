"""`arkml new` and `arkml sdk`: the files, and what is refused."""

import json

import pytest
from tests.compilers.building import regenerate

from arkml.cli.new_command import COMPILERS, NewOptions, new
from arkml.cli.sdk_command import SDK, SdkOptions, show_sdk
from arkml.errors import UsageError
from arkml.sessions.declarations import behaviors_in

SOURCES = {"c": "c", "rust": "rs", "assemblyscript": "ts", "zig": "zig"}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_guide_begins_with_the_guest_in_c(here):
    new(NewOptions(name="mynpc"))
    guide = (regenerate.ROOT / "docs" / "guests.md").read_text()

    assert guide.split("```c\n")[1].split("```")[0] == (here / "mynpc" / "mynpc.c").read_text()


@pytest.mark.parametrize("language", COMPILERS)
def test_a_folder_has_a_guest_its_declaration_its_build_its_test_and_its_readme(language, here):
    new(NewOptions(name="goblin", language=language))
    folder = here / "goblin"
    files = {path.name: path.read_text() for path in folder.iterdir()}
    source = files[f"goblin.{SOURCES[language]}"]
    readme = files["README.md"]

    assert {"Makefile", "README.md", "spec.json", "test_goblin.py"} < files.keys()
    assert all("npc_name" not in text for text in files.values())
    assert len(source.splitlines()) < 45
    assert COMPILERS[language] in readme
    assert f"goblin.{SOURCES[language]}" in readme
    for command in ("smoke", "train", "run", "publish"):
        assert f"`arkml {command} " in readme
    assert behaviors_in(files["spec.json"].encode()).keys() == {"goblin"}


def test_c_is_the_language_unless_another_is_named(here):
    new(NewOptions(name="goblin"))

    assert (here / "goblin" / "goblin.c").is_file()


def test_what_was_made_is_an_object_too(capsys):
    new(NewOptions(name="goblin", language="zig", as_json=True))
    told = json.loads(capsys.readouterr().out)

    assert told["directory"] == "goblin"
    assert set(told["files"]) == {
        "Makefile", "README.md", "goblin.zig", "spec.json", "test_goblin.py",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["my npc", "1st", "a-b", "", "../up", "n" * 65, "gobliné"])
def test_a_name_that_is_no_identifier_is_refused(name, here):
    with pytest.raises(UsageError, match="cannot be the name of a guest: it takes"):
        new(NewOptions(name=name))

    assert list(here.iterdir()) == []


def test_an_unknown_language_is_refused_with_those_there_are(here):
    with pytest.raises(UsageError, match="no guest in 'go': c, rust, assemblyscript, zig"):
        new(NewOptions(name="goblin", language="go"))

    assert list(here.iterdir()) == []


def test_what_exists_is_left_alone(here):
    (here / "goblin").write_text("mine")
    with pytest.raises(UsageError, match="goblin exists: choose another name, or remove it"):
        new(NewOptions(name="goblin"))

    assert (here / "goblin").read_text() == "mine"


def test_assemblyscript_is_the_one_that_the_fixtures_are_built_with(here):
    new(NewOptions(name="goblin", language="assemblyscript"))
    wanted = json.loads((here / "goblin" / "package.json").read_text())["devDependencies"]

    assert wanted == {"assemblyscript": regenerate.ASSEMBLYSCRIPT}


def test_the_path_of_the_sdk_is_all_that_is_printed(capsys):
    show_sdk(SdkOptions(path=True))

    assert capsys.readouterr().out == f"{SDK}\n"
    for file in ("c/arkml_guest.h", "rust/arkml_guest.rs", "assemblyscript/arkml_guest.ts"):
        assert (SDK / file).is_file()


def test_the_files_of_the_sdk_are_listed(capsys):
    show_sdk(SdkOptions())
    text = capsys.readouterr().out
    show_sdk(SdkOptions(as_json=True))
    told = json.loads(capsys.readouterr().out)

    assert told["path"] == str(SDK)
    assert text.split() == [*f"{SDK}:".split(), *told["files"]]
    assert {"README.md", "c/ark_ml.h", "zig/arkml_guest.c"} < set(told["files"])
