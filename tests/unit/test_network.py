import numpy as np
import pytest
from tests.unit import policy_models as build

from arkml.abi.codes import SnapshotFormat
from arkml.errors import InvalidArguments
from arkml.policies.library import PolicyLibrary


def network(data, *, key=0, **options):
    library = PolicyLibrary(build.CACHE, **options)
    return library.load_network(data, SnapshotFormat.ONNX, key=key)


def run(brain, agents, **inputs):
    arrays = {name: np.array(values, np.float32) for name, values in inputs.items()}
    return brain.run(np.array(agents, np.uint64), arrays)


def names(ports):
    return [port.name for port in ports]


def test_a_network_shows_what_the_guest_fills_and_gets():
    brain = network(build.with_value(flat=True))
    results = run(brain, [5, 9], obs=[[1, 2], [3, 4]])

    assert [(port.name, port.shape) for port in brain.inputs] == [("obs", (2,))]
    assert [(port.name, port.shape) for port in brain.outputs] == [("actions", (2,)), ("value", ())]
    assert results["actions"].tolist() == [[1, 2], [3, 4]]
    assert results["value"].tolist() == [3, 7]


def test_epsilon_is_the_hosts_and_new_at_every_step():
    brain = network(build.noisy(1))
    first, second = (run(brain, [5, 9], obs=[[0], [0]])["actions"] for _ in range(2))

    assert names(brain.inputs) == ["obs"]
    assert len({*first.ravel(), *second.ravel()}) == 4
    again = network(build.noisy(1))
    assert run(again, [9, 5], obs=[[0], [0]])["actions"].tolist() == first[::-1].tolist()


def test_networks_of_different_keys_draw_different_noise():
    one, other = network(build.noisy(1), key=1), network(build.noisy(1), key=2)

    assert run(one, [5], obs=[[0]])["actions"] != run(other, [5], obs=[[0]])["actions"]


def test_a_deterministic_network_has_no_noise():
    brain = network(build.noisy(1), deterministic=True)

    assert run(brain, [5], obs=[[3]])["actions"].tolist() == [[3]]


def test_recurrent_state_is_the_hosts_and_that_of_one_network():
    brain, other = network(build.adding(1)), network(build.adding(1))
    run(brain, [5, 9], obs=[[1], [2]])

    assert names(brain.inputs) == ["obs"]
    assert names(brain.outputs) == ["actions"]
    assert run(brain, [9, 5, 9], obs=[[10], [10], [10]])["actions"].tolist() == [[12], [11], [22]]
    assert run(other, [9], obs=[[10]])["actions"].tolist() == [[10]]


def test_masks_are_inputs_like_others():
    brain = network(build.ml_agents(masks=2), deterministic=True)
    results = run(brain, [1], obs_0=[[1, 0, 0, 0]], action_masks=[[1, 0]])

    assert names(brain.inputs) == ["obs_0", "action_masks"]
    assert results["deterministic_continuous_actions"].tolist() == [[1, 1]]


def test_inputs_that_are_missing_or_of_another_size_are_refused():
    brain = network(build.linear([[1], [1]]))

    with pytest.raises(InvalidArguments, match=r"input obs takes 2 floats .* got nothing"):
        run(brain, [1])
    with pytest.raises(InvalidArguments, match="for each of 1 agents, got 3 floats"):
        run(brain, [1], obs=[[1, 2, 3]])


def test_no_agents_get_no_rows():
    brain = network(build.linear([[1]]))

    assert run(brain, [], obs=np.zeros((0, 1)))["actions"].shape == (0, 1)
