"""Calls of grpc-web: one answer, or a stream of the states of trials."""

import asyncio
import socket

import pytest
from tests.integration.trials_web import (
    ENDED,
    LIFECYCLE,
    PATIENCE,
    TYPE,
    Answer,
    LocalParts,
    framed,
    parameters,
    serving,
)

from arkml.trials.core.parameters import TrialEndpoint
from arkml.trials.wire.common_pb2 import (
    ActorParams,
    DatalogParams,
    EnvironmentParams,
    TrialParams,
    TrialState,
    VersionInfo,
    VersionRequest,
)
from arkml.trials.wire.lifecycle_pb2 import (
    TerminateTrialReply,
    TerminateTrialRequest,
    TrialInfoReply,
    TrialInfoRequest,
    TrialListEntry,
    TrialListRequest,
    TrialStartReply,
    TrialStartRequest,
)


async def test_a_page_starts_describes_and_ends_a_trial():
    async with serving() as web:
        started = await web.call("StartTrial", TrialStartRequest(trial_id_requested="one"))
        described = await web.call("GetTrialInfo", TrialInfoRequest(), trial_id="one")
        request = TerminateTrialRequest(hard_termination=True)
        ended = await web.call("TerminateTrial", request, trial_id="one")

        assert TrialStartReply.FromString(started.messages[0]).trial_id == "one"
        (info,) = TrialInfoReply.FromString(described.messages[0]).trial
        assert (info.trial_id, info.state) == ("one", TrialState.PENDING)
        assert (ended.messages, ended.status) == ([b""], 0)
        assert TerminateTrialReply.FromString(ended.messages[0]) == TerminateTrialReply()
        await web.state("one", ENDED)


async def test_several_ids_come_in_one_header():
    async with serving() as web:
        for name in "abc":
            await web.start(name)
        reply = await web.call("GetTrialInfo", TrialInfoRequest(), trial_id="a, c")

        infos = TrialInfoReply.FromString(reply.messages[0]).trial
        assert [info.trial_id for info in infos] == ["a", "c"]


@pytest.mark.parametrize("service", [LIFECYCLE, "/cogmentAPI.ClientActorSP/"])
async def test_versions_are_served(service):
    async with serving() as web:
        reply = await web.call(f"{service}Version", VersionRequest())

        names = {one.name for one in VersionInfo.FromString(reply.messages[0]).versions}
        assert names >= {"orchestrator", "cogment-api"}


async def test_a_refusal_is_a_status_with_any_text():
    async with serving() as web:
        reply = await web.call("TerminateTrial", TerminateTrialRequest(), trial_id="50% off")

        assert (reply.messages, reply.status) == ([], 9)
        assert reply.text == "there is no trial '50% off'"


@pytest.mark.parametrize(
    ("method", "body", "status", "text"),
    [
        ("Nothing", framed(b""), 12, "no method 'Nothing'"),
        ("StartTrial", b"", 3, "one message, not none"),
        ("StartTrial", framed(b"") * 2, 3, "one message, not 2"),
        ("StartTrial", framed(b"")[:3], 3, "one message, not none"),
        ("StartTrial", framed(b"") + b"\0", 3, "ended after 1 bytes"),
        ("StartTrial", framed(b"\xff"), 3, "1 bytes are not the message TrialStartRequest"),
        ("StartTrial", framed(b"", 1), 12, "compressed"),
        ("StartTrial", framed(b"", 0x80), 3, "flag 0x80"),
        ("StartTrial", framed(bytes(70_000)), 8, "70000 bytes is longer than 65536"),
        ("WatchTrials", framed(b"\xff"), 3, "are not the message TrialListRequest"),
        ("WatchTrials", b"\x05" * 9, 3, "flag 0x05"),
    ],
)
async def test_a_bad_request_is_refused(method, body, status, text):
    async with serving() as web:
        reply = await web.call(method, body)

        assert (reply.messages, reply.status) == ([], status)
        assert text in reply.text


async def test_only_grpc_web_is_answered():
    async with serving() as web:
        other = await web.http.post(f"{web.origin}{LIFECYCLE}Version", content=framed(b""))
        text = await web.post("Version", VersionRequest(), content_type="application/grpc-web-text")
        got = await web.http.get(f"{web.origin}{LIFECYCLE}Version")

        assert (other.status_code, text.status_code, got.status_code) == (415, 415, 405)
        assert "not application/grpc-web+proto" in other.text


async def test_a_failure_of_the_server_is_not_described_to_pages(caplog):
    parts = LocalParts()
    parts.hook_may_answer.set()
    parts.hook_answers = lambda params: params.secret
    async with serving(parts=parts, trials={"hooks": ("local://",)}) as web:
        reply = await web.call("StartTrial", TrialStartRequest())

    assert (reply.status, reply.text) == (13, "the server failed: its log has the reason")
    assert "secret" in caplog.text


