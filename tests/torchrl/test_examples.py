"""The programs of examples/environments for TorchRL and RLlib print what their README says."""

import pytest
from tests.integration.command_line import GUESTS
from tests.integration.test_environment_examples import printed, shown, without_numbers

pytestmark = pytest.mark.torchrl


@pytest.mark.parametrize("name", ["torchrl_ppo", "rllib_ppo"])
def test_ppo_learns_to_keep_poles_upright(name, tmp_path):
    lines = printed(name, tmp_path, GUESTS / "c_cartpole.wasm", PYTHONWARNINGS="ignore")
    means = [float(line.split()[-1]) for line in lines]

    assert without_numbers(lines) == without_numbers(shown(f"{name}.py"))
    assert means[-1] > 2 * means[0]
