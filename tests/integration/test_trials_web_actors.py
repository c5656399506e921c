"""Actors that join from browsers, over grpc-websockets, and the ways in which they leave."""

import asyncio
import re
import socket
from contextlib import suppress
from random import Random

import pytest
from tests.integration.trials_web import (
    ENDED,
    LAST,
    LAST_ACK,
    NORMAL,
    PATIENCE,
    RUN,
    RUNNING,
    LocalParts,
    framed,
    parameters,
    serving,
)
from websockets.exceptions import ConnectionClosed, InvalidStatus

from arkml.trials import grpc_streams
from arkml.trials.wire.actor_pb2 import ActorInitialOutput, ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import Action, CommunicationState, VersionRequest
from arkml.trials.wire.lifecycle_pb2 import TrialInfoRequest, TrialStartRequest

ACKNOWLEDGED = ActorRunTrialOutput(state=LAST_ACK)
ALIVE = ActorRunTrialOutput(state=CommunicationState.HEARTBEAT)


async def ticks_of(web, trial_id="trial"):
    (info,) = (await web.server.trials.info([trial_id], TrialInfoRequest())).trial
    return info.tick_id


async def test_an_actor_plays_a_trial_to_its_end():
    async with serving() as web:
        await web.start(params=parameters(max_steps=3))
        async with web.browser() as browser:
            await browser.join("trial")
            first = await browser.next()
            seen = []
            while (message := await browser.next()).state != LAST:
                seen.append(message.observation.content)
                await browser.act()
            final = await browser.next()
            await browser.send(ACKNOWLEDGED)
            details, trailers = await browser.ending()

        assert (first.state, first.init_input.actor_name) == (NORMAL, "web")
        assert (seen, final.observation.content) == ([b"0", b"1", b"2", b"3"], b"4")
        assert (details, trailers) == ("", {"grpc-status": "0", "grpc-message": ""})
        assert browser.socket.close_code == 1000
        await web.state("trial", ENDED)


async def test_an_actor_waits_until_its_trial_takes_actors():
    parts = LocalParts()
    async with serving(parts=parts, trials={"hooks": ("local://",)}) as web:
        request = TrialStartRequest(trial_id_requested="trial")
        starting = asyncio.create_task(web.server.trials.start(request))
        await asyncio.sleep(0)
        async with web.browser() as browser:
            await browser.join("trial")
            await browser.send(ALIVE)
            await (await browser.socket.ping())  # by now the port has read the join
            parts.hook_may_answer.set()
            first = await browser.next()
            states = {(await browser.next()).state for _ in range(2)}
        await starting

    assert first.WhichOneof("data") == "init_input"
    assert states == {NORMAL, CommunicationState.HEARTBEAT}  # the first observation, and an answer


async def test_an_actor_may_leave_while_it_waits():
    parts = LocalParts()
    async with serving(parts=parts, trials={"hooks": ("local://",)}) as web:
        request = TrialStartRequest(trial_id_requested="trial")
        starting = asyncio.create_task(web.server.trials.start(request))
        await asyncio.sleep(0)
        async with web.browser() as browser:
            await browser.join("trial")
        parts.hook_may_answer.set()
        await starting
        async with web.browser() as other:
            await other.join("trial")
            first = await other.next()

    assert first.WhichOneof("data") == "init_input"


async def test_an_actor_that_sends_much_before_it_is_admitted_is_refused():
    async with serving(trials={"hooks": ("local://",)}) as web:
        request = TrialStartRequest(trial_id_requested="trial")
        starting = asyncio.create_task(web.server.trials.start(request))
        await asyncio.sleep(0)
        async with web.browser() as browser:
            await browser.join("trial")
            for _ in range(17):
                await browser.send(ALIVE)
            details, trailers = await browser.ending()
        web.parts.hook_may_answer.set()
        await starting

    assert details == "the actor sent more than 16 messages before it was admitted"
    assert trailers["grpc-status"] == "8"