class Entries:
    """The entries in a streamed answer, and its end."""

    def __init__(self, response):
        self._parts = response.aiter_raw()
        self._content = b""

    async def next(self):
        """The next entry."""
        size = 5 + int.from_bytes(await self._first(5), "big") % (1 << 32)
        return TrialListEntry.FromString((await self._first(size, take=True))[5:])

    async def end(self):
        """What follows, all of it."""
        async with asyncio.timeout(PATIENCE):
            async for part in self._parts:
                self._content += part
        return Answer(self._content)

    async def _first(self, size, take=False):
        async with asyncio.timeout(PATIENCE):
            while len(self._content) < size:
                self._content += await anext(self._parts)
        first = self._content[:size]
        if take:
            self._content = self._content[size:]
        return first


def watching(web, token="", **request):
    return web.http.stream(
        "POST",
        f"{web.port.endpoint(token)}{LIFECYCLE}WatchTrials",
        content=framed(TrialListRequest(**request).SerializeToString()),
        headers={"content-type": TYPE},
    )


async def test_states_are_streamed_as_they_come():
    async with serving() as web:
        await web.start("one")
        async with watching(web, full_info=True) as response:
            entries = Entries(response)
            first = await entries.next()
            await web.server.trials.terminate(["one"], is_hard=True)
            second = await entries.next()

        assert (first.trial_id, first.state) == ("one", TrialState.PENDING)
        assert (second.trial_id, second.state) == ("one", ENDED)
        assert second.info.env_name == "env"


async def test_a_stream_ends_with_a_status_as_the_server_does():
    async with serving() as web, watching(web) as response:
        closing = asyncio.create_task(web.port.close())
        answer = await Entries(response).end()
        await closing

        assert (answer.messages, answer.status) == ([], 14)
        assert answer.text == "the server is ending"


async def test_a_watcher_that_leaves_is_forgotten():
    async with serving() as web:
        async with watching(web) as response:
            await web.start("one")
            await Entries(response).next()

        assert await web.connections(0) == 0


async def test_a_watcher_that_does_not_read_is_disconnected_and_others_are_not():
    limits = {"stalled_seconds": 0.5, "queued_entries": 10}
    async with serving(limits=limits) as web, watching(web, full_info=True) as response:
        with slow_socket(web) as slow:
            request = framed(TrialListRequest(full_info=True).SerializeToString())
            head = (
                f"POST {LIFECYCLE}WatchTrials HTTP/1.1\r\nhost: localhost\r\ncontent-type: {TYPE}"
                f"\r\ncontent-length: {len(request)}\r\n\r\n"
            )
            slow.sendall(head.encode() + request)
            await web.connections(2)
            large = parameters(properties={"text": "x" * 60_000})
            entries = Entries(response)
            for number in range(150):
                await web.start(f"trial {number}", large)
                while (await entries.next()).trial_id != f"trial {number}":
                    pass
            left = await web.connections(1)

        assert left == 1


def slow_socket(web):
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect(("127.0.0.1", web.port.port))
    return slow


PLAIN = "grpc://10.0.0.1:80"


@pytest.mark.parametrize(
    "params",
    [
        TrialParams(environment=EnvironmentParams(endpoint="grpc://169.254.169.254:80")),
        TrialParams(environment=EnvironmentParams(endpoint="grpc://localhost:22")),
        TrialParams(environment=EnvironmentParams(endpoint="local://")),
        TrialParams(environment=EnvironmentParams(endpoint="grpc://10.0.0.1:81")),
        TrialParams(actors=[ActorParams(name="a", endpoint="grpc://[::1]:80")]),
        TrialParams(datalog=DatalogParams(endpoint="grpc://169.254.169.254:80")),
    ],
)
async def test_parameters_of_pages_name_no_endpoint_of_their_choice(params):
    async with serving(endpoints=frozenset({TrialEndpoint.parse(PLAIN)})) as web:
        reply = await web.call("StartTrial", TrialStartRequest(params=params))

        assert reply.status == 7
        assert "is not one that calls from the web may name" in reply.text
        assert not (await web.server.trials.info([], TrialInfoRequest())).trial


async def test_parameters_of_pages_may_name_allowed_endpoints():
    async with serving(endpoints=frozenset({TrialEndpoint.parse("local://")})) as web:
        request = TrialStartRequest(params=parameters(), trial_id_requested="mine")
        reply = await web.call("StartTrial", request)

        assert TrialStartReply.FromString(reply.messages[0]).trial_id == "mine"


async def test_text_that_is_not_an_endpoint_is_refused():
    params = TrialParams(environment=EnvironmentParams(endpoint="http://169.254.169.254"))
    async with serving() as web:
        reply = await web.call("StartTrial", TrialStartRequest(params=params))

        assert reply.status == 9
        assert "'http://169.254.169.254' is not one of" in reply.text
