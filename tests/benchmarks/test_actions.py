import numpy as np
import pytest
from tests.benchmarks import actions


@pytest.mark.parametrize("game", actions.STEPPED)
def test_an_agent_has_the_same_random_actions_however_many_there_are(game):
    few, many = next(actions.ours(game, 64)), next(actions.ours(game, 1024))

    np.testing.assert_array_equal(few, many[:64])
    assert few.shape == (64, 1)
    assert few.dtype == np.float32
    assert abs(many.mean()) < 0.1
    assert many.min() < -0.9
    assert many.max() > 0.9


def test_a_pendulum_of_another_library_gets_the_same_torques():
    ours, theirs = next(actions.ours("pendulum", 64)), next(actions.theirs("pendulum", 64))

    np.testing.assert_array_equal(2 * ours, theirs)


def test_a_cart_of_another_library_is_pushed_to_the_same_sides():
    ours, theirs = next(actions.ours("cart-pole", 64)), next(actions.theirs("cart-pole", 64))

    np.testing.assert_array_equal(2 * theirs - 1, ours[:, 0])


def test_actions_differ_from_step_to_step_and_come_again():
    following = actions.theirs("pendulum", 2)
    found = np.array([next(following) for _ in range(actions.STEPS + 1)])

    assert len(np.unique(found)) > actions.STEPS
    np.testing.assert_array_equal(found[0], found[-1])
