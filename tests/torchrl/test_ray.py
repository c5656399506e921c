"""Ray brings environments to its workers."""

import shutil

import numpy as np
import pytest
import ray
from tests.integration.command_line import ENVIRONMENT, GUESTS

from arkml import GuestEnv
from arkml.envs.gymnasium_vector import GuestVectorEnv
from arkml.errors import UsageError

NEXT, SEED = 2, 77
TWO = {"configure": (2, NEXT, 1, 0, 0)}
PATIENCE = 120  # seconds

pytestmark = [pytest.mark.torchrl, pytest.mark.filterwarnings("ignore::FutureWarning")]


@pytest.fixture(scope="module", autouse=True)
def workers():
    ray.init(
        num_cpus=1,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": ENVIRONMENT["PYTHONPATH"]}},
    )
    yield
    ray.shutdown()


def test_a_worker_steps_what_it_is_sent():
    def play(env):
        seen = [env.reset(seed=SEED)[0]]
        seen += [env.step(np.full((2, 1), 0.5))[0] for _ in range(6)]
        env.close()
        return seen

    env = GuestVectorEnv(GUESTS / "c_walkers_seeded.wasm", **TWO)
    found = ray.get(ray.remote(play).remote(env), timeout=PATIENCE)
    expected = play(env)

    assert all(map(np.array_equal, found, expected))


def test_a_worker_refuses_another_module_at_the_path(tmp_path):
    module = shutil.copy(GUESTS / "c_walkers.wasm", tmp_path / "walkers.wasm")
    with GuestEnv(module, **TWO) as env:
        sent = ray.put(env)
    shutil.copy(GUESTS / "c_walkers_seeded.wasm", module)

    with pytest.raises((UsageError, ray.exceptions.RaySystemError), match="another module"):
        ray.get(sent, timeout=PATIENCE)
