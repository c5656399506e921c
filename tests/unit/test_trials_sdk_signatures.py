"""Names, arguments and attributes of Cogment's published Python SDK, which are those here."""

import ast
import importlib
import inspect
import json
import textwrap
from pathlib import Path

import pytest

import arkml.trials

PUBLISHED = json.loads(
    (Path(__file__).parents[1] / "cogment" / "python_sdk.json").read_text(encoding="utf-8")
)
TRIALS_PAGE = Path(__file__).parents[2] / "docs" / "trials.md"

NOT_HERE = {
    "": {"DatastoreFields", "LogParams", "Model"},
    "Context": {
        "get_context_directory",
        "get_datastore",
        "get_directory",
        "get_model_registry",
        "get_model_registry_v2",
    },
    "DatalogSession": {"trial_params"},
}
"""Published names of what is not served here; docs/trials.md says so."""

MADE_BY_PROGRAMS = {
    "ActorClass",
    "ActorClassList",
    "ActorParameters",
    "Context",
    "Endpoint",
    "GrpcMetadata",
    "ServedEndpoint",
    "TrialParameters",
}
"""Classes whose constructors programs call."""

MEMBERS = [
    (owner, name)
    for owner, members in PUBLISHED["classes"].items()
    for name in members
    if name != "__init__" or owner in MADE_BY_PROGRAMS
]


def names_of(owner):
    """Names of a class, and those that its constructors give to instances."""
    names = set(dir(owner))
    for base in owner.__mro__[:-1]:
        names |= set(vars(base).get("__annotations__", ()))
        if "__init__" in vars(base) and base.__module__.startswith("arkml"):
            try:
                tree = ast.parse(textwrap.dedent(inspect.getsource(base.__init__)))
            except OSError:  # of a dataclass
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    names.add(node.attr)
    return names


def test_the_golden_file_is_of_the_release_that_the_documentation_names():
    assert PUBLISHED["package"] == "cogment 2.10.1"
    assert "Cogment's Python SDK 2.10" in TRIALS_PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PUBLISHED["root"])
def test_a_name_at_the_root_is_here(name):
    assert hasattr(arkml.trials, name) == (name not in NOT_HERE[""])


@pytest.mark.parametrize(("owner", "name"), MEMBERS, ids=lambda value: value)
def test_a_member_has_the_published_parameters_in_their_order(owner, name):
    published, ours = PUBLISHED["classes"][owner][name], getattr(arkml.trials, owner)
    if name in NOT_HERE.get(owner, ()):
        assert name not in names_of(ours)
        return
    assert name in names_of(ours)
    if published is None:
        return
    parameters = list(inspect.signature(getattr(ours, name)).parameters.values())[1:]
    named = [one for one in parameters if "VAR" not in one.kind.name]
    wanted = [one for one in published if "VAR" not in one["kind"]]

    assert [one.name for one in named][: len(wanted)] == [one["name"] for one in wanted]
    for given, one in zip(named, wanted, strict=False):
        assert given.kind.name == one["kind"]
        assert not one["is_optional"] or given.default is not given.empty
    assert all(one.default is not one.empty for one in named[len(wanted) :])
    assert {one["kind"] for one in published if "VAR" in one["kind"]} <= {
        one.kind.name for one in parameters
    }


def test_what_is_not_here_is_named_in_the_documentation():
    text = TRIALS_PAGE.read_text(encoding="utf-8")

    for owner, names in NOT_HERE.items():
        for name in names:
            assert f"`{name}`" in text, owner


def test_make_logger_has_the_published_parameters():
    parameters = inspect.signature(arkml.trials.make_logger).parameters

    assert [*parameters] == [one["name"] for one in PUBLISHED["functions"]["make_logger"]]


@pytest.mark.parametrize(
    ("owner", "module"),
    sorted((owner, home) for owner, home in PUBLISHED["modules"].items() if home != "datalog"),
)  # `arkml.trials.datalog` is the log of a server
def test_a_class_is_in_the_published_module_too(owner, module):
    home = getattr(arkml.trials, module)

    assert getattr(home, owner) is getattr(arkml.trials, owner)
    assert owner in home.__all__
    assert importlib.import_module(f"arkml.trials.{module}") is home