@pytest.mark.parametrize(
    ("messages", "status", "text"),
    [
        ([b"trial-id: none\r\n", 0], 9, "there is no trial 'none'"),
        ([b"trial-id: trial\r\n", 1], 9, "has no actor 'other'"),
        ([b"\r\n", 0], 3, "joins one trial, not 0"),
        ([b"trial-id: a, b\r\n", 0], 3, "joins one trial, not 2"),
        ([b"trial-id: a\r\ntrial-id: b\r\n", 0], 3, "joins one trial, not 2"),
        ([b"\0\0\0\0\0\0"], 3, "is not a header"),
        (["trial-id: trial\r\n"], 3, "binary, not text"),
        ([b"trial-id: trial\r\n", b"\x01"], 3, "is to be its init_output"),
        ([b"trial-id: trial\r\n", b"\0" + framed(b"")], 3, "is to be its init_output"),
        ([b"trial-id: trial\r\n", b"\0" + framed(b"\xff")], 3, "not the message ActorRunTrialOut"),
        ([b"trial-id: trial\r\n", b"\0" + framed(b"", 1)], 12, "compressed"),
        ([b"trial-id: trial\r\n", b"\0\0\0\2\0\0"], 8, "131072 bytes is longer than 65536"),
        ([b"trial-id: trial\r\n", b"\x07"], 3, "not 07"),
        ([b"trial-id: trial\r\n", b""], 3, "not empty"),
    ],
)
async def test_an_actor_that_cannot_join_gets_the_reason_as_its_end(messages, status, text):
    slots = [
        ActorRunTrialOutput(state=NORMAL, init_output=ActorInitialOutput(actor_name=name))
        for name in ("web", "other")
    ]
    async with serving() as web:
        await web.start()
        async with web.browser() as browser:
            for one in messages:
                data = b"\0" + framed(slots[one].SerializeToString()) if one in (0, 1) else one
                await browser.socket.send(data)
            details, trailers = await browser.ending()

        assert text in details
        assert trailers["grpc-status"] == str(status)
        assert await ticks_of(web) == 0


async def test_frames_may_be_split_over_messages_and_share_them():
    async with serving() as web:
        await web.start(params=parameters(max_steps=2))
        async with web.browser() as browser:
            await browser.begin("trial")
            slot = ActorInitialOutput(actor_class="player")
            join = ActorRunTrialOutput(state=NORMAL, init_output=slot).SerializeToString()
            for one in framed(join):
                await browser.socket.send(bytes([0, one]))
            await browser.until("observation")
            both = framed(ALIVE.SerializeToString()) * 2
            await browser.socket.send(b"\0" + both)
            states = [(await browser.next()).state for _ in range(2)]
            await browser.act()
            await browser.until("observation")

    assert states == [CommunicationState.HEARTBEAT] * 2


@pytest.mark.parametrize(
    ("data", "status", "text"),
    [
        (b"\0" + framed(b"\xff"), "3", "not the message"),
        (b"\x09", "3", "not 09"),
        ("text", "3", "binary, not text"),
        (b"\0" + framed(b"", 0x80), "3", "flag 0x80"),
    ],
)
async def test_nonsense_ends_an_actor_with_the_reason(data, status, text):
    async with serving() as web:
        await web.start()
        async with web.browser() as browser:
            await browser.join("trial")
            await browser.until("observation")
            await browser.socket.send(data)
            details, trailers = await browser.ending()
        await web.state("trial", ENDED)

    assert text in details
    assert (trailers["grpc-status"], text in trailers["grpc-message"].replace("%20", " ")) == (
        status,
        True,
    )


async def test_a_message_that_is_too_long_ends_the_websocket():
    async with serving() as web:
        await web.start()
        async with web.browser() as browser:
            await browser.join("trial")
            await browser.until("observation")
            await browser.act(bytes(65_000))
            await browser.until("observation")
            await browser.act(bytes(70_000))
            await browser.socket.wait_closed()
            await web.state("trial", ENDED)

    assert browser.socket.close_code == 1009


async def test_a_half_close_is_the_end_of_an_actor(caplog):
    caplog.set_level("INFO")
    async with serving() as web:
        await web.start()
        async with web.browser() as browser:
            await browser.join("trial")
            await browser.until("observation")
            await browser.socket.send(b"\x01")
            details, trailers = await browser.ending()

    assert "it ended its stream" in details
    assert trailers["grpc-status"] == "0"
    assert "actor 'web' was lost: it ended its stream" in caplog.text


