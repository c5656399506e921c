"""People over the web: they take actors over, look, and have tokens of their own."""

import asyncio
import contextlib

import pytest
from tests.integration.hand_driven import NORMAL, STANDING, observation
from tests.integration.test_trials_web_calls import slow_socket
from tests.integration.trials_web import (
    PATIENCE,
    TYPE,
    Answer,
    framed,
    serving,
)

from arkml.trials.core.error import TrialError
from arkml.trials.wire.lifecycle_pb2 import TrialInfoRequest, TrialListRequest, TrialStartRequest
from arkml.trials.wire.players_pb2 import DescribeRequest, Description, LookRequest, View

PLAYERS = "/arkmlTrials.PlayersSP/"
TAKE_OVER = f"{PLAYERS}TakeOver"
ELSEWHERE = {"host": "0.0.0.0"}


@contextlib.asynccontextmanager
async def playing(*trials, **options):
    """A web port over trials of two balls."""
    async with serving(**options) as web:
        for trial_id in trials or ("one",):
            await web.game.start(trial_id)
        yield web


def person(web, token=""):
    return web.browser(token, method=TAKE_OVER)


async def refusal(web, token="", trial_id="one", name="ball_0", **headers):
    """The text and the status with which a take-over is refused."""
    async with person(web, token) as browser:
        await browser.join(trial_id, name, **(headers or {"user_id": "ann"}))
        details, trailers = await browser.ending()
    return details, int(trailers["grpc-status"])


async def describe(web, token=""):
    answer = await web.call(f"{PLAYERS}Describe", DescribeRequest(), token=token)
    return answer.status, [Description.FromString(one) for one in answer.messages]


@contextlib.asynccontextmanager
async def looking(web, trial_id="one", token=""):
    request = framed(LookRequest().SerializeToString())
    headers = {"content-type": TYPE, "trial-id": trial_id}
    url = f"{web.port.endpoint(token)}{PLAYERS}Look"
    async with web.http.stream("POST", url, content=request, headers=headers) as response:
        yield response.aiter_raw()


async def look_status(web, trial_id="one", token=""):
    """The status and the text of a look that is refused."""
    answer = await web.call(f"{PLAYERS}Look", LookRequest(), token=token, trial_id=trial_id)
    return answer.status, answer.text


async def test_a_person_plays_from_the_present_observation_and_hands_back():
    async with playing() as web:
        web.game.tick("one")
        async with person(web) as browser:
            await browser.join("one", "ball_1", user_id="J%C3%B6rg")
            first = await browser.next()
            second = await browser.next()
            web.game.tick("one")
            third = await browser.until("observation")
            await browser.act(b"right")
            applied = await web.game.applied("one", 2)
            await browser.socket.send(b"\x01")
            details, trailers = await browser.ending()
        events = await web.game.events("one", 2)

    assert (first.init_input.actor_name, first.init_input.actor_class) == ("ball_1", "ball")
    assert (second.state, second.observation.content) == (NORMAL, observation(1, 1))
    assert third.observation.content == observation(2, 1)
    assert applied == [("", STANDING), ("Jörg", b"right")]
    assert events == [("ball_1", "Jörg", "taken over"), ("ball_1", "Jörg", "handed back")]
    assert (details, trailers["grpc-status"]) == ("it ended its stream", "0")


async def test_a_connection_that_drops_hands_back():
    async with playing() as web, person(web) as browser:
        await browser.join("one", "ball_0", user_id="ann")
        await browser.next()
        browser.socket.transport.abort()
        events = await web.game.events("one", 2)

    assert [kind for *_, kind in events] == ["taken over", "handed back"]


async def test_an_actor_has_one_person():
    async with playing() as web, person(web) as first:
        await first.join("one", "ball_0", user_id="ann")
        await first.next()
        text, status = await refusal(web, user_id="bob")
        web.game.tick("one")
        await first.until("observation")
        await first.until("observation")
        await first.act(b"still there")
        applied = await web.game.applied("one", 1)

    assert status == 6
    assert text.startswith("trial one has no actor 'ball_0' to take over: it has a player")
    assert applied[0] == ("ann", b"still there")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (None, "a call has one user-id, the name of a person, not 0"),
        ("", "'' is not the name of a person"),
        ("x" * 65, "it takes 1 to 64 printable characters"),
        ("%00", "printable"),
        ("a%E2%80%AEb", "printable"),  # it turns the direction of text
        ("%ff", "user-id '%ff' is not UTF-8"),
        ("a%20", "without spaces around"),
    ],
)
async def test_a_person_has_a_name_that_can_be_shown(name, sentence):
    async with playing() as web:
        headers = {"x_other": "1"} if name is None else {"user_id": name}
        text, status = await refusal(web, **headers)

    assert sentence in text
    assert status == 3


async def test_what_the_server_refuses_has_its_sentence():
    async with playing() as web:
        answers = [
            await refusal(web, trial_id="none"),
            await refusal(web, trial_id="one, two"),
            await refusal(web, name="ball_7"),
        ]
        look = await look_status(web, "none")
        two = await look_status(web, "one, two")

    assert answers == [
        ("there is no trial 'none'", 9),
        ("an actor joins one trial, not 2 (header trial-id)", 3),
        ("trial one has no actor 'ball_7'", 9),
    ]
    assert look == (9, "there is no trial 'none'")
    assert two == (3, "a reader sees one trial, not 2 (header trial-id)")


