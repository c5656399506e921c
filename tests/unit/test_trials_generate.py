"""Spec files of Cogment's projects, and the Python settings that are written from them."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tools import cogment_api
from tools.houses import PYTHONPATH

from arkml.trials.core.error import TrialError
from arkml.trials.generate import generate
from arkml.trials.generate.spec_file import LARGEST

PROJECT = Path(__file__).parents[1] / "trials_project"
SPEC = (PROJECT / "cogment.yaml").read_text()
READ = """
import json
import cog_settings as settings
classes = settings.actor_classes
print(json.dumps({
    "names": [each.name for each in classes],
    "types": [
        None if kind is None else kind.DESCRIPTOR.full_name
        for each in classes
        for kind in (each.config_type, each.action_space, each.observation_space)
    ],
    "configs": [
        settings.trial.config_type.DESCRIPTOR.full_name,
        settings.environment.config_type.DESCRIPTOR.full_name,
    ],
    "ways": [
        classes.player is classes["player"] is classes.get("player"),
        "player" in classes,
        "other" in classes,
        classes.get("other"),
        len(classes),
    ],
}))
"""


@pytest.fixture
def project(tmp_path):
    """A copy of the project, to change."""
    return Path(shutil.copytree(PROJECT, tmp_path / "project"))


def refusal(folder, **languages):
    with pytest.raises(TrialError) as caught:
        generate(folder / "cogment.yaml", **(languages or {"python": folder / "out"}))
    assert not (folder / "out").exists()
    return str(caught.value)


def test_python_settings_have_all_actor_classes_and_their_types(tmp_path):
    written = generate(PROJECT / "cogment.yaml", python=tmp_path / "out")
    run = subprocess.run(
        [sys.executable, "-c", READ], cwd=tmp_path / "out", capture_output=True, text=True,
        check=True, env={**os.environ, "PYTHONPATH": PYTHONPATH},
    )  # fmt: skip

    assert {path.relative_to(tmp_path / "out").as_posix() for path in written} == {
        "cog_settings.py",
        "grid_pb2.py",
        "grid_pb2.pyi",
        "parts/common_types_pb2.py",
        "parts/common_types_pb2.pyi",
    }
    assert json.loads(run.stdout) == {
        "names": ["player", "watcher"],
        "types": [
            "parts.Shared", "grid.world.Move", "grid.world.Everything",
            None, "grid.world.None", "parts.Shared",
        ],
        "configs": ["grid.world.Level", "grid.world.Everything.Inner"],
        "ways": [True, True, False, None, 2],
    }  # fmt: skip


def test_javascript_settings_are_modules_without_eval(tmp_path):
    written = generate(PROJECT / "cogment.yaml", javascript=tmp_path)
    texts = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in written}

    modules = {path for path in texts if path.endswith(".js")}
    assert {path for path in modules if not path.startswith("cogment/")} == {
        "CogSettings.js",
        "grid_pb.js",
        "parts/common-types_pb.js",
        "google/protobuf/any_pb.js",
    }
    assert {"cogment/cogment.js", "cogment/google/protobuf/any_pb.js"} <= set(texts)
    for text in texts.values():
        assert "eval" not in text
        assert "new Function" not in text


@pytest.mark.parametrize(
    "name",
    ["CogSettings", "grid_pb", "cogment/cogment", "cogment/players", "cogment/protobuf_wire"],
)
def test_declarations_of_typescript_have_the_names_that_a_module_exports(tmp_path, name):
    generate(PROJECT / "cogment.yaml", javascript=tmp_path)

    def exports(path):
        text = path.read_text()
        listed = ",".join(re.findall(r"^export \{([^}]*)\}", text, re.MULTILINE)).split(",")
        kinds = "class|const|enum|import|function\\*?|async function\\*?"
        single = re.findall(rf"^export (?:{kinds}) (\w+)", text, re.MULTILINE)
        grouped = re.findall(r"^export const \{ (\w+) \}", text, re.MULTILINE)
        named = {one.split(" as ")[-1].strip() for one in listed}
        return {*single, *grouped, *named} - {""}

    assert exports(tmp_path / f"{name}.js") == exports(tmp_path / f"{name}.d.ts") != set()


def test_every_module_has_declarations(tmp_path):
    written = generate(PROJECT / "cogment.yaml", javascript=tmp_path)
    names = {path.relative_to(tmp_path).as_posix() for path in written}

    for name in names:
        assert name.endswith(".d.ts") or name.replace(".js", ".d.ts") in names


def test_a_project_without_configurations_and_actors_has_empty_settings(project):
    (project / "cogment.yaml").write_text("import: {proto: [grid.proto]}\n")
    generate(project / "cogment.yaml", python=project / "out", javascript=project / "out")
    settings = (project / "out" / "CogSettings.js").read_text()
    python = (project / "out" / "cog_settings.py").read_text()

    assert "actorClasses: {\n  }" in settings
    assert "trial: {}" in settings
    assert "trial = SimpleNamespace(config_type=None)" in python
    compile(python, "cog_settings.py", "exec")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("import: [", "is not YAML: while parsing"),
        ("\0", "is not YAML: "),
        ("a: !!bool x", "is not YAML: 'x' is not of type 'bool'"),
        (f"import: {{proto: [{'x' * 5000}.proto]}}", "names 'xxx"),
        (
            SPEC.replace("name: watcher", f"name: {'x' * 5000}").replace("grid.world.None", "5"),
            "'action.space' of actor class 'xxx",
        ),
        ("a: !!python/object:os.system x", "is not YAML: could not determine a constructor"),
        ("[" * 100_000, "is not YAML: "),
        ("- 5", "the file must be a mapping, got [5]"),
        ("trial: {}", "'import' must be a mapping, got nothing"),
        ("import: {proto: []}", "'import.proto' must list .proto files, got []"),
        ("import: {proto: [../grid.proto]}", "has '../grid.proto': name a .proto file below"),
        ("import: {proto: [/grid.proto]}", "has '/grid.proto': name a .proto file below"),
        ("import: {proto: ['@grid.proto']}", "has '@grid.proto': name a .proto file below"),
        ("import: {proto: [-I.proto]}", "has '-I.proto': name a .proto file below"),
        ("import: {proto: [more.proto]}", "names 'more.proto', which is not a file"),
        (SPEC.replace("import:", "import:\n  python: [x]"), "'import.python' is not supported"),
        (SPEC.replace("name: watcher", "name: player"), "two actor classes are called 'player'"),
        (SPEC.replace("name: watcher", "name: not it"), "called 'not it': its name must be an"),
        (SPEC.replace("name: watcher", "name: class"), "called 'class': its name must be an"),
        (SPEC.replace("action: {space: grid.world.None}", ""), "'action' of actor class 'watcher'"),
        (SPEC.replace("grid.world.None", "5"), "'action.space' of actor class 'watcher' must name"),
        (
            SPEC.replace("{space: parts.Shared}", "{space: parts.Shared, delta: parts.Shared}"),
            "'observation.delta' of actor class 'watcher' is not supported since Cogment 2.0",
        ),
        (
            SPEC.replace("grid.world.Move", "grid.world.Movee"),
            "actor class 'player', action.space names 'grid.world.Movee', which no .proto file has:"
            " did you mean grid.world.Move",
        ),
        (
            SPEC.replace("config_type: grid.world.Level", "config_type: Zebra"),
            "trial.config_type names 'Zebra', which no .proto file has: import its .proto file",
        ),
        (
            SPEC.replace("config_type: grid.world.Level", "config_type: grid.world.Color"),
            "trial.config_type names 'grid.world.Color', which no .proto file has",
        ),
    ],
)
def test_a_wrong_spec_file_is_refused_with_its_entry(project, text, sentence):
    (project / "cogment.yaml").write_text(text)

    message = refusal(project)
    assert sentence in message
    assert len(message) < 700


def test_a_spec_file_that_is_missing_or_too_large_is_refused(tmp_path, project):
    (project / "cogment.yaml").write_bytes(b"#" * (LARGEST + 1))

    assert f"has more than {LARGEST} bytes" in refusal(project)
    assert "cannot read the spec file" in refusal(tmp_path)


def test_a_proto_file_that_protoc_refuses_is_refused_with_its_place(project):
    (project / "grid.proto").write_text('syntax = "proto3";\nmessage Broken {\n  int33 x = 1;\n}\n')

    assert 'grid.proto:3:3: "int33" is not defined' in refusal(project)


def test_an_import_that_is_missing_is_refused(project):
    (project / "parts" / "common-types.proto").write_text('import "absent.proto";\n')

    assert "absent.proto" in refusal(project)


def test_javascript_has_only_messages_of_proto3(project):
    text = (project / "parts" / "common-types.proto").read_text()
    text = text.replace("proto3", "proto2").replace("float", "optional float")
    (project / "parts" / "common-types.proto").write_text(text)

    assert "parts/common-types.proto is proto2, but JavaScript" in refusal(
        project, javascript=project / "out"
    )


def test_a_folder_that_cannot_be_written_is_named(project):
    (project / "taken").write_text("")

    with pytest.raises(TrialError, match=r"cannot write .*taken"):
        generate(project / "cogment.yaml", python=project / "taken")


def test_the_messages_of_the_protocol_in_javascript_are_up_to_date():
    assert cogment_api.main(["--check"]) == 0


def test_modules_that_are_stale_or_have_no_source_are_named_and_mended(tmp_path, capsys):
    (tmp_path / "common_pb.js").write_text("// old")
    (tmp_path / "gone_pb.js").write_text("// of no .proto file")

    assert cogment_api.main(["--check"], tmp_path) == 1
    assert "gone_pb.js is out of date: run `make generate`" in capsys.readouterr().err
    assert cogment_api.main([], tmp_path) == 0
    assert cogment_api.main(["--check"], tmp_path) == 0
    assert not (tmp_path / "gone_pb.js").exists()
    assert cogment_api.main(["--what"], tmp_path) == 2
