"""Structs of the wire: what is refused, by which error, with which sentence."""

import json
import math

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from arkml.errors import ArkmlError, HiveUnreachable, InvalidSettings, ProtocolError
from arkml.hive.address import Address
from arkml.hive.client import HiveClient
from arkml.hive.protocol.documents import parse_object
from arkml.hive.protocol.result_messages import (
    EvaluationReport,
    MetricsReply,
    PolicyQuery,
    SnapshotQuery,
)
from arkml.hive.protocol.run_origin import RunGoal
from arkml.hive.protocol.runs import RunDetails, RunInfo, RunList, RunRequest, Status
from arkml.hive.protocol.session_messages import JoinRequest, NamesReply, RowsReply, SessionState
from arkml.hive.protocol.settings import Settings, from_protocol

SETTINGS = {"features": 3, "actions": 2}
REQUEST = {"name": "run", "game": "game", "settings": SETTINGS}
RUN = RunInfo("r1", "run", "game", Status.RUNNING, 3, 2, 0)


def refusal_of(kind, values):
    with pytest.raises(ArkmlError) as refused:
        kind.from_json(values)
    return refused.value


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"batch_size": 1}, "batch_size is 1: it takes a whole number from 2 to 131072"),
        ({"batch_size": 2.0}, "batch_size is 2.0: it takes a whole number from 2 to 131072"),
        ({"layers": True}, "layers is True: it takes a whole number from 1 to 8"),
        ({"gamma": 7}, "gamma is 7: it takes a number from 0 to 1"),
        ({"gamma": math.nan}, "gamma is nan: it takes a number from 0 to 1"),
        ({"tau": math.inf}, "tau is inf: it takes a number from 0 to 1"),
        ({"hidden": 10**300}, "it takes a whole number from 1 to 8192"),
        ({"alpha": "none"}, "alpha is 'none': it takes a number from 0 to 100 or auto"),
        ({"normalize": 1}, "normalize is 1: it takes true or false"),
        ({"device": "tpu"}, "device is 'tpu': it takes auto, cpu or cuda"),
        ({"algorithm": ""}, "algorithm is '': it takes a text of 1 to 64 letters"),
        ({"other": None}, "other is None: it takes an object"),
        ({"branches": 3}, "branches is 3: it takes a list, each a whole number from 1 to 4096"),
        ({"branches": [2, 0]}, "branches[1] is 0: it takes a whole number from 1 to 4096"),
        ({"speed": 1}, "speed is unknown: it takes features, actions, branches, algorithm,"),
        ({"memory_min_size": 5_000, "memory_max_size": 2_000},
         "memory_min_size 5000 is over memory_max_size 2000"),
    ],
)  # fmt: skip
def test_settings_are_refused_with_the_value_and_what_they_take(changes, sentence):
    error = refusal_of(Settings, SETTINGS | changes)
    inside = refusal_of(RunRequest, REQUEST | {"settings": SETTINGS | changes})

    assert isinstance(error, InvalidSettings)
    assert sentence in str(error)
    assert isinstance(inside, InvalidSettings)
    assert sentence in str(inside)