async def test_a_half_close_after_the_end_is_acknowledged_does_no_harm():
    async with serving() as web:
        await web.start(params=parameters("web", "slow", max_steps=1))
        async with web.browser() as browser, web.browser() as slow:
            await browser.join("trial")
            await slow.join("trial", "slow")
            for _ in range(2):
                for one in (browser, slow):
                    await one.until("observation")
                    await one.act()
            while (await browser.next()).state != LAST:
                pass
            await browser.send(ACKNOWLEDGED)
            await browser.socket.send(b"\x01")
            await slow.send(ACKNOWLEDGED)
            details, trailers = await browser.ending()

    assert (details, trailers["grpc-status"]) == ("", "0")


async def test_an_actor_that_vanishes_is_lost(caplog):
    caplog.set_level("INFO")
    async with serving() as web:
        await web.start()
        async with web.browser() as browser:
            await browser.join("trial")
            await browser.until("observation")
            browser.socket.transport.abort()
            await web.state("trial", ENDED)

    assert "actor 'web' was lost: its connection was closed" in caplog.text


@pytest.mark.parametrize(
    ("most", "left"), [({"queued_messages": 20}, "21 messages"), ({}, r"\d+ messages of 1\d{6} ")]
)
async def test_an_actor_that_does_not_read_is_lost_and_other_trials_are_not(
    caplog, monkeypatch, most, left
):
    """It has left too many messages, or more than there is room for what all have left."""
    caplog.set_level("INFO")
    monkeypatch.setattr(grpc_streams, "MOST_WAITING_BYTES", 1 << 20 if not most else 1 << 30)
    parts = LocalParts(flood=bytes(100_000), messages=30)
    limits = {"stalled_seconds": 1.0, **most}
    async with serving(parts=parts, limits=limits) as web:
        await web.start("stalled")
        async with web.browser(max_queue=1) as stalled:
            stalled.socket.transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVBUF, 4096
            )
            await stalled.join("stalled")
            await web.state("stalled", ENDED)
            parts.messages = 0
            await web.start("other")
            async with web.browser() as other:
                await other.join("other")
                await other.play(20)
            await web.state("other", ENDED)

    assert re.search(f"actor 'web' was lost: it left {left}", caplog.text)


async def test_an_actor_that_stops_reading_is_disconnected():
    parts = LocalParts(flood=bytes(1_000_000), messages=30)
    limits = {"stalled_seconds": 0.5, "queued_bytes": 1 << 26}
    async with serving(parts=parts, limits=limits) as web:
        await web.start()
        async with web.browser(max_queue=1) as browser:
            await browser.join("trial")
            await web.state("trial", ENDED)
            left = await web.connections(0)
            is_open = not browser.socket.transport.is_closing()
            browser.socket.transport.abort()

    assert (left, is_open) == (0, True)  # the client itself did nothing


async def test_an_actor_that_floods_is_read_at_its_pace_and_other_trials_play():
    limits = {"messages_per_second": 100}
    async with serving(limits=limits) as web:
        await web.start("flooded")
        await web.start("other")
        async with web.browser() as flooding, web.browser() as other:
            await flooding.join("flooded")
            await flooding.until("observation")
            for _ in range(5_000):
                await flooding.send(ALIVE)
            await other.join("other")
            await other.play(20)
            played = await ticks_of(web, "other")

    assert played >= 19


async def test_the_end_of_the_server_is_the_end_of_its_actors():
    async with serving() as web:
        await web.start()
        async with web.browser() as browser:
            await browser.join("trial")
            await browser.until("observation")
            await web.port.close()
            await browser.socket.wait_closed()
            await web.state("trial", ENDED)

    assert browser.socket.close_code == 1012


async def test_a_soft_end_of_the_trials_reaches_browsers():
    async with serving() as web:
        await web.start()
        async with web.browser() as browser:
            await browser.join("trial")
            await browser.until("observation")
            closing = asyncio.create_task(web.server.close())
            await browser.act()
            while (await browser.next()).state != LAST:
                await browser.act()
            await browser.send(ACKNOWLEDGED)
            details, trailers = await browser.ending()
            await closing

    assert (details, trailers["grpc-status"]) == ("", "0")


