import pytest

from arkml.errors import InvalidArguments
from arkml.hive.protocol.parts import Part, fields_of
from arkml.policies.ports import Layout, Port
from arkml.policies.roles import find_roles
from arkml.policies.signature import Wanted, find_signature

OBS = Port("obs", (8,))
ACTIONS = Port("actions", (3,))
ML_AGENTS = [
    Port("version_number", ()),
    Port("continuous_action_output_shape", (1,)),
    Port("continuous_actions", (3,)),
    Port("deterministic_continuous_actions", (3,)),
]


def signature(inputs, outputs, features=8, actions=3, branches=(), acting=(), **wanted):
    roles = find_roles(Layout(tuple(inputs), tuple(outputs)), features)
    return find_signature(roles, Wanted(features, actions, branches, acting, **wanted))


def chosen(outputs, actions=3, *, deterministic=False):
    """The names of the outputs taken for actions and values."""
    found = signature([OBS], outputs, 8, actions, deterministic=deterministic)
    (acting,) = found.acting
    return acting.name, found.values.name if found.values else None


def paired(inputs, outputs, features=None, twins=()):
    layout = Layout(tuple(Port(*p) for p in inputs), tuple(Port(*p) for p in outputs), twins)
    pairs = find_roles(layout, features).recurrent
    return [(source.name, target.name) for source, target in pairs]


def test_the_plainest_model_has_observations_and_actions():
    found = signature([OBS], [ACTIONS])

    assert found.roles.observations == (OBS,)
    assert found.acting == (ACTIONS,)
    assert found.values is None
    assert (found.num_features, found.num_actions) == (8, 3)


@pytest.mark.parametrize("name", ["epsilon", "epsilon:0", "epsilon_0", "Epsilon"])
def test_epsilon_is_told_by_its_name(name):
    epsilon = Port(name, (3,))
    found = signature([epsilon, OBS], [ACTIONS])

    assert found.roles.epsilon == epsilon
    assert found.roles.observations == (OBS,)


def test_of_two_inputs_of_noise_none_is_drawn():
    noises = [Port("epsilon_0", (3,)), Port("epsilon_1", (3,))]

    with pytest.raises(InvalidArguments, match="epsilon_0: 3, epsilon_1: 3"):
        signature([OBS, *noises], [ACTIONS])


def test_epsilon_of_another_width_than_the_actions_is_refused():
    with pytest.raises(InvalidArguments, match="epsilon of width 2 for 3 actions"):
        signature([OBS, Port("epsilon", (2,))], [ACTIONS])


def test_names_of_tensorflow_are_cut_at_the_colon():
    found = signature(
        [Port("vector_observation:0", (8,)), Port("epsilon:0", (3,))], [Port("Identity:0", (3,))]
    )

    assert found.roles.observations[0].label == "vector_observation"
    assert found.acting[0].name == "Identity:0"


CALLS = [Port("StatefulPartitionedCall:0", (1,)), Port("StatefulPartitionedCall:1", (1,))]


def test_outputs_that_differ_in_their_output_numbers_are_told_apart():
    first, second = (port.name for port in CALLS)

    assert f"({first}: 1, {second}: 1)" in refusal(CALLS, 1)
    for name, other in ((first, second), (second, first)):
        found = signature([Port("obs", (8,))], CALLS, actions=1, acting=(name,))
        assert [port.name for port in found.acting] == [name]
        assert found.sentence == f"{name} acts, the value is {other}"


def test_a_colon_within_a_name_is_a_part_of_it():
    assert "(onnx::Gemm_1: 1, onnx::Gemm_2: 1)" in refusal(
        [Port("onnx::Gemm_1", (1,)), Port("onnx::Gemm_2", (1,))], 1
    )


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


def refusal(outputs, *rest, **wanted):
    """The sentence with which outputs are refused."""
    with pytest.raises(InvalidArguments) as caught:
        signature([OBS], outputs, 8, *rest, **wanted)
    return str(caught.value)


@pytest.mark.parametrize("count", [1, None])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_of_two_outputs_of_width_one_none_acts_unless_a_name_tells(count, shape):
    words = refusal([Port("a", shape), Port("b", shape)], count)

    assert "2 outputs that could be the" in words
    assert "(a: 1, b: 1)" in words
    assert "--policy-output NAME, Host(outputs=NAME)" in words