@pytest.mark.parametrize(
    ("kind", "values", "sentence"),
    [
        (RunRequest, [], "the document is []: it takes an object"),
        (RunRequest, {**REQUEST, "seconds": -1}, "seconds is -1: it takes a whole number from 0"),
        (RunRequest, {**REQUEST, "name": 7}, "name is 7: it takes a text"),
        (RunRequest, {**REQUEST, "name": "ü" * 257}, "of 514 bytes: it takes a text of at most"),
        (RunRequest, {**REQUEST, "on_conflict": "x"}, "on_conflict is 'x': it takes number or"),
        (RunRequest, {**REQUEST, "x.y": 1}, "x.y is unknown: it takes name, game, settings,"),
        (RunRequest, {"name": "run", "settings": SETTINGS}, "game is missing: it takes a text"),
        (RunList, {"runs": [{"id": 1}]}, "runs[0].id is 1: it takes a text"),
        (JoinRequest, {"join_key": "x", "features": 1, "actions": 1},
         "join_key is 'x': it takes a text of 8 to 128 letters"),
        (EvaluationReport, {"version": 1, "returns": [], "lengths": [1]},
         "returns is []: it takes a list of 1 to 10000 items, each a number"),
        (EvaluationReport, {"version": 1, "returns": [1.5], "lengths": [1, "x"]},
         "lengths[1] is 'x': it takes a number"),
        (EvaluationReport, {"version": 1, "returns": [1.5], "lengths": [1, 2]},
         "as many returns as lengths, not 1 and 2"),
        (MetricsReply, {"metrics": [["a", 1.0]]},
         "metrics[0] is ['a', 1.0]: it takes a list of name, value and step"),
        (MetricsReply, {"metrics": [["a", "x", 1]]}, "metrics[0][1] is 'x': it takes a number"),
        (NamesReply, {"ids": {"a": -1}}, "it takes a whole number from 0 to 4294967295"),
        (RowsReply, {"acked": 1, "policy_version": 1 << 32, "credit": 0},
         "policy_version is 4294967296: it takes a whole number from 0 to 4294967295"),
        (SessionState, {"acked": 1, "credit": 2}, "policy_version is missing: it takes a whole"),
        (RunDetails, {"run": RUN.as_json(), "settings": SETTINGS, "best": {"by": "x"}},
         "best.score is missing: it takes a number"),
        (RunDetails, {"run": RUN.as_json(), "settings": SETTINGS, "best": {"of": "x"}},
         "best.of is unknown: it takes by, score, version or n_opts"),
    ],
)  # fmt: skip
def test_a_message_is_refused_with_the_place_of_the_value_and_what_that_takes(
    kind, values, sentence
):
    error = refusal_of(kind, values)

    assert isinstance(error, ProtocolError)
    assert sentence in str(error)
    assert len(str(error)) < 400


def test_a_query_is_read_from_texts():
    found = PolicyQuery.from_query({"after": "7", "wait": "2.5", "other": "x"})

    assert found == PolicyQuery(7, 2.5)
    assert SnapshotQuery.from_query({}) == SnapshotQuery("now")
    with pytest.raises(ProtocolError, match="after is 'x': it takes a whole number"):
        PolicyQuery.from_query({"after": "x"})
    with pytest.raises(ProtocolError, match="which is 'all': it takes best, latest or now"):
        SnapshotQuery.from_query({"which": "all"})


TEXT = json.dumps(RUN.as_json())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (TEXT.replace('"rows": 0', '"rows": 0, "x\xff": 1').encode("latin-1"), "not JSON"),
        (TEXT.encode()[:-1], "not JSON"),
        (TEXT.encode("utf-16"), "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (TEXT.replace('"rows": 0', '"rows": NaN').encode(), "not JSON"),
        (TEXT.replace('"rows": 0', '"rows": 1e999').encode(), "not JSON"),
        (TEXT.replace('"rows": 0', '"rows": ' + "9" * 400).encode(), "rows is 9999"),
        (TEXT.replace('"rows": 0', '"rows": 0, "rows": -1').encode(), "rows is -1"),
    ],
    ids=["empty", "byte", "name", "torn", "utf-16", "deep", "NaN", "infinite", "huge", "twice"],
)  # fmt: skip
def test_text_that_is_no_message_is_refused(text, sentence):
    with pytest.raises(ProtocolError, match=sentence):
        RunInfo.from_bytes(text)


def test_a_run_of_a_newer_hive_is_read_and_one_without_labels_is_as_before():
    """A host of before refuses fields that it does not know."""
    newer = TEXT.replace('"rows": 0', '"rows": 5, "more": 1').encode()
    labeled = replace(RUN, title="t", tags=["a"], starred=True, goal=RunGoal(2.0))

    assert RunInfo.from_bytes(newer) == replace(RUN, rows=5)
    assert RunInfo.from_bytes(labeled.as_bytes()) == labeled
    assert {"title", "tags", "starred", "archived", "goal"}.isdisjoint(RUN.as_json())
    assert (RUN.shown_name, labeled.shown_name) == (RUN.name, "t")