async def test_an_intact_trial_completes_among_any_messages():
    random = Random(14)
    async with serving() as web:
        await web.start()
        async with web.browser() as browser:
            await browser.join("trial")
            for number in range(60):
                await web.start(f"mutated {number}")
                async with web.browser() as other:
                    await mutated(other, f"mutated {number}", random)
                await browser.until("observation")
                await browser.act()
            played = await ticks_of(web)

    assert played >= 59


async def mutated(browser, trial_id, random):
    """A valid beginning of some length, then one mutated message, then the end."""
    join = ActorRunTrialOutput(
        state=NORMAL, init_output=ActorInitialOutput(actor_name="web")
    ).SerializeToString()
    valid = [f"trial-id: {trial_id}\r\n".encode(), b"\0" + framed(join)]
    valid += [b"\0" + framed(ALIVE.SerializeToString())] * 2
    valid = valid[: random.randrange(len(valid)) + 1]
    last = bytearray(valid[-1])
    for _ in range(random.randrange(1, 4)):
        last[random.randrange(len(last))] = random.randrange(256)
    with suppress(ConnectionClosed):
        for one in (*valid[:-1], bytes(last), b"\x01"):
            await browser.socket.send(one)


async def test_another_subprotocol_is_refused(caplog):
    async with serving() as web:
        with pytest.raises(InvalidStatus) as refused:
            async with web.browser(subprotocols=["other"]):
                pass

    assert refused.value.response.status_code == 400
    assert b"grpc-websockets" in refused.value.response.body
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == []


@pytest.mark.parametrize("sent", [[], [b"trial-id: trial\r\n"], [b"trial-id: trial\r\n", b"\0\0"]])
async def test_an_actor_that_does_not_say_what_it_joins_is_refused_in_time(sent):
    async with serving(limits={"handshake_seconds": 1.5}) as web:
        await web.start()
        async with web.browser() as browser:
            for one in sent:
                await browser.socket.send(one)
            details, trailers = await browser.ending()

    assert details == "the actor did not say within 1.5 s what it joins"
    assert trailers["grpc-status"] == "4"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nhost: localhost\r\n",
        f"GET {RUN} HTTP/1.1\r\nupgrade: websocket\r\n".encode(),
    ],
)
async def test_a_connection_whose_request_does_not_arrive_is_closed(sent):
    async with serving(limits={"handshake_seconds": 0.2}) as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port.port)
        writer.write(sent)
        async with asyncio.timeout(PATIENCE):
            (end,) = await asyncio.gather(reader.read(), return_exceptions=True)
        writer.close()

        assert end == b"" or isinstance(end, ConnectionResetError)
        assert web.port.connections == 0


@pytest.mark.parametrize(
    ("method", "path", "header"),
    [
        ("POST", RUN, "content-length: 3\r\n\r\nabc"),
        ("GET", RUN, "content-length: 500000000\r\n\r\n"),
        ("GET", RUN, "transfer-encoding: chunked\r\n\r\n5\r\nabcde\r\n"),
        ("GET", f"{RUN}?{'x' * 10_000}", "\r\n"),
    ],
)
async def test_a_request_that_no_websocket_begins_with_is_refused(caplog, method, path, header):
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\n"
        "connection: upgrade\r\nsec-websocket-version: 13\r\n"
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        "sec-websocket-protocol: grpc-websockets\r\n"
    )
    async with serving() as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port.port)
        writer.write((head + header).encode())
        async with asyncio.timeout(PATIENCE):
            answer = await reader.read()
        writer.close()

        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"no websocket: " in answer
        assert await web.connections(0) == 0
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == []


async def test_a_header_of_many_fields_is_refused():
    async with serving() as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port.port)
        writer.write(f"GET {RUN} HTTP/1.1\r\n".encode() + b"x: y\r\n" * 200 + b"\r\n")
        async with asyncio.timeout(PATIENCE):
            answer = await reader.read()
        writer.close()

    assert answer.startswith(b"HTTP/1.1 431 ")
    assert answer.endswith(b"a request has 128 fields in its header at most\n")


