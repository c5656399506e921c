"""Arguments of Cogment's SDK: those that change nothing are taken, others refused or obeyed."""

import asyncio
import logging
import re

import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.wrappers_pb2 import BoolValue, Int32Value, StringValue
from tests.trials_sdk_parts import PLAYER, SETTINGS, TEACHER, Ends, actor, environment

import arkml
from arkml import trials
from arkml.trials import (
    ActorClassList,
    ActorParameters,
    CogmentError,
    Context,
    Endpoint,
    GrpcMetadata,
    PrehookSession,
    RecvObservation,
    ServedEndpoint,
    TrialError,
    TrialParameters,
    make_logger,
)
from arkml.trials.sdk.session_events import RecvMessage
from arkml.trials.wire.common_pb2 import Message


async def nothing(_):
    """An implementation that does nothing."""


def test_the_error_of_cogment_is_the_one_of_trials():
    assert CogmentError is TrialError
    assert issubclass(CogmentError, arkml.ArkmlError)
    assert re.match(r"\d+\.\d+", trials.__version__)


def test_a_context_needs_no_settings():
    context = Context("ann")

    assert not context.has_specs()
    assert Context("ann", SETTINGS).has_specs()
    assert context.get_controller("grpc://localhost:1").has_specs()


async def test_arguments_that_ask_for_nothing_are_taken():
    context = Context(
        "ann", SETTINGS, asyncio_loop=asyncio.get_running_loop(), prometheus_registry=None,
        directory_endpoint=None, directory_auth_token="", metadata=GrpcMetadata(),
    )  # fmt: skip
    context.register_actor(nothing, "a", ["player"], properties={"color": "red"})
    context.register_environment(nothing, properties={})
    context.register_pre_trial_hook(nothing, properties=None)
    async with trials.Server() as server:
        await context.serve_all_registered(
            server, prometheus_port=None, directory_registration_host=None
        )


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"prometheus_registry": object()}, "programs have no metrics here"),
        ({"directory_endpoint": Endpoint("grpc://d:1")}, "there is no directory here"),
        ({"directory_auth_token": "secret"}, "there is no directory here"),
    ],
)
def test_a_context_refuses_what_is_not_here(given, sentence):
    with pytest.raises(TrialError, match=sentence) as refused:
        Context("ann", SETTINGS, **given)

    assert str(refused.value).startswith(next(iter(given)))


async def test_a_context_belongs_to_the_loop_that_runs():
    other = asyncio.new_event_loop()
    try:
        with pytest.raises(TrialError, match="asyncio_loop: a context belongs to the event loop"):
            Context("ann", SETTINGS, asyncio_loop=other)
    finally:
        other.close()


@pytest.mark.parametrize(
    "given", [{"prometheus_port": 9_100}, {"directory_registration_host": "game.example"}]
)
async def test_serving_refuses_what_is_not_here_before_anything_is_served(given):
    context = Context("ann", SETTINGS)
    context.register_environment(nothing)
    with pytest.raises(TrialError, match=f"^{next(iter(given))}="):
        await context.serve_all_registered(ServedEndpoint(), **given)

    context.register_actor(nothing, "a", ["player"])  # nothing is frozen


@pytest.mark.parametrize("name", ["__actor_class", "__implementation"])
def test_reserved_properties_are_refused_as_there(name):
    with pytest.raises(TrialError, match=re.escape(f"Actor property [{name}] is reserved")):
        Context("ann", SETTINGS).register_actor(nothing, "a", ["player"], {name: "x"})


def test_an_endpoint_without_an_address_asks_for_a_directory():
    context = Context("ann", SETTINGS)
    with pytest.raises(TrialError, match="asks for a directory, of which there is none here"):
        context.get_controller()


def test_endpoints_have_no_tls():
    endpoint, served = Endpoint("grpc://localhost:1", use_ssl=False), ServedEndpoint("9001")
    endpoint.set_from_files()
    endpoint.private_key = None

    assert not endpoint.using_ssl()
    assert not served.using_ssl()
    assert (endpoint.use_ssl, endpoint.root_certificates) == (False, None)
    assert served.port == 9001
    assert endpoint == Endpoint("grpc://localhost:1") != Endpoint("grpc://localhost:2")


def with_tls(**given):
    return lambda: Endpoint("grpc://localhost:1", **given)


def setting(owner, name):
    return lambda: setattr(owner, name, "PEM")


@pytest.mark.parametrize(
    "refused",
    [
        with_tls(use_ssl=True),
        setting(Endpoint("grpc://localhost:1"), "private_key"),
        setting(ServedEndpoint(), "private_key_certificate_chain_pairs"),
        lambda: Endpoint("grpc://localhost:1").set_from_files("key.pem"),
        lambda: Endpoint("grpc://localhost:1").set_from_files(root_certificates_file="ca.pem"),
    ],
)
def test_tls_of_grpc_is_refused_in_a_sentence(refused):
    with pytest.raises(TrialError, match="gRPC is used without TLS here: keep it on this machine"):
        refused()


@pytest.mark.parametrize("port", ["http", "-1", 65536, "90 00", 1.5, None])
def test_a_port_that_is_not_one_is_refused(port):
    with pytest.raises(TrialError, match="is not a number from 0 to 65535"):
        ServedEndpoint(port)


def test_an_unknown_attribute_of_an_endpoint_is_refused():
    with pytest.raises(AttributeError):
        Endpoint("grpc://localhost:1").timeout = 3


