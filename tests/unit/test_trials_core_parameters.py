"""The parameters of trials and the endpoints in them: every mistake is named."""

import math
import re

import pytest
from tests.driven_trial import actor, trial_params

from arkml.trials.core.error import TrialError
from arkml.trials.core.parameters import (
    CLIENT,
    GRPC,
    LOCAL,
    MOST_ACTORS,
    MOST_PROPERTIES,
    TrialEndpoint,
    checked,
)
from arkml.trials.wire.common_pb2 import EnvironmentParams, TrialParams


def environment(**fields):
    return EnvironmentParams(**{"endpoint": "grpc://localhost:9", **fields})


def test_parameters_are_copied_and_get_their_defaults():
    given = trial_params(1)
    before = given.SerializeToString()
    params = checked(given)

    assert params.environment.name == "env"
    assert params.nb_buffered_ticks == 2
    assert (params.max_steps, params.max_inactivity) == (0, 0)
    assert params.actors[0].name == "a0"
    assert given.SerializeToString() == before


def test_what_parameters_say_is_kept():
    given = trial_params(
        [actor("a0", optional=True, default_action=b"d", response_timeout=0.5)],
        environment=environment(name="world"),
        max_steps=5,
        max_inactivity=7,
        nb_buffered_ticks=9,
        properties={"user": "x", "_one": ""},
    )

    assert checked(given) == given


def test_a_required_actor_has_no_default_action():
    params = checked(trial_params([actor("a0", default_action=b"d")]))

    assert not params.actors[0].HasField("default_action")