@pytest.mark.parametrize("line", [b"x: y\r\n", b"x" * 1_000])
async def test_a_header_that_does_not_end_is_refused(line):
    async with serving() as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port.port)
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n" + 100_000 // len(line) * line)
        async with asyncio.timeout(PATIENCE):
            answer = await reader.read()
        writer.close()

    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"x-content-type-options: nosniff" in answer


async def test_the_time_of_a_request_ends_where_its_websocket_begins():
    async with serving(limits={"handshake_seconds": 0.3}) as web:
        await web.start()
        async with web.browser() as browser:
            begun = asyncio.get_running_loop().time()
            await browser.join("trial")
            while asyncio.get_running_loop().time() - begun < 1.0:
                await browser.until("observation")
                await browser.act()

        assert await web.connections(0) == 0


async def test_a_request_whose_body_does_not_arrive_is_refused():
    head = (
        "POST /cogmentAPI.TrialLifecycleSP/Version HTTP/1.1\r\nhost: localhost\r\n"
        "content-type: application/grpc-web+proto\r\ncontent-length: 5\r\n\r\n"
    )
    async with serving(limits={"handshake_seconds": 1.5}) as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port.port)
        writer.write(head.encode() + b"\0")
        async with asyncio.timeout(PATIENCE):
            answer = await reader.readuntil(b"grpc-status: 4\r\n")
        writer.close()

    assert answer.startswith(b"HTTP/1.1 200")


async def test_connections_are_limited_for_each_address_and_come_back():
    async with serving(limits={"connections_per_address": 1}) as web:
        await web.start()
        async with web.browser() as browser:
            with pytest.raises(InvalidStatus) as refused:
                async with web.browser():
                    pass
            await browser.join("trial")
            await browser.until("observation")
        await web.connections(0)
        async with web.browser():
            pass

    assert refused.value.response.status_code == 503
    assert refused.value.response.headers["referrer-policy"] == "no-referrer"


async def test_an_action_of_another_tick_is_left_out():
    async with serving() as web:
        await web.start()
        async with web.browser() as browser:
            await browser.join("trial")
            await browser.until("observation")
            await web.state("trial", RUNNING)
            late = ActorRunTrialOutput(state=NORMAL, action=Action(tick_id=7, content=b"late"))
            await browser.send(late)
            await browser.act()
            observation = (await browser.until("observation")).observation

        assert (observation.tick_id, observation.content) == (1, b"1")


@pytest.mark.parametrize("fin", [True, False])
async def test_a_text_that_is_not_utf_8_ends_its_websocket_without_a_line_in_the_log(caplog, fin):
    async with serving() as web, web.browser() as browser:
        browser.socket.protocol.send_text(b"ab\xff", fin)
        if not fin:
            browser.socket.protocol.send_continuation(b"c", fin=True)
        browser.socket.transport.write(b"".join(browser.socket.protocol.data_to_send()))
        async with asyncio.timeout(PATIENCE):
            await browser.socket.wait_closed()
        again = await web.call("Version", VersionRequest())

    assert browser.socket.close_code == 1007
    assert again.status == 0
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == []


async def test_what_follows_a_text_that_is_not_utf_8_is_not_looked_at(caplog):
    async with serving() as web, web.browser() as browser:
        for _ in range(3):
            browser.socket.protocol.send_text(b"ab\xff")
        browser.socket.protocol.send_binary(b"after")
        browser.socket.transport.write(b"".join(browser.socket.protocol.data_to_send()))
        async with asyncio.timeout(PATIENCE):
            await browser.socket.wait_closed()
        again = await web.call("Version", VersionRequest())

    assert browser.socket.close_code == 1007
    assert again.status == 0
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == []


async def test_empty_parts_of_a_message_are_not_kept():
    async with serving() as web, web.browser() as browser:
        browser.socket.protocol.send_binary(b"\0", fin=False)
        for _ in range(10_000):
            browser.socket.protocol.send_continuation(b"", fin=False)
        async with asyncio.timeout(PATIENCE):
            await (await browser.socket.ping())
        (connection,) = web.port._server.server_state.connections
        kept = len(connection.frames)

    assert kept == 1
