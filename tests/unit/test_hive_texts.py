"""Texts that guests and hives choose: how long they may be, how they are logged, when they go."""

import gc
import json
import types
import weakref
from concurrent.futures import Future
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
import pytest
from tests.unit.test_hive_requests import START, Guest

from arkml import HiveGrant
from arkml.errors import (
    HiveRefused,
    HiveUnreachable,
    InvalidArguments,
    InvalidSettings,
    NotTrainable,
    ProtocolError,
    Unavailable,
)
from arkml.hive.address import Address
from arkml.hive.client import HiveClient
from arkml.hive.protocol.runs import MAX_NAME_BYTES, RunInfo, RunRequest, Status
from arkml.hive.protocol.settings import MAX_SETTINGS_BYTES, Settings
from arkml.policies.step_limit import StepLimit
from arkml.runs.hive_access import HiveAccess
from arkml.runs.hive_gateway import PARTIAL_MEMORY, HiveRunGateway, settings_of
from arkml.runs.request_line import RequestLine
from arkml.sessions import results
from arkml.sessions.branches import DeclaredBranches
from arkml.sessions.guest_run import mapped, settled
from arkml.sessions.run_request import MAX_URL, HiveAddress, TrainingRequest

LONG = "å" * (MAX_NAME_BYTES // 2) + "x"
LOCAL = HiveAddress("", 0)


@pytest.fixture
def guest():
    return Guest()


@pytest.fixture
def hives():
    with HiveAccess(HiveGrant(hive="127.0.0.1:1")) as made:
        yield made


@contextmanager
def client_of(answer):
    """A client whose requests a function answers."""
    transport = httpx.MockTransport(answer)
    with HiveClient(lambda: Address("hive", 80), transport=transport) as client:
        yield client


@contextmanager
def uncollected():
    """What is done meanwhile is freed without the garbage collector, or not at all."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def failed(error):
    """A result that is an error."""
    pending = Future()
    pending.set_exception(error)
    return pending


# What is too long


def test_a_long_address_of_a_hive_is_refused_before_it_is_parsed(guest):
    parsed = urlsplit.cache_info().misses

    with pytest.raises(InvalidArguments) as refused:
        guest.v1.can_connect_to_hive("a" * (MAX_URL + 1), 0)
    assert str(refused.value) == "the address of a hive has 2049 characters, it may have 2048"
    assert urlsplit.cache_info().misses == parsed


def test_an_address_of_the_greatest_length_is_asked(guest):
    guest.v1.can_connect_to_hive("a" * MAX_URL, 0)

    assert len(guest.hive.asked) == 1


@pytest.mark.parametrize(
    "ask",
    [
        lambda guest: guest.v1.start_training("", 0, LONG, "run", 3, 2),
        lambda guest: guest.v1.start_training("", 0, "game", LONG, 3, 2),
        lambda guest: guest.v1.start_training_from_checkpoint("", 0, "game", "run", 3, 2, LONG),
        lambda guest: guest.v2.connect_to_experiment("", 0, LONG),
        lambda guest: guest.v2.download_snapshot_from_registry("", 0, LONG),
        lambda guest: guest.v4.raw_experiment_config_from_registry("", 0, LONG),
    ],
)
def test_a_name_that_is_too_long_is_refused_with_its_size(guest, ask):
    with pytest.raises(InvalidArguments, match=r"is 'å+'\.\.\. of 513 bytes, it may have 512"):
        ask(guest)
    assert guest.hive.asked == []


def test_a_name_of_the_greatest_length_is_one_that_a_hive_takes():
    name = LONG[:-1]
    TrainingRequest(LOCAL, name, name, 3, 2)
    values = {"name": name, "game": name, "settings": {"features": 3, "actions": 2}}

    assert RunRequest.from_json(values).name == name


def started(configuration):
    return settings_of(
        TrainingRequest(LOCAL, "run", "game", 3, 2, configuration=configuration), None, {}
    )


def test_settings_that_are_too_large_are_refused_with_their_size():
    text = '{"mine": "%s", "arkml": {"own": "%s"}}'
    half = "x" * (MAX_SETTINGS_BYTES // 2)

    assert started(text % (half * 4, half)).other == {"own": half}
    with pytest.raises(InvalidSettings, match=r"take \d{5} bytes of JSON, they may take 65536"):
        started(text % ("", half * 2))


PARTIAL = '{"behaviors": {"hidden": {"partial": true}, "shown": {}}}'


@pytest.mark.parametrize(
    ("name", "own", "overrides", "memory", "learner"),
    [
        ("hidden", {}, {}, PARTIAL_MEMORY, "ppo"),
        ("shown", {}, {}, 0, "sac"),
        ("hidden", {"memory": 8}, {}, 8, "ppo"),
        ("hidden", {"memory": 8}, {"memory": 16}, 16, "ppo"),
        ("hidden", {}, {"memory": 0}, 0, "sac"),
        ("hidden", {"algorithm": "ppo"}, {}, PARTIAL_MEMORY, "ppo"),
        ("hidden", {}, {"algorithm": "sac"}, 0, "sac"),
        ("hidden", {"algorithm": "mine"}, {}, 0, "mine"),
    ],
)
def test_agents_of_rows_that_do_not_show_all_remember_unless_told_otherwise(
    name, own, overrides, memory, learner
):
    configuration = json.dumps({"arkml": own})
    request = TrainingRequest(LOCAL, name, "game", 3, 2, configuration=configuration)
    settings = settings_of(request, DeclaredBranches(PARTIAL.encode()), overrides)

    assert (settings.memory, settings.learner) == (memory, learner)


@pytest.mark.parametrize(
    ("settings", "is_pink"),
    [
        ({}, True),
        ({"algorithm": "ppo"}, False),
        ({"memory": 8}, True),
        ({"memory": 8, "branches": (2,)}, False),
        ({"branches": (2,)}, False),
        ({"algorithm": "mine", "memory": 8}, False),
        ({"algorithm": "mine", "noise": "pink"}, True),
        ({"algorithm": "ppo", "noise": "pink"}, True),
        ({"memory": 8, "noise": "white"}, False),
        ({"noise": "white"}, False),
    ],
)
def test_sac_and_continuous_actions_with_memory_explore_by_pink_noise(settings, is_pink):
    assert Settings(3, 2, **settings).is_pink == is_pink


@pytest.mark.parametrize(("memory", "found"), [({}, PARTIAL_MEMORY), ({"memory": 0}, 0)])
def test_a_configuration_of_ml_v5_says_how_much_agents_remember(memory, found):
    document = {"feature_count": 3, "action_count": 2, "gamma": 0.5, **memory}
    request = TrainingRequest(LOCAL, "hidden", "game", configuration=json.dumps(document))
    settings = settings_of(request, DeclaredBranches(PARTIAL.encode()), {})

    assert (settings.memory, settings.gamma) == (found, 0.5)


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        (r'"\ud800"', r"hold U\+D800, which is not a character"),
        ("[" * 70 + "]" * 70, "have too many objects in each other"),
        ("[" * 900 + "]" * 900, "have too many objects in each other"),
    ],
)
def test_settings_that_no_request_can_hold_are_refused(own, sentence):
    with pytest.raises(InvalidSettings, match=sentence):
        started(f'{{"arkml": {{"own": {own}}}}}')


# Requests as they are sent


def test_text_takes_as_many_bytes_in_a_request_as_in_utf_8():
    bodies = []

    def answer(request):
        bodies.append(request.content)
        return httpx.Response(503)

    with client_of(answer) as client:
        client.create(RunRequest("å" * 100, "game", Settings(3, 2))).exception(300)

    assert ("å" * 100).encode() in bodies[0]


def test_a_request_with_a_surrogate_is_not_sent():
    with client_of(lambda _: httpx.Response(200)) as client:
        error = client.create(RunRequest("\ud800", "game", Settings(3, 2))).exception(300)

    assert isinstance(error, ProtocolError)
    assert str(error) == "a request holds U+D800, which is not a character"


@pytest.mark.parametrize("form", ['{"error": "%s"}', "%s"])
def test_the_sentence_of_a_refusal_is_harmless_and_cut(form):
    text = (form % (r"\u001b[2J" + "x" * 100_000)).encode()
    with client_of(lambda _: httpx.Response(400, content=text)) as client:
        error = client.health().exception(300)

    assert isinstance(error, HiveRefused)
    assert len(str(error)) < 1_100
    assert str(error).isprintable()


# What is logged


class Taker:
    """A client of a hive that takes every run."""

    def create(self, request):
        return settled(RunInfo("r1", request.name, request.game, Status.RUNNING, 3, 2, 0))


def test_doubts_are_told_once_for_each_setting_with_a_harmless_short_name(hives, caplog):
    for number in range(20):
        settings = Settings(3, 2, learning_rate_init=0.5 + number, rollout_length=50 + number)
        hives.start(Taker(), RunRequest("\x1b[2J\n" * 100, "game", settings))

    assert len(caplog.messages) == 2
    assert all(message.isprintable() and len(message) < 400 for message in caplog.messages)


class Slow(Taker):
    """A client of a hive that takes a run when it is told to, by name."""

    def __init__(self):
        self.runs = {}

    def create(self, request):
        return self.runs.setdefault(request.name, Future())

    def take(self, name):
        self.runs[name].set_result(RunInfo(f"id {name}", name, "game", Status.RUNNING, 3, 2, 0))


def test_the_first_run_is_the_one_that_was_asked_for_first_in_whatever_order_they_begin():
    first, second, third = (RunRequest(name, "game", Settings(3, 2)) for name in "abc")
    client = Slow()
    with HiveAccess(HiveGrant(hive="127.0.0.1:1", shared=True)) as hives:
        for request in (first, second, third):
            hives.ask(client, request)
        hives.start(client, second)
        client.take("b")
        early = hives.started
        hives.start(client, first)
        pending = hives.started
        client.take("a")
        both = [run.name for _, run in hives.started]
        hives.refuse(client, third)
        hives.refuse(client, second)  # which there is

        assert early == pending == []
        assert both == ["a", "b"] == hives.names


def test_a_run_that_is_refused_keeps_no_other_one_from_being_the_first():
    first, second = (RunRequest(name, "game", Settings(3, 2)) for name in "ab")
    client = Slow()
    with HiveAccess(HiveGrant(hive="127.0.0.1:1", shared=True)) as hives:
        hives.ask(client, first)
        hives.start(client, second)
        client.take("b")
        before = hives.started
        hives.refuse(client, first)

        assert before == []
        assert [run.name for _, run in hives.started] == ["b"] == hives.names


class Keeper(Taker):
    """A client of a hive that has a run of these settings."""

    def __init__(self, settings):
        self.settings = settings

    def runs(self):
        named = [("r0", "walker", 1), ("r1", "walker", 2), ("r2", "other", 3)]
        return settled([RunInfo(n, m, "game", Status.STOPPED, 3, 2, at) for n, m, at in named])

    def details(self, run_id):
        assert run_id == "r1"
        return settled(types.SimpleNamespace(settings=self.settings))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ""),
        ({"gamma": 0.9, "hidden": 64, "mine": [1]}, ""),
        ({"algorithm": "sac", "device": "auto", "memory_max_size": 9_000_000}, ""),
        ({"gamma": 0.99}, "gamma 0.99, it has 0.9"),
        ({"device": "cpu", "hidden": 64}, "device 'cpu', it has 'cuda'"),
        ({"mine": [2], "algorithm": "drawn"}, "mine [2], it has [1]; algorithm 'drawn', it has"),
        ({"memory_max_size": 2_000}, "memory_max_size 2000, it has 1000000"),
    ],
)
def test_a_run_does_not_go_on_with_other_settings(given, words):
    own = Settings(3, 2, gamma=0.9, device="cuda", other={"mine": [1]})
    grant = HiveGrant(hive="127.0.0.1:1", resume=True, settings=given)
    request = RunRequest("walker", "game", Settings(3, 2))
    with HiveAccess(grant) as hives:
        if not words:
            assert hives.start(Keeper(own), request).result().id == "r1"
            return
        with pytest.raises(NotTrainable) as refused:
            hives.start(Keeper(own), request)

    assert f"others are given: {words}" in str(refused.value)


def test_a_host_without_a_limit_is_told_of_the_one_that_its_run_began_with(caplog):
    own = Settings(3, 2, max_episode_steps=50)
    request = RunRequest("walker", "game", Settings(3, 2))
    with HiveAccess(HiveGrant(hive="127.0.0.1:1", resume=True)) as hives:
        hives.start(Keeper(own), request)
        hives.limit = StepLimit(60)
        with pytest.raises(NotTrainable, match="max_episode_steps 60, it has 50"):
            hives.start(Keeper(own), request)

    assert caplog.messages == [
        "run walker began with max_episode_steps 50, and here its episodes have no limit"
    ]


def test_why_a_guest_got_no_session_is_told_at_its_end_until_one_has_it(hives):
    refused = hives.failure = HiveRefused("the token of the hive is missing or wrong", 401)
    told = hives.find_refusal()
    hives.note_training("r1")

    assert told == str(refused)
    assert hives.find_refusal() == ""


def test_the_option_that_allows_a_hive_can_be_pasted(hives):
    with pytest.raises(Unavailable, match=r"--allow-hive \[2001:db8::2\]:5 allows it") as refused:
        hives.client(HiveAddress("2001:db8::2", 5))

    words = str(refused.value).split()
    assert Address.parse(words[words.index("--allow-hive") + 1]).host == "2001:db8::2"


def test_starts_that_failed_are_forgotten():
    class Refuser:
        def create(self, _):
            return failed(Unavailable("full"))

    with HiveAccess(HiveGrant(hive="127.0.0.1:1", shared=True)) as hives:
        for number in range(20):
            hives.start(Refuser(), RunRequest(f"run {number}", "game", Settings(3, 2)))
        kept = len(hives._started)

    assert kept == 1


# What is freed


def test_the_body_of_a_request_that_failed_is_freed_with_its_future():
    asked = []

    def answer(request):
        asked.append(weakref.ref(request))
        raise httpx.ConnectError("no route", request=request)

    with uncollected(), client_of(answer) as client:
        error = client.create(RunRequest("run", "game", Settings(3, 2))).exception(300)
        client.health().exception(300)  # so that the loop is done with the first one

        assert isinstance(error, HiveUnreachable)
        assert error.__traceback__ is error.__cause__ is None
        assert asked[0]() is None


class Text(str):
    """A text that can be referred to weakly."""


def test_an_error_of_the_line_does_not_keep_the_work():
    line, text = RequestLine(1), Text("configuration")
    kept = weakref.ref(text)

    def work(_=text):
        raise Unavailable("the hive is gone")

    with uncollected():
        pending = line.submit(work)
        assert isinstance(pending.exception(300), Unavailable)
        line.submit(int).result(300)
        del pending, work, text
        line.close()

        assert kept() is None


def test_an_error_that_is_passed_on_does_not_keep_what_passed_it():
    pending = Future()
    passed = mapped(pending, str)
    kept = weakref.ref(passed)
    with uncollected():
        pending.set_exception(Unavailable("the hive is gone"))
        del passed, pending

        assert kept() is None


def test_an_error_that_a_guest_does_not_take_keeps_nothing_of_the_request(guest):
    handle = guest.v2.start_training(*START, "")
    with pytest.raises(Unavailable) as raised:
        raise Unavailable("no hive") from HiveUnreachable("no hive")
    kept = raised.value
    guest.hive.asked[0].set_exception(kept)

    assert kept.__traceback__ is kept.__cause__ is kept.__context__ is None
    with pytest.raises(Unavailable, match="no hive"):
        guest.services.futures.take(handle, results.TRAINING)


def test_a_request_counts_with_its_texts_as_they_are_sent_and_its_settings(guest):
    configuration = '{"arkml": {"own": [%s[]]}}' % ("[]," * 20_000)
    guest.v2.start_training(*START, configuration)

    assert guest.held > 3 * len(configuration) + 80 * 20_000


class Unjoinable:
    """A client of a hive whose runs nobody can join."""

    def run(self, run_id):
        return settled(RunInfo(run_id, "run", "game", Status.RUNNING, 3, 2, 0))

    def join(self, *_, **__):
        return failed(HiveUnreachable("no hive"))


def test_memberships_that_were_left_are_forgotten_but_the_first(hives):
    module = types.SimpleNamespace(info=types.SimpleNamespace(spec=None))
    gateway = HiveRunGateway(hives, None, module, block=False)
    client = Unjoinable()
    hives.client = lambda _: client
    for number in range(20):
        with pytest.raises(Unavailable):
            gateway.connect(LOCAL, f"run {number}").result(300)

    assert [run for _, run in gateway._memberships] == ["run 0", "run 19"]
