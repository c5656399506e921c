"""Finding players, levels of the log, and environments of the registry by name."""

from __future__ import annotations

import logging

import pytest
from tests.unit.fake_llapi_env import FakeEnv

from arkml.envs.llapi import env_utils, logging_util
from arkml.envs.llapi.envs.pettingzoo_env_factory import PettingZooEnvFactory
from arkml.envs.llapi.exception import (
    UnityException,
    UnityTimeOutException,
    UnityWorkerInUseException,
)
from arkml.envs.llapi.registry import default_registry
from arkml.envs.llapi.registry.base_registry_entry import BaseRegistryEntry


@pytest.mark.parametrize(
    ("platform", "file", "asked"),
    [
        ("linux", "Game.x86_64", "Game"),
        ("linux", "Game.x86_64", "Game.x86_64"),
        ("linux", "Game.x86", " Game.exe "),
        ("linux", "Game", "Game"),
        ("linux", "start.sh", "start.sh"),
        ("linux", "Game [1]*.x86_64", "Game [1]*"),
        ("win32", "Games [1]/Player.exe", "Games [1]"),
        ("darwin", "Game.app/Contents/MacOS/Game", "Game.app"),
        ("darwin", "Game.app/Contents/MacOS/Other", "Game"),
        ("win32", "Game.exe", "Game"),
        ("win32", "Game/Player.exe", "Game"),
    ],
)
@pytest.mark.parametrize("absolute", [False, True])
def test_players_are_found_as_each_platform_names_them(
    tmp_path, monkeypatch, platform, file, asked, absolute
):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    (path.parent / "UnityCrashHandler64.exe").touch()
    monkeypatch.chdir("/" if absolute else tmp_path)
    monkeypatch.setattr(env_utils, "get_platform", lambda: platform)
    name = f"{tmp_path}/{asked.strip()}" if absolute else asked

    assert env_utils.validate_environment_path(name) == str(path)


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32", "sunos5"])
def test_what_is_not_there_is_not_found(tmp_path, monkeypatch, platform):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(env_utils, "get_platform", lambda: platform)

    assert env_utils.validate_environment_path("Game") is None


def test_the_level_is_of_this_package_alone():
    logging_util.set_log_level(logging_util.DEBUG)
    try:
        assert logging_util.get_logger("arkml.envs.llapi.env_utils").isEnabledFor(logging.DEBUG)
        assert not logging.getLogger("arkml.host").isEnabledFor(logging.DEBUG)
    finally:
        logging_util.set_log_level(logging_util.NOTSET)


def test_a_factory_takes_the_first_free_port(monkeypatch):
    made = []

    class Entry(BaseRegistryEntry):
        def make(self, **kwargs):
            made.append(kwargs)
            if kwargs["base_port"] < 6002:
                raise UnityWorkerInUseException(0)
            return FakeEnv()

    monkeypatch.setattr(default_registry, "_manifests", [])
    monkeypatch.setattr(default_registry, "_registered", {"Game": Entry("Game", None, None)})
    env = PettingZooEnvFactory("Game").env(seed=3, num_areas=2)
    PettingZooEnvFactory("Game").env(base_port=7000, side_channels=[], legacy_api=True)
    env.reset()

    assert [each["base_port"] for each in made] == [6000, 6001, 6002, 7000]
    assert made[0]["num_areas"] == 2
    assert len(made[0]["side_channels"]) == 3
    assert made[3]["side_channels"] == []
    assert env.agents == ["B?team=0?agent_id=0"]


def test_exceptions_have_one_root_and_the_text_of_the_original():
    taken = UnityWorkerInUseException(3)

    assert issubclass(UnityTimeOutException, UnityException)
    assert str(taken) == (
        "Couldn't start socket communication because worker number 3 is still in use. "
        "You may need to manually close a previously opened environment "
        "or use a different worker number."
    )