MISTAKES = {
    "no environment": (TrialParams(), "environment 'env' has no endpoint"),
    "no actors": (trial_params([]), "the parameters have no actors"),
    "too many actors": (
        trial_params(MOST_ACTORS + 1),
        f"{MOST_ACTORS + 1} actors, more than {MOST_ACTORS}",
    ),
    "an environment that joins": (
        trial_params(1, "cogment://client"),
        "environment 'env' has the endpoint 'cogment://client', which only actors may have",
    ),
    "an environment at an unknown endpoint": (
        trial_params(1, "http://localhost:9"),
        "endpoint 'http://localhost:9' is not one of: grpc://HOST:PORT",
    ),
    "two actors of one name": (
        trial_params([actor("a0"), actor("a0")]),
        "actor 'a0' has the name of another actor",
    ),
    "an actor with the default name of environments": (
        trial_params([actor("env")]),
        "actor 'env' has the name of the environment",
    ),
    "an actor with the name of the environment": (
        trial_params([actor("world")], environment=environment(name="world")),
        "actor 'world' has the name of the environment",
    ),
    "an actor without a name": (trial_params([actor("")]), "'' cannot be the name of an actor"),
    "an actor with a wildcard for a name": (
        trial_params([actor("*")]),
        "'*' cannot be the name of an actor",
    ),
    "an actor with a line break": (
        trial_params([actor("a\nb")]),
        r"'a\nb' cannot be the name of an actor",
    ),
    "an environment with a wildcard": (
        trial_params(1, environment=environment(name="e*")),
        "'e*' cannot be the name of an environment",
    ),
    "an actor without a class": (
        trial_params([actor("a0", "")]),
        "'' cannot be the class of an actor",
    ),
    "a class with a wildcard": (
        trial_params([actor("a0", "*")]),
        "'*' cannot be the class of an actor",
    ),
    "an unknown class": (
        trial_params([actor("a0", "judge")]),
        "actor 'a0' has the unknown class 'judge'; known: player, referee",
    ),
    "an actor without an endpoint": (
        trial_params([actor("a0", endpoint="")]),
        "actor 'a0' has no endpoint",
    ),
    "an actor at an unknown endpoint": (
        trial_params([actor("a0", endpoint="cogment://server")]),
        "endpoint 'cogment://server' is not one of",
    ),
    "a negative time to join": (
        trial_params([actor("a0", initial_connection_timeout=-1)]),
        "initial_connection_timeout of actor 'a0' is -1.0, not seconds >= 0",
    ),
    "a time to act that is not a number": (
        trial_params([actor("a0", response_timeout=math.nan)]),
        "response_timeout of actor 'a0' is nan, not seconds >= 0",
    ),
    "an endless time to act": (
        trial_params([actor("a0", response_timeout=math.inf)]),
        "response_timeout of actor 'a0' is inf, not seconds >= 0",
    ),
    "a reserved property": (
        trial_params(1, properties={"__mine": "1"}),
        "property '__mine' begins with '__', which is reserved",
    ),
    "too many properties": (
        trial_params(1, properties={str(number): "" for number in range(MOST_PROPERTIES + 1)}),
        f"{MOST_PROPERTIES + 1} properties, more than {MOST_PROPERTIES}",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_parameters_is_named(name):
    params, sentence = MISTAKES[name]

    with pytest.raises(TrialError, match=re.escape(sentence)):
        checked(params, ["player", "referee"])


def test_any_class_will_do_where_none_are_known():
    assert checked(trial_params([actor("a0", "judge")])).actors[0].actor_class == "judge"
    with pytest.raises(TrialError, match="unknown class 'judge'; known: none"):
        checked(trial_params([actor("a0", "judge")]), [])


# Endpoints


@pytest.mark.parametrize(
    ("text", "endpoint", "authority"),
    [
        ("grpc://localhost:9000", TrialEndpoint(GRPC, "localhost", 9000), "localhost:9000"),
        ("grpc://:9000", TrialEndpoint(GRPC, "localhost", 9000), "localhost:9000"),
        ("grpc://10.0.0.1:1", TrialEndpoint(GRPC, "10.0.0.1", 1), "10.0.0.1:1"),
        ("grpc://[::1]:9000", TrialEndpoint(GRPC, "::1", 9000), "[::1]:9000"),
        ("cogment://client", TrialEndpoint(CLIENT), ":0"),
        ("client", TrialEndpoint(CLIENT), ":0"),
        ("local://", TrialEndpoint(LOCAL), ":0"),
    ],
)
def test_an_endpoint_is_an_address_a_client_or_local(text, endpoint, authority):
    assert TrialEndpoint.parse(text) == endpoint
    assert TrialEndpoint.parse(text).authority == authority


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost:9000",
        "grpc://",
        "grpc://localhost",
        "grpc://localhost:",
        "grpc://localhost:0",
        "grpc://localhost:65536",
        "grpc://localhost:-1",
        "grpc://localhost:http",
        "grpc://[::1",
        "grpc://localhost:9000/",
        "grpc://localhost:9000?a=b",
        "grpc://localhost:9000#a",
        "grpc://user@localhost:9000",
        "grpc://:word@localhost:9000",
        "grpc://local host:9000",
        "grpc://local\nhost:9000",
        "grpcs://localhost:9000",
        "http://localhost:9000",
        "unix:///run/trials",
        "cogment://client/",
        "cogment://clients",
        "local://model",
    ],
)
def test_another_text_is_not_an_endpoint(text):
    with pytest.raises(TrialError, match=re.escape(f"endpoint {text!r} is not one of: grpc://")):
        TrialEndpoint.parse(text)


@pytest.mark.parametrize("text", ["grpc://::1:9000", "::1:9000", "grpc://fe80::2:9000"])
def test_an_ipv6_address_without_brackets_is_refused_with_the_address_that_is_meant(text):
    meant = "grpc://[fe80::2]:9000" if "fe80" in text else "grpc://[::1]:9000"
    with pytest.raises(TrialError, match=re.escape(f"an IPv6 address has brackets: {meant}")):
        TrialEndpoint.parse(text)


@pytest.mark.parametrize("text", ["http://localhost:9000", "grpc://host:9000:1", "grpc://::1:x"])
def test_brackets_are_named_for_addresses_alone(text):
    with pytest.raises(TrialError) as caught:
        TrialEndpoint.parse(text)
    assert "brackets" not in str(caught.value)


@pytest.mark.parametrize("text", ["cogment://discover", "cogment://discover/actor?__id=1"])
def test_discovery_is_refused_with_a_sentence(text):
    with pytest.raises(TrialError, match="asks for a directory, of which there is none here"):
        TrialEndpoint.parse(text)
