"""Both ways to run the guests of a fleet: the loop in machine code, and Python's."""

import signal

import numpy as np
import pytest
from tests.integration.test_environment import INITIAL, RUNNING, scripted
from tests.integration.test_suspension import IS_X86_64, modes_of

from arkml.envs.core.fleet_env import FleetEnv
from arkml.envs.gymnasium_fleet import GuestFleetVectorEnv
from arkml.runtime import polling

GUESTS = 2 * polling._AT_ONCE + 5  # the last loop runs fewer


def outcomes(steps=60):
    with_seed = {"configure": (1, "{seed}")}
    envs = GuestFleetVectorEnv("fixtures/guests/c_cartpole.wasm", num_envs=GUESTS, **with_seed)
    try:
        found = [envs.reset(seed=3)[0]]
        actions = np.random.default_rng(4).choice([-1.0, 1.0], (steps, GUESTS, 1))
        for action in actions.astype(np.float32):
            found += envs.step(action)[:4]
        return found
    finally:
        envs.close()


def test_a_fleet_steps_alike_without_machine_code(monkeypatch):
    assert (polling._run is not None) == IS_X86_64
    by_machine_code = outcomes()
    monkeypatch.setattr(polling, "_run", None)

    for one, other in zip(by_machine_code, outcomes(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert any(marks.any() for marks in by_machine_code[3::4])  # some episodes have ended


def test_the_page_of_the_loop_is_not_writable():
    assert modes_of(polling._CODE) == ["r-xp"] * IS_X86_64


@pytest.mark.parametrize("by_machine_code", [True, False])
def test_an_interrupt_ends_a_round_before_all_guests_had_their_turns(monkeypatch, by_machine_code):
    module = scripted([(1, INITIAL, 0)], [(1, RUNNING, 0)])
    action = np.zeros((GUESTS, 1), np.float32)
    polled = []

    def interrupt(*arguments):  # in the place of a turn
        polled.append(arguments[-1] if by_machine_code else 1)
        if len(polled) == 1:
            signal.raise_signal(signal.SIGINT)
        return False

    with FleetEnv(module, GUESTS) as fleet:
        step = fleet.reset(seed=1)
        monkeypatch.setattr(polling, "_run", interrupt if by_machine_code else None)
        monkeypatch.setattr(polling, "_poll", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fleet.step(action, step.observations)
        monkeypatch.undo()

        assert sum(polled) == polling._AT_ONCE
        assert not fleet.alive.any()
        assert fleet.reset(seed=1).present.all()
