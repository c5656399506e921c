"""`arkml trials spec`: the files of a guest that programs of players need."""

import json
import subprocess
import sys

import pytest
from tests.integration.command_line import ENVIRONMENT, GUESTS, arkml
from tests.integration.duel_guest import duel
from tests.node import NODE

from arkml.envs.core.decisions import Behavior
from arkml.envs.core.specs import Spec
from arkml.guest_trials.probe import GuestClass, class_names
from arkml.guest_trials.spec import spec_text, write_spec
from arkml.trials.generate.spec_file import read_spec

REACH, WALKERS = GUESTS / "c_reach.wasm", GUESTS / "c_walkers.wasm"
READ = """
import json, arkml.trials
import cog_settings as settings
from arkml.trials.wire import guest_pb2  # as the process of a server has it
(actors,) = settings.actor_classes
print(json.dumps([
    actors.name,
    actors.action_space is guest_pb2.Action,
    actors.observation_space is guest_pb2.Observation,
    settings.trial.config_type is guest_pb2.GuestConfig,
]))
"""
READ_JAVASCRIPT = """
import { cogSettings } from "./CogSettings.js";
import { Context } from "./cogment/cogment.js";
new Context("ann", cogSettings);
const { name, actionSpace, observationSpace } = cogSettings.actorClasses.reach;
const action = actionSpace.create({ continuous: [0.5, -1], choices: [3] });
const bytes = actionSpace.encode(action).finish();
const read = actionSpace.decode(bytes);
console.log(JSON.stringify([
    name, [...read.continuous], [...read.choices], observationSpace.getTypeUrl(),
]));
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of a guest, and what the command printed."""
    folder = tmp_path_factory.mktemp("spec") / "reach"
    run = arkml("trials", "spec", REACH, "-o", folder, "--json")
    assert run.status == 0, run.err
    return folder, run.json


def test_a_declared_behavior_that_begins_late_has_its_class(tmp_path):
    (tmp_path / "duel.wat").write_bytes(duel("early", "late", late=60, slots=3))
    run = arkml("trials", "spec", tmp_path / "duel.wat", "-o", tmp_path / "spec")
    classes = read_spec(tmp_path / "spec" / "cogment.yaml").actor_classes

    assert run.status == 0, run.err
    assert [one.name for one in classes] == ["early", "late"]


def test_a_guest_has_a_spec_file_with_a_class_for_each_behavior(written):
    folder, printed = written
    read = read_spec(folder / "cogment.yaml")
    (actor_class,) = read.actor_classes

    assert (read.protos, read.trial_config) == (("guest.proto",), "arkmlTrials.GuestConfig")
    assert actor_class.name == "reach"
    assert actor_class.action_space == "arkmlTrials.Action"
    assert actor_class.observation_space == "arkmlTrials.Observation"
    assert printed["classes"] == {"reach": 64}
    assert {str(folder / "cogment.yaml"), str(folder / "guest.proto")} < {*printed["files"]}


def test_names_of_actions_are_in_the_comments_of_their_class(tmp_path):
    arkml("trials", "spec", GUESTS / "c_play_lander.wasm", cwd=tmp_path)
    comments = (tmp_path / "c_play_lander" / "cogment.yaml").read_text()

    assert 'continuous: 2; choices: []; actions: "thrust across", "engine"' in comments


def test_the_python_settings_have_the_types_of_the_server(written):
    run = subprocess.run(
        [sys.executable, "-c", READ], cwd=written[0] / "python", capture_output=True, text=True,
        check=True, env=ENVIRONMENT,
    )  # fmt: skip

    assert json.loads(run.stdout) == ["reach", True, True, True]


def test_the_javascript_settings_write_and_read_actions(written):
    program = written[0] / "javascript" / "program.mjs"
    program.write_text(READ_JAVASCRIPT)
    run = subprocess.run([NODE, program], capture_output=True, text=True, check=False, timeout=300)

    assert run.returncode == 0, run.stderr
    url = "type.googleapis.com/arkmlTrials.Observation"
    assert json.loads(run.stdout) == ["reach", [0.5, -1], [3], url]


def test_a_folder_is_named_after_its_guest_and_written_anew(tmp_path):
    first = arkml("trials", "spec", WALKERS, "--configure-numbers", "3,1,1,0,0", cwd=tmp_path)
    second = arkml("trials", "spec", WALKERS, "--configure-numbers", "2,1,1,0,0", cwd=tmp_path)

    assert [run.status for run in (first, second)] == [0, 0]
    assert first.out == "c_walkers: 3 actors red\n"
    assert second.out == "c_walkers: 2 actors red\n"
    assert "red_0 to red_1" in (tmp_path / "c_walkers" / "cogment.yaml").read_text()


@pytest.mark.parametrize("name", ["cogment.yaml", "guest.proto", "python/cog_settings.py"])
def test_a_file_that_is_not_of_the_command_is_not_replaced(tmp_path, name):
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    run = arkml("trials", "spec", REACH, "-o", tmp_path)

    assert run.status == 2
    assert f"{mine} is there already, and `arkml trials spec` did not write" in run.err
    assert mine.read_text() == "mine"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["--limit", "memory=1"], 2, "there is no limit 'memory'"),
        (["--limit", "memory_bytes"], 2, "--limit memory_bytes: it takes NAME=VALUE"),
        (["--configure-numbers", "1,b"], 2, "it takes whole numbers and {seed}, with commas"),
        (["--entry", "play"], 2, "exports no function 'play'"),
        (["-o", "/dev/null/x"], 2, "/dev/null/x"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_sentence(words, status, sentence):
    run = arkml("trials", "spec", REACH, *words)

    assert run.status == status
    assert sentence in run.err
    assert "Traceback" not in run.err


def test_the_names_of_a_guest_cannot_add_lines_to_its_spec_file():
    behavior = Behavior("a\nactor_classes: []\n\u2028", 1, 1, Spec.flat(1, 1))
    lines = spec_text("b\n.wasm", [GuestClass("a", behavior, 2)]).splitlines()

    assert [line for line in lines if not line.lstrip().startswith("#")] == [
        "import:",
        "  proto: [guest.proto]",
        "trial:",
        "  config_type: arkmlTrials.GuestConfig",
        "actor_classes:",
        "  - name: a",
        "    action: {space: arkmlTrials.Action}",
        "    observation: {space: arkmlTrials.Observation}",
    ]


def test_classes_of_several_behaviors_are_read_back(tmp_path):
    behaviors = ["cat", "class", "dog 1"]
    classes = [
        GuestClass(name, Behavior(behavior, 3, 2, Spec.flat(3, 2)), 1)
        for name, behavior in zip(class_names(behaviors), behaviors, strict=True)
    ]
    write_spec("pets.wasm", classes, tmp_path)

    read = read_spec(tmp_path / "cogment.yaml")
    assert [one.name for one in read.actor_classes] == ["cat", "class_", "dog_1"]
