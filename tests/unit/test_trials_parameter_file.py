"""The file of default parameters of trials."""

import re

import pytest
from tests.pipes import endless_pipe

from arkml.base.files import MOST_OF_SETTINGS
from arkml.trials.core.error import TrialError
from arkml.trials.core.parameters import TrialEndpoint
from arkml.trials.server import parameter_file
from arkml.trials.server.parameter_file import endpoints_of, read_parameters

WHOLE = """
trial_params:
  properties: {user: x}
  max_steps: 20
  max_inactivity: 5
  nb_buffered_ticks: 4
  environment:
    name: world
    endpoint: grpc://localhost:9001
    implementation: flat
  actors:
    - name: a
      actor_class: player
      endpoint: grpc://localhost:9002
      implementation: random
      initial_connection_timeout: 2.5
      response_timeout: 1
      optional: true
    - name: b
      actor_class: player
      endpoint: cogment://client
other_section: [anything]
"""
LEAST = """
trial_params:
  environment: {endpoint: "grpc://localhost:9001"}
  actors: [{name: a, actor_class: player, endpoint: "cogment://client"}]
"""


@pytest.fixture
def read(tmp_path):
    def read(text):
        path = tmp_path / "params.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_parameters(path)

    return read


def test_a_file_sets_every_parameter(read):
    params = read(WHOLE)
    first, second = params.actors

    assert dict(params.properties) == {"user": "x"}
    assert (params.max_steps, params.max_inactivity, params.nb_buffered_ticks) == (20, 5, 4)
    assert params.environment.name == "world"
    assert params.environment.endpoint == "grpc://localhost:9001"
    assert params.environment.implementation == "flat"
    assert (first.name, first.actor_class, first.implementation) == ("a", "player", "random")
    assert (first.initial_connection_timeout, first.response_timeout) == (2.5, 1)
    assert first.optional
    assert second.endpoint == "cogment://client"
    assert (second.initial_connection_timeout, second.response_timeout) == (0, 0)
    assert not second.optional


def test_a_file_leaves_the_rest_at_its_defaults(read):
    params = read(LEAST)

    assert params.environment.name == "env"
    assert (params.max_steps, params.max_inactivity, params.nb_buffered_ticks) == (0, 30, 2)


def test_no_inactivity_is_no_limit(read):
    assert read(f"{LEAST}  max_inactivity: 0\n").max_inactivity == 0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no section trial_params"),
        ("[1, 2]", "has no section trial_params"),
        ("trial_params: 5", "has no section trial_params"),
        ("other: {}", "has no section trial_params"),
        ("trial_params: {", "cannot be read"),
        ("trial_params: !!python/object/apply:os.getcwd []", "cannot be read"),
        (b"trial_params: \xff\xfe", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("trial_params: {}", "environment 'env' has no endpoint"),
        (f"{LEAST}  steps: 3\n", 'no field named "steps"'),
        (f"{LEAST}  max_steps: -1\n", "max_steps"),
        (f"{LEAST}  max_steps: many\n", "max_steps"),
        (f"{LEAST}  max_inactivity: 1.5\n", "max_inactivity"),
        (f"{LEAST}  properties: {{__secret: x}}\n", "property '__secret' begins with '__'"),
        (f"{LEAST}  properties: {{steps: 5}}\n", "properties"),
        (f"{LEAST}  trial_config: {{}}\n", "sets trial_config"),
        (LEAST.replace("{endpoint", "{config: {}, endpoint"), "sets config"),
        (LEAST.replace("{name", "{config: {}, name"), "sets config"),
        (LEAST.replace("{name", "{default_action: {}, name"), "sets default_action"),
        (LEAST.replace("grpc://", "http://"), "endpoint 'http://localhost:9001' is not one of"),
        (LEAST.replace("name: a", "name: env"), "actor 'env' has the name of the environment"),
        ("trial_params: {actors: 5, environment: {}}", "actors"),
        ("trial_params: {actors: [5]}", "actors"),
        ("trial_params: {environment: [1]}", "environment"),
        ("trial_params: {1: 2}", "Failed to parse 1 field"),
        (f"{LEAST}  1: 2\n", "Failed to parse 1 field"),
        (f"{LEAST}  max_steps: 2020-01-01\n", "max_steps"),
        (f"{LEAST}  max_steps: .nan\n", "max_steps"),
        ("trial_params: &a\n  environment: *a\n", "an alias repeats the value that it is part of"),
        (f"{LEAST}  max_steps: 2020-99-99\n", "'2020-99-99' is not of type 'timestamp'"),
        (f"{LEAST}  max_steps: {'x' * 5000}\n", "max_steps"),
        (f"{LEAST}  max_steps: [{'x, ' * 5000}]\n", "max_steps"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_the_file(read, text, sentence):
    with pytest.raises(TrialError, match=rf"params\.yaml.*{re.escape(sentence)}") as refused:
        read(text)
    assert len(str(refused.value)) < 700


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(TrialError, match=r"absent\.yaml cannot be read"):
        read_parameters(tmp_path / "absent.yaml")
    with pytest.raises(TrialError, match="cannot be read"):
        read_parameters(tmp_path)


def test_a_file_has_a_limit(read):
    with pytest.raises(TrialError, match=f"has more than {MOST_OF_SETTINGS:,} bytes"):
        read(LEAST + "#" * MOST_OF_SETTINGS)


def test_a_device_is_read_up_to_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(parameter_file, "MOST_OF_SETTINGS", 100)
    with (
        endless_pipe(tmp_path / "pipe", b" " * 101) as pipe,
        pytest.raises(TrialError, match="pipe cannot be read: it has more than 100 bytes"),
    ):
        read_parameters(pipe)


def test_endpoints_of_parameters_are_all_that_they_name(read):
    assert endpoints_of(read(WHOLE)) == {
        TrialEndpoint.parse("grpc://localhost:9001"),
        TrialEndpoint.parse("grpc://localhost:9002"),
        TrialEndpoint.parse("cogment://client"),
    }