ORIGIN = {"command": "arkml train", "guest_sha256": "a" * 64, "versions": {"arkml": "1"}}


@pytest.mark.parametrize(
    ("origin", "sentence"),
    [
        ({"command": "x" * 4_097}, "origin.command is 'xxx"),
        ({"host": 1}, "origin.host is 1: it takes a text"),
        ({"guest_sha256": "x"}, "origin.guest_sha256 is 'x'"),
        ({"versions": {str(n): "1" for n in range(33)}}, "origin.versions is"),
        ({"versions": {"a": "x" * 129}}, "it takes a text"),
        ({"git": "x" * 129}, "origin.git is"),
    ],
)
def test_an_origin_has_bounds(origin, sentence):
    wanted = REQUEST

    assert RunRequest.from_json({**wanted, "origin": ORIGIN}).origin.command == "arkml train"
    assert "origin" not in RunRequest.from_json(wanted).as_json()
    assert sentence in str(refusal_of(RunRequest, {**wanted, "origin": {**ORIGIN, **origin}}))


def test_the_last_one_of_two_equal_keys_counts_in_every_reader():
    text = TEXT.replace('"rows": 0', '"rows": 1, "rows": 2').encode()

    assert RunInfo.from_bytes(text).rows == 2
    assert RunInfo.from_json(parse_object(text)).rows == 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@example("parts", [None])
@given(st.sampled_from(sorted(Settings(3, 2).as_json())), JSON)
def test_settings_with_any_value_come_back_as_they_were_or_are_refused_in_a_sentence(name, value):
    sentence = ""
    settings = Settings(3, 2)
    try:
        settings = Settings.from_json(SETTINGS | {name: value})
    except InvalidSettings as error:
        sentence = str(error)

    assert settings.as_json()[name] == value or (name in sentence and len(sentence) < 600)
    assert Settings.from_json(json.loads(json.dumps(settings.as_json()))) == settings


def test_changed_settings_keep_what_is_unknown_and_refuse_other_widths():
    settings = Settings(3, 2, other={"a": 1}).changed({"gamma": 0.5, "features": 3, "b": [2]})

    assert (settings.gamma, settings.other) == (0.5, {"a": 1, "b": [2]})
    with pytest.raises(InvalidSettings, match="features is 4: the guest says 3"):
        settings.changed({"features": 4})
    with pytest.raises(InvalidSettings, match="gamma is nan"):
        settings.changed({"gamma": math.nan})
    with pytest.raises(InvalidSettings, match='"arkml" is 7: it takes an object of settings'):
        settings.changed(7)


def test_a_protocol_config_is_checked_like_any_settings():
    config = {"feature_count": 3, "action_count": 2, "use_terminal_masking": 1, "gamma": 0.9}

    assert from_protocol(config) == Settings(3, 2, use_terminal_masking=True, gamma=0.9)
    with pytest.raises(InvalidSettings, match="features is 0"):
        from_protocol(config | {"feature_count": 0})


def test_a_client_asks_over_the_transport_that_it_is_given():
    asked = []

    def answer(request):
        asked.append((request.method, request.url.path, request.headers.get("authorization")))
        return httpx.Response(200, content=RunList([RUN]).as_bytes())

    transport = httpx.MockTransport(answer)
    with HiveClient(lambda: Address("hive", 80, "secret"), transport=transport) as client:
        runs = client.runs().result(300)

    assert runs == [RUN]
    assert asked == [("GET", "/v1/runs", "Bearer secret")]


def test_a_transport_that_fails_makes_the_hive_unreachable():
    def answer(request):
        raise httpx.ConnectError("no route", request=request)

    transport = httpx.MockTransport(answer)
    with HiveClient(lambda: Address("hive", 80), transport=transport) as client:
        error = client.health().exception(300)

    assert isinstance(error, HiveUnreachable)
    assert str(error) == "no hive answers at hive:80: ConnectError no route"