@pytest.mark.parametrize("name", ["53", "out", "Identity:0"])
@pytest.mark.parametrize(
    "other",
    [
        "value",
        "values",
        "critic",
        "v_out",
        "vf",
        "vpred",
        "baseline",
        "state_value",
        "stateValue",
        "log_std",
        "logstd",
        "std",
        "action_std",
        "sigma",
        "scale",
        "log_prob",
        "actions_log_prob",
        "entropy",
        "q",
        "q_value",
        "qf1",
        "advantage",
        "action_mask",
        "actor_loss",
        "action_noise",
        "step_count",
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_known_words_say_which_output_does_not_act(name, other, is_first):
    ports = [Port(other, (1,)), Port(name, (1,))]
    found = signature([OBS], ports if is_first else ports[::-1], 8, 1)

    assert [port.name for port in found.acting] == [name]


@pytest.mark.parametrize(
    ("acts", "other"),
    [
        ("mean", "std"), ("mu", "log_std"), ("loc", "scale"), ("actor", "critic"),
        ("actor", "53"), ("pi", "vf"), ("policy", "baseline"), ("action_mean", "action_log_std"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("width", [1, 3])
def test_pairs_of_trainers_act_by_the_right_one_in_any_order(acts, other, width):
    ports = [Port(other, (width,)), Port(acts, (width,))]

    assert signature([OBS], ports, 8, width).acting == (ports[1],)
    assert signature([OBS], ports[::-1], 8, width).acting == (ports[1],)


def test_a_whole_number_called_action_acts_beside_the_value():
    found = signature([OBS], [Port("action", (), "int64"), Port("critic", (1,))], 8, 1)

    assert [port.name for port in found.acting] == ["action"]
    assert found.values.name == "critic"


def test_a_flag_is_no_value():
    found = signature([OBS], [Port("move", (2,)), Port("jump", (1,), "bool")], 8, 2)

    assert [port.name for port in found.acting] == ["move"]
    assert found.values is None


def test_an_output_of_width_one_does_not_act_beside_a_wider_one_that_may():
    assert "(24: 1, 53: 4)" in refusal([Port("53", (4,)), Port("24", (1,))], 1)
    assert "(24: 1, logits: 4)" in refusal([Port("logits", (4,)), Port("24", (1,))], 1)
    assert "only critic: 1, logits: 4" in refusal([Port("critic", (1,)), Port("logits", (4,))], 1)


def test_names_that_only_say_what_does_not_act_name_the_way_out():
    words = refusal([Port("std", (2,)), Port("value", (1,))], 2)

    assert "no output of 2 actions, only std: 2, value: 1" in words
    assert "--policy-output" in words


@pytest.mark.parametrize("names", [("53",), ("24",), ("51",)])
def test_the_outputs_that_are_named_act(names):
    ports = [Port("53", (1,)), Port("24", (1,)), Port("51", ())]
    found = signature([OBS], ports, 8, 1, acting=names)

    assert tuple(port.name for port in found.acting) == names
    assert found.values is None


def test_several_outputs_that_are_named_act_one_after_another():
    ports = [Port("b", (2,)), Port("a", (1,)), Port("value", (1,))]
    found = signature([OBS], ports, 8, 3, acting=("a", "b"))

    assert [port.name for port in found.acting] == ["a", "b"]
    assert found.num_actions == 3


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (("c",), "no output 'c', only a: 1, b: 2"),
        (("a", "a"), "an output is named twice: a, a"),
        (("b",), r"have 2 columns \(b: 2\), not 3 actions"),
    ],
)
def test_names_of_outputs_that_do_not_fit_are_refused(names, sentence):
    with pytest.raises(InvalidArguments, match=sentence):
        signature([OBS], [Port("a", (1,)), Port("b", (2,))], 8, 3, acting=names)


@pytest.mark.parametrize(
    "other",
    ["logits", "q_values", "actor_hidden", "policy_latent", "action_features", "prev_action",
     "action_low", "53"],
)  # fmt: skip
@pytest.mark.parametrize("is_first", [True, False])
def test_names_that_do_not_say_that_they_act_are_no_better_than_none(other, is_first):
    ports = [Port(other, (2,)), Port("output", (2,))]

    assert "2 outputs" in refusal(ports if is_first else ports[::-1], 2)


@pytest.mark.parametrize(
    "other",
    ["obs_mean", "state_mean", "running_mean", "next_obs_mean", "target_action", "expert_actions",
     "action_target", "pre_tanh_action", "raw_action", "unscaled_action", "action_embed",
     "actor_core"],
)  # fmt: skip
@pytest.mark.parametrize("width", [1, 2])
def test_further_words_make_of_a_name_for_actions_one_of_two(other, width):
    ports = [Port("output", (width,)), Port(other, (width,))]
    words = refusal(ports, width)

    assert f"could be the {width} actions (output: {width}, {other}: {width})" in words
    assert "--policy-output NAME" in words
    assert signature([OBS], [ports[1]], 8, width).acting == (ports[1],)


@pytest.mark.parametrize(
    "port",
    [Port("policy_version", (1,)), Port("policy_id", (1,), "int64"), Port("action_cov", (1,))],
)
def test_figures_about_a_policy_are_neither_actions_nor_a_value(port):
    found = signature([OBS], [port, Port("output", (1,))], 8, 1)

    assert [acting.name for acting in found.acting] == ["output"]
    assert found.values is None


@pytest.mark.parametrize("branches", [(4,), (4, 4)])
def test_numbers_of_policies_are_no_choices(branches):
    count = len(branches)
    ports = [Port("policy_id", (count,), "int64"), Port("logits", (sum(branches),))]

    assert signature([OBS], ports, 8, count, branches).acting == (ports[1],)


@pytest.mark.parametrize("made", ["squashed", "tanh", "sample", "mode", "squashed_output"])
def test_a_mean_does_not_act_beside_what_is_made_of_it(made):
    ports = [Port(made, (2,)), Port("mean", (2,)), Port("log_std", (2,))]

    assert f"2 outputs that could be the 2 actions ({made}: 2, mean: 2)" in refusal(ports, 2)
    assert f"({made}: 2, mean: 2" in refusal([*ports, Port("logits", (3,))], 3, (3,))


def test_scores_do_not_act_beside_others_that_may():
    ports = [Port("q_values", (4,)), Port("action_dist_inputs", (4,))]

    assert "2 outputs that could be the 1 actions" in refusal(ports, 1, (4,))
    assert signature([OBS], ports[1:], 8, 1, (4,)).branches == (4,)


def test_a_state_with_the_name_of_an_operator_is_found_by_its_width():
    pairs = paired([("obs", (8,)), ("x", (4,))], [("linear", (2,)), ("tanh", (4,))], 8)

    assert pairs == [("x", "tanh")]


def test_two_critics_beside_the_actions_do_not_act():
    ports = [Port("q1", (1,)), Port("53", (1,)), Port("q2", (1,))]

    assert signature([OBS], ports, 8, 1).acting == (ports[1],)
    assert "only q: 1" in refusal([Port("q", (1,))], 1)


def test_a_variable_with_a_number_may_act():
    assert chosen([Port("var_12", (3,)), Port("var_7", (1,))]) == ("var_12", "var_7")


@pytest.mark.parametrize(
    "names", [("critic1", "critic2"), ("value_0", "value_1"), ("values", "values_1")]
)
def test_two_values_are_none(names):
    found = signature([OBS], [ACTIONS, *(Port(name, (1,)) for name in names)])

    assert found.values is None


@pytest.mark.parametrize(
    "names", [("action_0", "action_1"), ("action", "action_1"), ("actions_0", "actions_1")]
)
@pytest.mark.parametrize("branches", [(2, 3), (2, 2), (2, 4)])
def test_actions_with_numbers_are_the_heads_of_branches(names, branches):
    heads = [Port(name, (width,)) for name, width in zip(names, branches, strict=True)]
    found = signature([OBS], heads, 8, 2, branches)

    assert [port.name for port in found.acting] == list(names)
    assert found.branches == branches


def test_heads_of_which_the_first_is_as_wide_as_the_branches_are_many_act_by_their_scores():
    heads = [Port(f"action_{number}", (width,)) for number, width in enumerate((3, 2, 2))]

    assert signature([OBS], heads, 8, 3, (3, 2, 2)).acting == tuple(heads)


@pytest.mark.parametrize(
    "names",
    [("action_0", "action_1"), ("action", "action_1"), ("actions_0", "actions_1"),
     ("continuous_actions_0", "continuous_actions_1")],
)  # fmt: skip
def test_of_actions_that_differ_in_numbers_alone_none_acts(names):
    ports = [Port(name, (3,)) for name in names]

    assert f"2 outputs that could be the 3 actions ({names[0]}: 3, {names[1]}: 3)" in refusal(ports)
    assert "--policy-output NAME" in refusal(ports, 6)


def test_a_step_of_time_that_a_guest_does_not_push_is_named_with_the_way_out():
    inputs = [OBS, Port("time_step", (1,))]
    with pytest.raises(InvalidArguments) as caught:
        signature(inputs, [Port("actions", (3,))])

    text = str(caught.value)
    assert "of which the host feeds none but" in text
    assert "time_step: 1. The guest has them among its features" in text
    assert "recurrent state" not in text


@pytest.mark.parametrize("name", ["action", "head_action", "logits_"])
def test_a_head_that_alone_is_as_wide_as_the_actions_does_not_act(name):
    heads = [Port(f"{name}{number}", (width,)) for number, width in enumerate((3, 3, 2))]
    text = f"3 outputs that could be the 2 actions ({name}0: 3, {name}1: 3, {name}2: 2)"

    assert text in refusal(heads, 2)
    assert signature([OBS], heads[2:], 8, 2).acting == (heads[2],)


CHOICES = Port("discrete_actions", (2,), "int64")
LIKELIEST = Port("deterministic_discrete_actions", (2,), "int64")
SCALAR = Port("24", (1,))


@pytest.mark.parametrize(
    ("outputs", "actions", "branches", "acting", "is_scored"),
    [
        ([CHOICES, LIKELIEST], 2, (3, 2), ["discrete_actions"], False),
        ([ACTIONS, CHOICES], 3, (), ["actions"], False),
        ([ML_AGENTS[2], CHOICES], 5, (3, 2), ["continuous_actions", "discrete_actions"], False),
        ([Port("56", (), "int64"), SCALAR, Port("54", ())], 1, (4,), ["56"], False),
        ([Port("106", (2,), "int64"), SCALAR], 2, (3, 2), ["106"], False),
        ([Port("13", (4,))], 1, (4,), ["13"], True),
        ([Port("q_values", (4,)), SCALAR], 1, (4,), ["q_values"], True),
        ([Port("logits", (5,)), Port("value", (1,))], 2, (3, 2), ["logits"], True),
        ([Port("actions", (5,))], 2, (3, 2), ["actions"], True),
        ([Port("actions", (2,)), Port("logits", (5,))], 2, (3, 2), ["actions"], False),
        ([Port("mu", (2,)), Port("logits", (3,)), SCALAR], 3, (3,), ["mu", "logits"], True),
        ([Port("a", (2,)), Port("b", (1,), "int64"), SCALAR], 3, (3,), ["a", "b"], False),
        ([Port("output", (5,)), SCALAR], 3, (3,), ["output"], True),
        ([Port("logits_0", (3,)), Port("logits_1", (2,)), SCALAR], 2, (3, 2),
         ["logits_0", "logits_1"], True),
        ([Port("a", (), "int64"), Port("b", (), "int64"), SCALAR], 2, (3, 2), ["a", "b"], False),
        ([Port("106", (2,), "int64"), Port("logits", (5,)), SCALAR], 2, (3, 2), ["106"], False),
        ([Port("mu", (2,)), Port("q0", (3,)), Port("q1", (2,))], 4, (3, 2),
         ["mu", "q0", "q1"], True),
        ([Port("q_values", (3,)), Port("action_mask", (3,))], 1, (3,), ["q_values"], True),
        ([Port("q", (3,)), Port("step_count", (), "int64")], 1, (3,), ["q"], True),
        ([Port("head_0", (3,)), Port("head_1", (2,)), SCALAR], 2, (3, 2),
         ["head_0", "head_1"], True),
        ([Port("a", (3,)), Port("b", (4,)), SCALAR], 2, (3, 4), ["a", "b"], True),
    ],
)  # fmt: skip
def test_declared_branches_tell_choices_and_scores(outputs, actions, branches, acting, is_scored):
    found = signature([OBS], outputs, 8, actions, branches)

    assert [port.name for port in found.acting] == acting
    assert found.branches == (branches if is_scored else ())
    assert found.num_actions == actions


@pytest.mark.parametrize("kind", ["int64", "float32"])
def test_outputs_for_each_branch_come_by_their_numbers(kind):
    width = 1 if kind == "int64" else 2
    ports = [Port(f"action_{number}", (width,), kind) for number in (10, 9, 11)]
    found = signature([OBS], [*ports, Port("value", (1,))], 8, 3, (2, 2, 2))

    assert [port.name for port in found.acting] == ["action_9", "action_10", "action_11"]


@pytest.mark.parametrize("is_first", [True, False])
def test_scores_of_one_branch_are_not_the_choices_of_two(is_first):
    ports = [Port("left", (3,)), Port("right", (2,))]

    assert "2 outputs" in refusal(ports if is_first else ports[::-1], 2, (3, 2))


@pytest.mark.parametrize("name", ["logits", "probs", "q"])
def test_a_score_for_each_branch_is_no_choice(name):
    assert f"only {name}: 3" in refusal([Port(name, (3,))], 3, (2, 2, 2))


@pytest.mark.parametrize("branches", [(2, 2, 2), (4, 3, 2)])
def test_a_float_for_each_branch_is_a_choice_only_by_its_name(branches):
    words = refusal([Port("linear", (3,)), Port("value", (1,))], 3, branches)
    named = [Port("discrete_action", (3,)), Port("linear", (3,), "int32")]

    assert "linear: 3 of the model may be choices, or a score for each branch" in words
    assert "--policy-output NAME" in words
    assert signature([OBS], [Port("linear", (3,))], 8, 3, branches, ("linear",)).branches == ()
    for port in named:
        assert signature([OBS], [port], 8, 3, branches).acting == (port,)


@pytest.mark.parametrize(
    "other", ["hidden", "latent_pi", "features", "embedding_1", "next_obs", "prev_action"]
)
@pytest.mark.parametrize("is_first", [True, False])
def test_layers_observations_and_last_actions_are_not_the_scores_of_a_branch(other, is_first):
    ports = [Port(other, (3,)), Port("x", (3,))]
    words = refusal(ports if is_first else ports[::-1], 2, (3, 3))

    assert "no output of 2 actions, nor 6 with a score for each choice" in words


def test_layers_are_not_taken_for_heads_by_their_numbers_or_for_continuous_actions():
    layers = [Port("hidden_0", (3,)), Port("hidden_1", (3,))]
    heads = [Port("head_0", (3,)), Port("head_1", (3,))]

    assert "no output" in refusal(layers, 2, (3, 3))
    assert signature([OBS], [*layers, *heads], 8, 2, (3, 3)).acting == tuple(heads)
    assert "no output" in refusal([Port("latent", (2,)), Port("logits", (3,))], 3, (3,))
    assert signature([OBS], [Port("latent", (2,)), Port("x", (3,))], 8, 3, (3,)).branches == ()


def test_without_noise_the_likeliest_choices_of_agents_act():
    found = signature([OBS], [CHOICES, LIKELIEST], 8, 2, (3, 2), deterministic=True)

    assert found.acting == (LIKELIEST,)


def test_parts_of_mixed_actions_that_could_be_two_are_refused():
    ports = [Port("a", (2,)), Port("b", (2,)), Port("logits", (3,))]

    assert "(a: 2, b: 2, logits: 3)" in refusal(ports, 3, (3,))


@pytest.mark.parametrize(
    ("names", "branches"),
    [
        (("action_continuous", "action_discrete"), (3,)),
        (("action_mean", "action_choice"), (3,)),
        (("continuous", "discrete"), (3,)),
        (("mu", "action_discrete"), (2, 2)),
        (("move", "discrete"), (2,)),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_word_for_choices_tells_the_scores_beside_continuous_actions(names, branches, is_first):
    ports = [Port(names[0], (2,)), Port(names[1], (sum(branches),))]
    found = signature([OBS], ports if is_first else ports[::-1], 8, 2 + len(branches), branches)

    assert found.acting == tuple(ports)
    assert found.branches == branches


@pytest.mark.parametrize(
    ("outputs", "actions", "branches"),
    [
        ({"mu": 2, "head": 3}, 3, (3,)),
        ({"move": 2, "shoot": 3}, 3, (3,)),
        ({"mu": 2, "pi": 3}, 3, (3,)),
        ({"mu": 2, "head": 5}, 4, (3, 2)),
        ({"mu": 2, "head": 4}, 4, (2, 2)),
        ({"steer": 1, "gear": 2}, 2, (2,)),
        ({"actions_c": 1, "actions_d": 2}, 2, (2,)),
        ({"mu": 2, "left": 4, "right": 3}, 4, (4, 3)),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_scores_do_not_act_alone_where_continuous_actions_may_be_beside_them(
    outputs, actions, branches, is_first
):
    ports = [Port(name, (width,)) for name, width in outputs.items()]
    words = refusal(ports if is_first else ports[::-1], actions, branches)

    assert f"{len(ports)} outputs that could be the {actions} actions" in words
    assert all(f"{port.label}: {port.width}" in words for port in ports)
    assert "--policy-output NAME" in words


@pytest.mark.parametrize("other", ["x", "24", "state_value"])
def test_a_name_for_all_actions_tells_them_from_scores_of_the_same_width(other):
    ports = [Port(other, (1,)), Port("policy", (2,))]

    assert signature([OBS], ports, 8, 2, (2,)).acting == (ports[1],)


@pytest.mark.parametrize("port", [ML_AGENTS[2], Port("discrete_actions", (3,), "int64")])
def test_a_half_of_what_agents_of_both_kinds_do_is_refused(port):
    assert "no output of 3 actions" in refusal([port], 3, (3,))


def test_no_output_is_both_the_continuous_actions_and_the_scores_of_a_branch():
    heads = [Port("action_0", (2,)), Port("action_1", (3,))]

    assert "no output of 2 actions beside choices" in refusal(heads, 4, (2, 3))


def test_scores_without_declared_branches_name_the_declaration():
    assert "declares its branches (arkml.spec)" in refusal([Port("logits", (4,))], 1)


def test_a_number_that_may_be_a_choice_does_not_act_without_branches():
    assert "2 outputs" in refusal([Port("56", (), "int64"), Port("24", (1,))], 1)


def test_a_model_of_which_no_output_acts_is_refused_with_what_they_are():
    inputs = (OBS, Port("h_in", (8,)))
    state = Layout(inputs, (Port("h_out", (8,)),), constants=("mean",))
    with pytest.raises(InvalidArguments) as caught:
        find_signature(find_roles(state), Wanted())

    assert refusal([], 2) == "no output of the model acts: it has none"
    assert str(caught.value) == (
        "no output of the model acts: 'h_out' is the state that 'h_in' takes, 'mean' has no row for"
        " each row of the inputs"
    )


def test_an_output_of_twice_the_width_is_told_to_hold_deviations():
    inputs = Port("action_dist_inputs", (4,))

    assert "export the means alone" in refusal([inputs], 2)
    assert "means" not in refusal([inputs], 3)


def test_wrong_numbers_of_features_or_actions_name_both():
    with pytest.raises(InvalidArguments, match=r"takes 8 features \(obs: 8\), 9 are given"):
        signature([OBS], [ACTIONS], features=9)
    with pytest.raises(InvalidArguments, match="no output of 4 actions, only actions: 3"):
        signature([OBS], [ACTIONS], actions=4)


def test_outputs_that_could_both_be_the_actions_are_refused():
    assert "2 outputs that could be the 3 actions (a: 3, b: 3)" in refusal(
        [Port("a", (3,)), Port("b", (3,))]
    )


S, R = (1, 16), (16,)
CONVENTIONS = {
    "godot": ((), "state_ins", "state_outs"),
    "rllib": (S, "state_in_0 state_in_1", "state_out_0 state_out_1"),
    "rllib new": (S, "state_in_h state_in_c", "state_out_h state_out_c"),
    "rsl_rl": (S, "h_in c_in", "h_out c_out"),
    "torch": (S, "h0 c0", "hn cn"),
    "torch, apart": (S, "h_0 c_0", "h_n c_n"),
    "sample factory": (R, "rnn_states", "new_rnn_states"),
    "torchrl": (S, "recurrent_state_h recurrent_state_c",
                "next_recurrent_state_h next_recurrent_state_c"),
    "out": (R, "hidden", "hidden_out"),
    "new": (R, "hidden", "new_hidden"),
    "both": (R, "in_state", "out_state"),
    "next": (R, "h", "next_h"),
    "cells": (R, "hx cx", "hx_new cx_new"),
    "torch's cells": (R, "hx cx", "hy cy"),
    "layers of torch": (S, "layer1_h layer2_h", "layer1_hn layer2_hn"),
    "initial": (S, "initial_h initial_c", "final_h final_c"),
    "two states": (R, "hidden_state cell_state", "hidden_state_out cell_state_out"),
    "before": (R, "prev_state", "state"),
    "camels": (R, "hiddenIn", "hiddenOut"),
    "agents": (S, "recurrent_in", "recurrent_out"),
    "actor's": (R, "actor_h_in", "actor_h_out"),
    "numbers of an exporter": (S, "onnx::LSTM_1", "42"),
    "numbers": (R, "1", "42"),
    "last action": ((2,), "prev_action", "action"),
    "past": (S, "past_h past_c", "present_h present_c"),
    "before and after": (S, "state_before", "state_after"),
    "start and end": (S, "h_start", "h_end"),
    "steps": (S, "h_tm1", "h_t"),
}  # fmt: skip


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_conventions_of_trainers_for_state_are_known(convention):
    shape, inputs, outputs = CONVENTIONS[convention]
    found = signature(
        [OBS, *(Port(name, shape) for name in inputs.split())],
        [Port("mean_out", (2,)), *(Port(name, shape) for name in outputs.split())],
        8,
        2,
    )

    assert [(a.name, b.name) for a, b in found.roles.recurrent] == list(
        zip(inputs.split(), outputs.split(), strict=True)
    )
    assert found.acting[0].name == ("action" if convention == "last action" else "mean_out")


def test_the_width_of_the_features_decides_what_is_state():
    inputs = [OBS, Port("goal", (2,)), Port("prev_action", (2,))]
    outputs = [Port("53", (2,)), Port("action", (2,))]

    assert signature(inputs[:2], outputs, 10, 2).roles.recurrent == ()
    assert signature(inputs[::2], outputs, 10, 2).roles.recurrent == ()
    assert signature(inputs, outputs, 10, 2).roles.recurrent == ((inputs[2], outputs[1]),)
    assert signature(inputs[:2], outputs, 8, 2).roles.recurrent == ((inputs[1], outputs[0]),)


def test_an_observation_beside_its_prediction_is_no_state():
    inputs = [Port("state", (8,)), Port("h", (4,))]
    outputs = [Port("output", (2,)), Port("next_state", (8,)), Port("next_h", (4,))]

    assert signature(inputs, outputs, 8, 2).roles.recurrent == ((inputs[1], outputs[2]),)
    assert paired([("obs", (8,))], [("53", (3,)), ("next_obs", (8,))]) == []
    assert paired([("state", (8,))], [("53", (3,)), ("next_state", (8,))]) == []


def test_what_acts_is_fed_back_as_the_last_action_also_without_a_name():
    inputs = [OBS, Port("last_action", (2,))]
    outputs = [Port("output", (2,)), Port("log_std", (2,))]
    found = signature(inputs, outputs, 8, 2)

    assert found.roles.recurrent == ((inputs[1], outputs[0]),)
    assert found.acting == (outputs[0],)


def test_the_output_that_is_named_is_fed_back_as_the_last_action():
    inputs = [OBS, Port("last_action", (2,))]
    outputs = [Port("action", (2,)), Port("mode", (2,))]

    assert signature(inputs, outputs, 8, 2).roles.recurrent == ((inputs[1], outputs[0]),)
    assert signature(inputs, outputs, 8, 2, acting=("mode",)).roles.recurrent == (
        (inputs[1], outputs[1]),
    )


def test_scores_are_not_fed_back_as_the_last_action():
    inputs, outputs = [OBS, Port("prev_action", (4,))], [Port("policy", (4,))]

    with pytest.raises(InvalidArguments, match=r"\(prev_action: 4\), .* \(policy: 4\) none"):
        signature(inputs, outputs, 8, 1, (4,))
    mixed = [Port("mu", (2,)), Port("logits", (3,))]
    inputs = [OBS, Port("prev_action", (2,))]
    assert signature(inputs, mixed, 8, 3, (3,)).roles.recurrent == ((inputs[1], mixed[0]),)


def test_states_that_could_be_two_are_refused():
    inputs = (OBS, Port("1", (3,)), Port("2", (3, 1)))
    outputs = (ACTIONS, Port("7", (3,)), Port("8", (3, 1)))

    with pytest.raises(InvalidArguments, match="could be 1 or 2: export it with names as h_in"):
        find_roles(Layout(inputs, outputs), 11)


def test_a_goal_without_a_name_is_no_state_where_the_width_is_unknown():
    assert paired([("obs", (8,)), ("goal", (2,))], [("53", (2,)), ("54", (1,))]) == []


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("last_reward", "reward"),
        ("value_in", "value"),
        ("prev_log_prob", "log_prob"),
        ("done_in", "done_out"),
        ("prev_action_log_prob", "action_log_prob"),
        ("episode_starts", "53"),
        ("last_reward", "53"),
    ],
)
def test_a_figure_is_no_state_of_its_prediction(source, target):
    inputs, outputs = [OBS, Port(source, (1,))], [Port("action", (2,)), Port(target, (1,))]

    with pytest.raises(InvalidArguments, match=f"masks, flags or figures, .* {source}: 1"):
        signature(inputs, outputs, 8, 2)
    assert signature(inputs, outputs, 9, 2).roles.recurrent == ()


def test_a_figure_is_no_state_of_what_the_graph_shows_either():
    inputs, outputs = [("obs", (8,)), ("x", (1,))], [("action", (2,)), ("value", (1,))]

    assert paired(inputs, outputs, twins=(("x", "value"),)) == []


@pytest.mark.parametrize(
    "names",
    [("critic_h", "critic_h_next"), ("critic_in", "critic_out"), ("past_v", "present_v"),
     ("noise_in", "noise_out"), ("step", "step_out"), ("value_state", "next_value_state")],
)  # fmt: skip
def test_words_of_figures_may_be_in_the_name_of_a_state(names):
    source, target = Port(names[0], (4,)), Port(names[1], (4,))

    pairs = signature([OBS, source], [ACTIONS, target]).roles.recurrent
    assert pairs == ((source, target),)


@pytest.mark.parametrize(
    "names",
    [("avail_actions",), ("mask",), ("episode_starts",), ("seq_lens",),
     ("action_mask_0", "action_mask_1")],
)  # fmt: skip
def test_masks_and_flags_that_nothing_feeds_are_named(names):
    inputs = [OBS, *(Port(name, (3,)) for name in names)]

    with pytest.raises(InvalidArguments) as caught:
        signature(inputs, [Port("q", (3,))], 8, 1, (3,))
    listed = ", ".join(f"{name}: 3" for name in names)
    assert f"the masks of all choices as one input action_masks: {listed}." in str(caught.value)
    assert "h_in" not in str(caught.value)


def test_an_input_that_reaches_its_twin_alone_is_state():
    inputs, outputs = [("obs", (8,)), ("x", (2,))], [("53", (3,)), ("y", (2,))]

    assert paired(inputs, outputs, twins=(("x", "y"),)) == [("x", "y")]
    assert paired(inputs[1:], outputs[1:], twins=(("x", "y"),)) == []


def vectors(**widths):
    return tuple(fields_of(Part(name, (width,)) for name, width in widths.items()))


@pytest.mark.parametrize("names", [["b", "a", "c"], ["a", "b", "c"], ["C", "A", "B:0"]])
def test_observations_called_as_parts_are_in_their_order(names):
    widths = {"a": 2, "b": 1, "c": 5}
    layout = Layout(tuple(Port(n, (widths[n[0].lower()],)) for n in names), (ACTIONS,))
    found = find_roles(layout, 8, vectors(b=1, a=2, c=5)).observations

    assert [port.label.lower() for port in found] == ["b", "a", "c"]


def test_parts_that_differ_in_capitals_alone_are_told_by_these():
    inputs = (Port("a", (4,)), Port("A", (4,)))

    assert find_roles(Layout(inputs, (ACTIONS,)), 8, vectors(A=4, a=4)).observations == inputs[::-1]


@pytest.mark.parametrize("parts", [{}, {"b": 3, "a": 5}, {"x": 3, "y": 5}, {"obs": 8}])
def test_observations_with_other_names_than_the_parts_stay_in_the_order_of_the_file(parts):
    inputs = (Port("1", (3,)), Port("a", (5,)))

    assert find_roles(Layout(inputs, (ACTIONS,)), 8, vectors(**parts)).observations == inputs


def test_observations_called_as_parts_of_other_widths_are_refused():
    layout = Layout((Port("a", (3,)), Port("b", (5,))), (ACTIONS,))

    with pytest.raises(InvalidArguments, match=r"a: 3, b: 5, and the guest declares .* b: 3, a: 5"):
        find_roles(layout, 8, vectors(b=3, a=5))


def test_observations_of_which_some_are_called_as_parts_are_refused_by_the_name_of_the_part():
    layout = Layout((Port("me", (3,)), Port("tiles", (5,))), (ACTIONS,))

    with pytest.raises(InvalidArguments, match="no input 'foes' and the guest has no part 'tiles'"):
        find_roles(layout, 8, vectors(me=3, foes=5))


@pytest.mark.parametrize("widths", [(5, 3), (4, 4), (1, 2, 5)])
def test_observations_that_end_within_a_part_are_refused(widths):
    layout = Layout(tuple(Port(f"in_{n}", (w,)) for n, w in enumerate(widths)), (ACTIONS,))

    with pytest.raises(InvalidArguments, match=r"within a part of .* rows: a: 3, b: 5"):
        find_roles(layout, 8, vectors(a=3, b=5))


VIEW = Part("view", (6, 4, 3), "image")
OF_ML_AGENTS = "version_number"


@pytest.mark.parametrize(
    ("shape", "part", "constants", "expected"),
    [
        ((6, 4, 3), VIEW, (), None),
        ((72,), VIEW, (), None),
        ((3, 6, 4), VIEW, (), ((2, 0, 1), 1.0)),
        ((3, 6, 4), VIEW, (OF_ML_AGENTS,), ((2, 0, 1), 1 / 255)),
        ((3, 6, 4), Part("view", (6, 4, 3), "grid"), (OF_ML_AGENTS,), ((2, 0, 1), 1.0)),
        ((3, 6, 4), Part("view", (6, 4, 3)), (), None),
        ((3, 3, 3), Part("view", (3, 3, 3), "image"), (), None),
    ],
)
def test_a_model_with_the_channels_first_gets_them_so(shape, part, constants, expected):
    view = Port("obs_0", shape)
    layout = Layout((view,), (ACTIONS,), constants=constants)
    roles = find_roles(layout, part.size, tuple(fields_of([part])))
    found = [(port, one.order, one.factor) for port, one in roles.adapted]

    assert found == ([] if expected is None else [(view, *expected)])


def test_too_many_features_name_the_way_out():
    with pytest.raises(InvalidArguments, match="name and shape of an output, as h_in, h_out"):
        signature([OBS, Port("extra", (4,))], [ACTIONS])


def test_a_model_without_observations_takes_no_features():
    found = signature([Port("epsilon", (3,))], [ACTIONS], features=0)

    assert found.num_features == 0
