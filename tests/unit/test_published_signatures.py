"""Ours have the names and take the arguments of published packages."""

import importlib
import inspect
import json
from contextlib import closing
from pathlib import Path

import pytest
from tests.integration.command_line import GUESTS

from arkml.envs.pettingzoo_env import env, parallel_env

PUBLISHED = json.loads(Path(__file__).with_name("published_signatures.json").read_text())
MLAGENTS = PUBLISHED["mlagents_envs"]["modules"]
ZOO = PUBLISHED["pettingzoo"]["modules"]["utils.env"]
CARTPOLE = GUESTS / "c_cartpole.wasm"
_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def cases(modules):
    return [
        pytest.param(module, name, members, id=f"{module or 'root'}.{name}")
        for module, names in modules.items()
        for name, members in names.items()
    ]


def lacks(callable_, wanted, *, is_bound=True):
    """The published parameters that a function of ours does not take as the published one does."""
    parameters = list(inspect.signature(callable_).parameters.values())
    parameters = parameters if is_bound else parameters[1:]
    if any(each.kind in _ANY for each in parameters) and not wanted:
        return []
    names = [each.name for each in parameters if each.kind not in _ANY]
    found = []
    for place, published in enumerate(wanted):
        name = published.strip("*=")
        if published.startswith("*"):
            continue
        if name not in names or names.index(name) != place:
            found.append(f"{name} is not parameter {place}: {names}")
        elif published.endswith("=") and parameters[place].default is inspect.Parameter.empty:
            found.append(f"{name} has no default")
    taken = {published.strip("*=") for published in wanted}
    found += [
        f"{each.name} is wanted in addition"
        for each in parameters
        if each.kind not in _ANY and each.name not in taken and each.default is each.empty
    ]
    return found


def members_lack(owner, members):
    found = []
    for name, wanted in members.items():
        if name != "__init__" and not hasattr(owner, name):
            if wanted is not None or not is_of_objects(owner, name):
                found.append(f"{name} is missing")
            continue
        if wanted is None:
            continue
        ours = inspect.getattr_static(owner, name)
        is_bound = isinstance(ours, staticmethod | classmethod) or not inspect.isclass(owner)
        found += [
            f"{name}: {one}" for one in lacks(getattr(owner, name), wanted, is_bound=is_bound)
        ]
    return found


def is_of_objects(owner, name):
    """True if objects of a class have the attribute: it is declared, or a parameter."""
    declared = {key for each in owner.__mro__ for key in getattr(each, "__annotations__", {})}
    return name in declared | set(inspect.signature(owner).parameters)


@pytest.mark.parametrize(("module", "name", "members"), cases(MLAGENTS))
def test_what_mlagents_envs_publishes_is_here_with_its_arguments(module, name, members):
    ours = importlib.import_module(f"arkml.envs.llapi.{module}".rstrip("."))
    found = getattr(ours, name)

    if isinstance(members, list):
        assert lacks(found, members) == []
    else:
        assert members_lack(found, members) == []


@pytest.mark.filterwarnings("ignore:The `.*_spaces` dictionary is deprecated")  # in AECEnv
@pytest.mark.parametrize(("make", "kind"), [(parallel_env, "ParallelEnv"), (env, "AECEnv")])
def test_environments_have_the_attributes_and_arguments_of_pettingzoo(make, kind):
    with closing(make(CARTPOLE, configure=(2, 7))) as game:
        game.reset(seed=1)

        members = {name: wanted for name, wanted in ZOO[kind].items() if name != "__init__"}
        assert members_lack(game, members) == []
