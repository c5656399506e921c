import pytest

from arkml.errors import InvalidArguments
from arkml.policies.signature import Port, find_roles, find_signature

OBS = Port("obs", (8,))
ACTIONS = Port("actions", (3,))
ML_AGENTS = [
    Port("version_number", ()),
    Port("continuous_action_output_shape", (1,)),
    Port("continuous_actions", (3,)),
    Port("deterministic_continuous_actions", (3,)),
]


def signature(inputs, outputs, features=8, actions=3, *, deterministic=False):
    return find_signature(
        find_roles(inputs, outputs), features, actions, deterministic=deterministic
    )


def chosen(outputs, actions=3, *, deterministic=False):
    """The names of the outputs taken for actions and values."""
    found = signature([OBS], outputs, 8, actions, deterministic=deterministic)
    return found.actions.name, found.values.name if found.values else None


def paired(inputs, outputs):
    pairs = find_roles(
        [Port(*port) for port in inputs], [Port(*port) for port in outputs]
    ).recurrent
    return [(source.name, target.name) for source, target in pairs]


def test_the_plainest_model_has_observations_and_actions():
    found = signature([OBS], [ACTIONS])

    assert found.roles.observations == (OBS,)
    assert found.actions == ACTIONS
    assert found.values is None
    assert (found.num_features, found.num_actions) == (8, 3)


@pytest.mark.parametrize("name", ["epsilon", "epsilon:0", "epsilon_0", "Epsilon"])
def test_epsilon_is_told_by_its_name(name):
    epsilon = Port(name, (3,))
    found = signature([epsilon, OBS], [ACTIONS])

    assert found.roles.epsilon == epsilon
    assert found.roles.observations == (OBS,)


def test_epsilon_of_another_width_than_the_actions_is_refused():
    with pytest.raises(InvalidArguments, match="epsilon of width 2 for 3 actions"):
        signature([OBS, Port("epsilon", (2,))], [ACTIONS])


def test_names_of_tensorflow_are_cut_at_the_colon():
    found = signature(
        [Port("vector_observation:0", (8,)), Port("epsilon:0", (3,))], [Port("Identity:0", (3,))]
    )

    assert found.roles.observations[0].label == "vector_observation"
    assert found.actions.name == "Identity:0"


def test_several_observations_share_the_features():
    found = signature([OBS, Port("image", (4, 4, 2))], [ACTIONS], features=40)

    assert found.num_features == 40


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        (["memory"], ["memory"]),
        (["recurrent_in"], ["recurrent_out"]),
        (["hidden"], ["hidden_out"]),
        (["h_in", "c_in"], ["h_out", "c_out"]),
        (["h0", "c0"], ["hn", "cn"]),
        (["h_0", "c_0"], ["h_n", "c_n"]),
        (["lstm_hidden_state.1", "lstm_cell_state.1"], ["lstm_hidden_state", "lstm_cell_state"]),
        (["h_0_in", "h_1_in"], ["h_0_out", "h_1_out"]),
        (["state:0"], ["state_next:0"]),
    ],
)
def test_recurrent_pairs_have_one_name_and_one_shape(inputs, outputs):
    shape = (1, 16)
    found = paired(
        [("obs", (8,)), *((name, shape) for name in inputs)],
        [("actions", (3,)), *((name, shape) for name in outputs)],
    )

    assert found == list(zip(inputs, outputs, strict=True))


def test_ports_alike_in_name_but_not_in_shape_are_no_pair():
    assert paired([("memory", (4,))], [("memory", (5,))]) == []
    assert paired([("obs_0", (4,)), ("obs_1", (4,))], [("obs", (4,))]) == []
    assert paired([("actions_in", (3,))], [("actions", (3,))]) == []


def test_masks_are_neither_observations_nor_features():
    mask = Port("action_masks", (5,))
    found = signature([OBS, mask], [ACTIONS])

    assert found.roles.masks == (mask,)
    assert found.num_features == 8


@pytest.mark.parametrize(
    ("deterministic", "expected"),
    [(False, "continuous_actions"), (True, "deterministic_continuous_actions")],
)
@pytest.mark.parametrize("count", [3, None])
def test_ml_agents_offers_sampled_actions_and_their_mean(deterministic, expected, count):
    assert chosen(ML_AGENTS, count, deterministic=deterministic) == (expected, None)


def test_an_output_called_actions_goes_before_those_of_ml_agents():
    assert chosen([*ML_AGENTS, ACTIONS], deterministic=True) == ("actions", None)


def test_of_ml_agents_models_with_one_action_no_output_is_the_value():
    single = [Port(port.name, (1,)) for port in ML_AGENTS]

    assert chosen(single, 1) == ("continuous_actions", None)


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("name", ["value", "values", "values:0", "critic"])
@pytest.mark.parametrize("count", [3, None])
def test_the_value_is_called_so_or_is_the_other_output_of_width_one(name, shape, count):
    assert chosen([Port(name, shape), Port("policy", (3,))], count) == ("policy", name)


def test_of_two_outputs_of_width_one_the_first_acts():
    assert chosen([Port("a", (1,)), Port("b", (1,))], 1) == ("a", "b")
    assert chosen([Port("value", (1,)), Port("b", (1,))], 1) == ("b", "value")
    assert chosen([Port("a", (1,)), Port("b", (1,))], None) == ("a", "b")


def test_wrong_numbers_of_features_or_actions_name_both():
    with pytest.raises(InvalidArguments, match=r"takes 8 features \(obs: 8\), 9 are given"):
        signature([OBS], [ACTIONS], features=9)
    with pytest.raises(InvalidArguments, match="no output of 4 actions, only actions: 3"):
        signature([OBS], [ACTIONS], actions=4)


def test_outputs_that_could_both_be_the_actions_are_refused():
    with pytest.raises(InvalidArguments, match=r"2 outputs .* \(mean: 3, log_std: 3\)"):
        signature([OBS], [Port("mean", (3,)), Port("log_std", (3,))])


def test_a_model_without_observations_takes_no_features():
    found = signature([Port("epsilon", (3,))], [ACTIONS], features=0)

    assert found.num_features == 0
