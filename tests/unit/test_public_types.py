"""Type checkers know the options of every environment; `tests/type_checking` shows that they do."""

import inspect
from typing import Any, get_type_hints

import pytest

from arkml.envs.core.env_options import GuestEnvOptions
from arkml.envs.core.fleet_env import FleetEnv
from arkml.envs.core.guest_env import GuestEnv
from arkml.envs.gymnasium_env import GuestGymEnv
from arkml.envs.gymnasium_fleet import GuestFleetVectorEnv
from arkml.envs.gymnasium_vector import GuestVectorEnv
from arkml.envs.llapi.guest_unity_env import GuestUnityEnv
from arkml.envs.pettingzoo_env import GuestParallelEnv, env, parallel_env
from arkml.envs.relayrl.guests import GuestScalarEnvironment, GuestVectorEnvironment
from arkml.envs.vector_env import VectorEnvOptions, vector_env
from arkml.host import Host
from arkml.testing.threaded import HostKeywords

MAKERS = [
    FleetEnv, GuestFleetVectorEnv, GuestGymEnv, GuestParallelEnv, GuestScalarEnvironment,
    GuestUnityEnv, GuestVectorEnv, GuestVectorEnvironment, env, parallel_env, vector_env,
]  # fmt: skip


def keywords(function):
    """The keyword-only parameters of a function and their types."""
    hints = get_type_hints(function)
    parameters = inspect.signature(function).parameters.values()
    return {p.name: hints[p.name] for p in parameters if p.kind is p.KEYWORD_ONLY}


def test_the_options_of_environments_are_those_of_guest_env():
    assert get_type_hints(GuestEnvOptions) == keywords(GuestEnv.__init__)


def test_the_options_of_vector_environments_are_those_of_both():
    own = VectorEnvOptions.__annotations__.keys() - GuestEnvOptions.__annotations__.keys()

    for kind in (GuestVectorEnv, GuestFleetVectorEnv):
        assert own == keywords(kind.__init__).keys()


def test_the_options_of_hosts_for_tests_are_those_of_host():
    own = inspect.signature(Host).parameters
    written = {name: text.__forward_arg__ for name, text in HostKeywords.__annotations__.items()}

    assert written == {name: parameter.annotation for name, parameter in own.items()}


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__qualname__)
def test_a_maker_of_environments_takes_typed_options(make):
    function = make.__init__ if isinstance(make, type) else make
    hints = get_type_hints(function)

    assert hints["options"].__args__[0] in (GuestEnvOptions, VectorEnvOptions)
    assert hints["module"] is not Any


def test_every_option_is_described():
    source = inspect.getsource(GuestEnvOptions)

    for name in GuestEnvOptions.__annotations__:
        assert f"    {name}: " in source
        assert '"""' in source.partition(f"    {name}: ")[2].splitlines()[1]