async def test_the_ticks_of_a_trial_are_streamed_to_its_end():
    async with playing() as web, looking(web) as parts:
        content = await anext(parts)
        web.game.tick("one")
        content += await anext(parts)
        web.game.fail("one", "over")
        async for part in parts:
            content += part
    answer = Answer(content)
    views = [View.FromString(one) for one in answer.messages]

    assert [view.tick_id for view in views] == [0, 1, 1]
    assert (views[-1].reason, answer.status) == ("the environment was lost: over", 0)


async def test_a_look_ends_with_a_status_as_the_server_does():
    async with playing() as web, looking(web) as parts:
        content = await anext(parts)
        closing = asyncio.create_task(web.port.close())
        async for part in parts:
            content += part
        await closing

    assert Answer(content).status == 14


async def test_one_who_looks_without_reading_is_disconnected():
    async with playing(limits={"stalled_seconds": 0.3}) as web:
        web.game.padding = bytes(100_000)
        await web.game.start("large")
        with slow_socket(web) as slow:
            request = framed(LookRequest().SerializeToString())
            head = (
                f"POST {PLAYERS}Look HTTP/1.1\r\nhost: localhost\r\ncontent-type: {TYPE}\r\n"
                f"trial-id: large\r\ncontent-length: {len(request)}\r\n\r\n"
            )
            slow.sendall(head.encode() + request)
            async with asyncio.timeout(PATIENCE):
                await web.connections(1)
                while web.port.connections:
                    web.game.tick("large")
                    await asyncio.sleep(0.001)

        assert web.game.lookers("large") == 0


async def test_a_token_to_act_takes_its_slots_over_and_looks_at_its_trial():
    async with playing("mine", "theirs", **ELSEWHERE) as web:
        token = await web.port.token_to_act("mine", ["ball_0"])
        async with person(web, token) as browser:
            await browser.join("mine", "ball_0", user_id="ann")
            first = await browser.next()
        refused = [
            await refusal(web, token, "mine", "ball_1"),
            await refusal(web, token, "theirs", "ball_0"),
        ]
        async with looking(web, "mine", token) as parts:
            seen = await anext(parts)
        elsewhere = await look_status(web, "theirs", token)
        status, (description,) = await describe(web, token)

    assert first.init_input.actor_name == "ball_0"
    assert refused == [
        ("this token is good as ball_0, by name alone", 7),
        ("this token is good for trial mine alone", 7),
    ]
    assert View.FromString(seen[5:]).tick_id == 0
    assert elsewhere == (7, "this token is good for trial mine alone")
    assert (status, description.guest) == (0, "ball.wasm")
    assert [trial.trial_id for trial in description.trials] == ["mine"]


async def test_a_token_to_watch_looks_and_does_not_play():
    async with playing("mine", "theirs", **ELSEWHERE) as web:
        token = await web.port.token_to_watch("mine")
        refused = await refusal(web, token, "mine")
        async with looking(web, "mine", token) as parts:
            seen = await anext(parts)
        elsewhere = await look_status(web, "theirs", token)
        _, (description,) = await describe(web, token)

    assert refused == ("this token is good to watch alone", 7)
    assert len(View.FromString(seen[5:]).players) == 2
    assert elsewhere[0] == 7
    assert [trial.trial_id for trial in description.trials] == ["mine"]


async def test_without_a_token_people_do_not_play():
    async with playing(**ELSEWHERE) as web:
        refused = await refusal(web)
        look = await look_status(web)
        described = await describe(web)

    assert (refused[1], look[0], described) == (16, 16, (16, []))


def token_in(endpoint):
    return endpoint.rpartition("/")[2]


async def test_a_link_to_play_is_good_in_every_trial_and_outlives_it():
    async with playing("first", "second", **ELSEWHERE) as web:
        link = web.port.link_to_play(["ball_0"])
        token = token_in(link)
        entered = []
        for trial_id in ("first", "second"):
            async with person(web, token) as browser:
                await browser.join(trial_id, "ball_0", user_id="ann")
                entered.append((await browser.next()).init_input.actor_name)
            if trial_id == "first":
                await web.server.trials.terminate([trial_id], is_hard=True)
        other_slot = await refusal(web, token, "second", "ball_1")
        _, (description,) = await describe(web, token)
        forbidden = [
            await web.call("StartTrial", TrialStartRequest(), token=token),
            await web.call("WatchTrials", TrialListRequest(), token=token),
        ]

    assert link == f"{web.origin}/j/{token}"
    assert entered == ["ball_0", "ball_0"]
    assert other_slot == ("this token is good as ball_0, by name alone", 7)
    assert [trial.trial_id for trial in description.trials] == ["second"]
    assert [(one.status, one.text) for one in forbidden] == [
        (7, "this token is good to play or watch, and not for StartTrial"),
        (7, "this token is good to act in trials, and not to watch"),
    ]


async def test_a_link_to_watch_shows_every_trial_and_plays_in_none():
    async with playing("first", "second", **ELSEWHERE) as web:
        token = token_in(web.port.link_to_watch())
        infos = await web.call("GetTrialInfo", TrialInfoRequest(), token=token)
        async with looking(web, "second", token) as parts:
            seen = await anext(parts)
        refused = await refusal(web, token, "first")
        ended = await web.call("TerminateTrial", TrialInfoRequest(), token=token)

    assert (infos.status, ended.status) == (0, 7)
    assert View.FromString(seen[5:]).tick_id == 0
    assert refused == ("this token is good to watch alone", 7)


async def test_a_link_to_play_needs_slots():
    async with playing() as web:
        with pytest.raises(TrialError, match="needs the names of actors"):
            web.port.link_to_play([])
