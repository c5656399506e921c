"""Public objects refuse unknown attributes, which would do nothing."""

import inspect
from dataclasses import is_dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path

import pytest
from tools.public_api.surface import EVERYTHING, SURFACE

from arkml import GuestEnv, Host
from arkml.async_trainer import SyncModel
from arkml.base.sealed import Sealed
from arkml.envs.gymnasium_env import GuestGymEnv
from arkml.envs.gymnasium_vector import GuestVectorEnv
from arkml.envs.pettingzoo_env import GuestParallelEnv


def public_classes():
    for module, names in SURFACE.items():
        home = import_module(module)
        if names is EVERYTHING:
            names = getattr(home, "__all__", None) or [
                name
                for name, item in vars(home).items()
                if name[0] != "_" and getattr(item, "__module__", "") == module
            ]
        for name in names:
            item = getattr(home, name)
            if inspect.isclass(item) and not issubclass(item, (BaseException, Enum, dict)):
                yield pytest.param(item, id=f"{module}.{name}")


CLASSES = list(public_classes())


def has_no_room(kind):
    """Whether objects of a class have no dict, or are frozen."""
    slotted = all("__dict__" not in vars(base) for base in kind.__mro__)
    return slotted or (is_dataclass(kind) and kind.__dataclass_params__.frozen)


def is_interface(kind):
    """Whether programs derive from a class, and objects of it alone cannot be made."""
    return getattr(kind, "_is_protocol", False) or inspect.isabstract(kind)


def has_own_rules(kind):
    return any(
        "__setattr__" in vars(base) and base.__module__.startswith("arkml") and base is not Sealed
        for base in kind.__mro__
    )


@pytest.mark.parametrize("kind", CLASSES)
def test_a_public_class_takes_no_unknown_attributes(kind):
    seals = issubclass(kind, Sealed) and hasattr(kind.__init__, "__wrapped__")

    assert has_no_room(kind) or is_interface(kind) or has_own_rules(kind) or seals


PENDULUM = Path(__file__).parents[2] / "fixtures" / "guests" / "c_pendulum.wasm"


def test_a_host_says_how_its_policy_is_given():
    with Host() as host, pytest.raises(AttributeError, match=r"Host\(policy=\.\.\.\)"):
        host.policy = b"model"


@pytest.mark.parametrize("name", ["limits", "wasi", "name", "unknown"])
def test_no_attribute_of_a_host_a_guest_or_a_fleet_can_be_set(name):
    with Host() as host, host.fleet(b"(module)", 2) as fleet:
        for item in (host, fleet, fleet.guests[0], fleet.guests[0].module):
            with pytest.raises(AttributeError):
                setattr(item, name, None)

        assert fleet.name == "guest"


def test_an_option_of_an_environment_is_named_where_it_is_set():
    with GuestEnv(PENDULUM, configure=(1, "{seed}")) as env:
        for name in ("configure", "pace", "unknown"):
            with pytest.raises(AttributeError, match=f"takes no '{name}'"):
                setattr(env, name, 1)
        with pytest.raises(AttributeError, match=r"GuestEnv\(configure=\.\.\.\)"):
            env.configure = "other"


@pytest.mark.parametrize(
    ("make", "known"),
    [
        (GuestGymEnv, ("spec", "render_mode", "metadata", "action_space", "_wrapped")),
        (GuestVectorEnv, ("spec", "render_mode", "metadata", "num_envs", "_wrapped")),
        (GuestParallelEnv, ("render_mode", "metadata", "agents", "_wrapped")),
    ],
)
def test_an_environment_takes_what_its_published_base_class_has(make, known):
    env = make(PENDULUM, configure=(1, "{seed}"))
    try:
        for name in known:
            setattr(env, name, getattr(env, name, None))
        with pytest.raises(AttributeError, match="it is not one of its attributes"):
            env.max_speed = 8.0
    finally:
        env.close()


def test_a_class_that_a_program_derives_takes_any_attribute():
    class Mine(Host):
        def __init__(self, name):
            super().__init__()
            self.title = name

    with Mine("a") as host:
        host.other = host.title

        assert host.other == "a"


def test_a_mixed_in_class_keeps_its_own_way_to_set_attributes():
    class Counting:
        def __setattr__(self, name, value):
            super().__setattr__("count", getattr(self, "count", 0) + 1)
            super().__setattr__(name, value)

    class Both(SyncModel, Counting):
        def model_info(self):
            return 0, None

        def sync_model(self, model):
            self.model = model

    both = Both()
    both.sync_model(1)

    assert both.count == 1


def test_no_attribute_can_be_deleted():
    with Host() as host:
        with pytest.raises(AttributeError, match="a Host keeps 'limits'"):
            del host.limits

        assert host.limits.instances