def test_an_actor_sends_to_the_environment_too_if_it_is_told_to():
    ends = Ends()
    session = actor(ends)
    session.start()
    session.send_message(StringValue(value="x"), ["bob"], to_environment=True)
    session.send_message(StringValue(value="y"), ["bob"], to_environment=False)
    receivers = [one.message.receiver_name for one in ends.sent if one.HasField("message")]

    assert receivers == ["bob", "world", "bob"]
    with pytest.raises(TrialError, match="receivers are a list of names"):
        session.send_message(StringValue(), "bob", to_environment=True)


def test_an_environment_sends_nothing_to_itself():
    ends = Ends()
    session = environment(ends)
    session.start()
    session.send_message(StringValue(value="x"), ["ann"], to_environment=True)

    assert [one.message.receiver_name for one in ends.sent if one.HasField("message")] == ["ann"]


def test_an_actor_has_its_class_by_both_names_and_does_not_know_the_others():
    session = actor(Ends())

    assert session.class_name == session.actor_class == "player"
    with pytest.raises(TrialError, match="a controller has get_actors"):
        session.get_active_actors()


def test_an_observation_is_a_snapshot():
    received = RecvObservation(1, 2, "seen")
    received.snapshot = "changed"

    assert received.snapshot == received.observation == "changed"


def test_classes_have_places():
    classes = ActorClassList(PLAYER, TEACHER)

    assert classes.get_class_by_index(1) is TEACHER
    with pytest.raises(TrialError, match="has 2 actor classes, and none at 2"):
        classes.get_class_by_index(2)


def test_parameters_are_written_and_read():
    written = TrialParameters(SETTINGS, max_steps=7, environment_name="world")
    read = TrialParameters(None)
    read.deserialize(written.serialize(), read.get_serialization_type())

    assert (read.max_steps, read.environment_name) == (7, "world")
    assert (written.has_specs(), read.has_specs()) == (True, False)
    assert len(read.actors) == 0
    with pytest.raises(TrialError, match="Unknown serialization type 2: there is 3"):
        read.deserialize(b"", type=2)
    with pytest.raises(TrialError, match="the bytes are not parameters of a trial"):
        read.deserialize(b"\xff\xff")
    assert read.max_steps == 7


def test_an_actor_s_class_is_given_by_either_name():
    by_class = ActorParameters(SETTINGS, actor_class="player", name="ann")
    free = ActorParameters(None, "player")
    free.actor_class = "teacher"

    assert by_class.actor_class == by_class.class_name == "player"
    assert by_class.has_specs()
    assert free.class_name == "teacher"
    with pytest.raises(TrialError, match="Required attribute 'actor_class' missing"):
        ActorParameters(SETTINGS, name="ann")
    with pytest.raises(TrialError, match="make other parameters for another class"):
        by_class.actor_class = "teacher"


def test_a_hook_s_session_is_valid_with_parameters_alone():
    session = PrehookSession("t", "u", TrialParameters(SETTINGS))
    session.validate()
    session.trial_parameters = {"max_steps": 3}

    with pytest.raises(TrialError, match="and not TrialParameters"):
        session.validate()


def test_metadata_are_checked_and_copied():
    metadata = GrpcMetadata()
    metadata.add("X-Game", "chase")
    metadata.add("trace-bin", b"\x01")
    copy = metadata.copy()
    copy.add_http_basic_auth("ann", "secret")

    assert metadata.to_grpc_metadata() == (("x-game", "chase"), ("trace-bin", b"\x01"))
    assert copy.to_grpc_metadata()[2] == ("authorization", "basic YW5uOnNlY3JldA==")
    assert "secret" not in repr(copy)
    for key, value in (("grpc-a", "x"), ("a-bin", "x"), ("a", b"x")):
        with pytest.raises(TrialError):
            metadata.add(key, value)


def test_a_logger_has_the_published_methods(caplog, monkeypatch):
    monkeypatch.setenv("GAME_LOG", "trace")
    logger = make_logger("game", "GAME_LOG")
    with caplog.at_level(logger.TRACE, "game"):
        logger.trace("step %d", 3)
        logger.deprecated("old")
        logger.deprecated("old")

    assert [(one.levelno, one.getMessage()) for one in caplog.records] == [
        (5, "step 3"),
        (30, "old"),
    ]
    assert make_logger("game", "NO_SUCH_VARIABLE", "off").level == logging.CRITICAL
    with pytest.raises(TrialError, match="there is no log level 'LOUD'"):
        make_logger("game", default_level="loud")


def received(payload):
    packed = Any()
    packed.Pack(payload)
    return RecvMessage.of(Message(tick_id=1, sender_name="a", receiver_name="b", payload=packed))


def test_a_payload_is_unpacked_as_with_the_published_sdk():
    message = received(StringValue(value="hello"))
    note, number = StringValue(), Int32Value(value=4)

    assert message.payload.Unpack(note)
    assert note.value == message.payload.value == "hello"
    assert message.payload.Is(StringValue.DESCRIPTOR)
    assert message.payload.TypeName() == "google.protobuf.StringValue"
    assert not message.payload.Unpack(number)
    assert number.value == 4
    assert isinstance(message.payload, StringValue)


def test_a_payload_that_is_unknown_is_unpacked_alike():
    packed = Any(type_url="type.googleapis.com/no.such.Type", value=b"x")
    message = RecvMessage.of(Message(payload=packed))

    assert message.payload == packed
    assert not message.payload.Unpack(BoolValue())
