"""Rights at a web port: names, pages, tokens, and what is written to logs of them."""

import asyncio
import os
import ssl

import pytest
from tests.integration.trials_web import (
    ENDED,
    LIFECYCLE,
    RUNNING,
    TYPE,
    Answer,
    framed,
    parameters,
    serving,
)
from tests.integration.web_certificate import CERTIFICATE
from websockets.exceptions import InvalidStatus

from arkml.base import http_server
from arkml.base.files import open_file
from arkml.trials.core.error import TrialError
from arkml.trials.server.server import Server
from arkml.trials.server.web.port import WebPort
from arkml.trials.server.web.web_options import WebOptions
from arkml.trials.wire.common_pb2 import VersionRequest
from arkml.trials.wire.lifecycle_pb2 import (
    TerminateTrialRequest,
    TrialInfoReply,
    TrialInfoRequest,
    TrialListEntry,
    TrialListRequest,
    TrialStartRequest,
)

PAGE = "https://game.example"
SAFETY = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
ELSEWHERE = {"host": "0.0.0.0"}


def has_safety(headers):
    return SAFETY.items() <= dict(headers).items()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example"])
async def test_requests_for_other_names_are_refused(host):
    async with serving() as web:
        response = await web.post("Version", VersionRequest(), host=host)
        with pytest.raises(InvalidStatus) as refused:
            async with web.browser(name=host.partition(":")[0]):
                pass

    assert response.status_code == 403
    assert f"requests for '{host}'" in response.text
    assert refused.value.response.status_code == 403
    assert has_safety(response.headers)
    assert has_safety((key.lower(), one) for key, one in refused.value.response.headers.raw_items())


async def test_a_name_may_be_allowed_and_then_needs_a_token():
    async with serving(allow_hosts=("game.example",)) as web:
        without = await web.call("Version", VersionRequest(), host="game.example")
        token = web.port.access.token
        granted = await web.call("Version", VersionRequest(), host="game.example", token=token)

    assert (without.status, granted.status) == (16, 0)


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "https://localhost", "http://localhost", f"{PAGE}.evil"],
)
async def test_other_pages_are_refused(origin):
    async with serving(allow_origins=(PAGE,)) as web:
        response = await web.post("Version", VersionRequest(), origin=origin)
        asked = await web.http.options(
            f"{web.origin}{LIFECYCLE}StartTrial", headers={"origin": origin}
        )
        with pytest.raises(InvalidStatus) as refused:
            async with web.browser(origin=origin):
                pass

    assert (response.status_code, asked.status_code) == (403, 403)
    assert f"pages of '{origin}' may not use this server" in response.text
    assert "access-control-allow-origin" not in {*response.headers, *asked.headers}
    assert refused.value.response.status_code == 403
    assert b"--allow-origin" in refused.value.response.body


async def test_two_origins_are_refused():
    async with serving(allow_origins=(PAGE,)) as web:
        with pytest.raises(InvalidStatus):
            async with web.browser(additional_headers=[("Origin", PAGE), ("Origin", PAGE)]):
                pass
        async with web.browser(origin=PAGE):
            pass


async def test_pages_of_the_port_itself_may_use_it():
    async with serving() as web:
        response = await web.post("Version", VersionRequest(), origin=web.origin)
        asked = await web.http.options(f"{web.origin}/", headers={"origin": web.origin})
        async with web.browser(origin=web.origin) as browser:
            await browser.join("none")
            details, _ = await browser.ending()

    assert response.status_code == 200
    assert "access-control-allow-origin" not in response.headers
    assert asked.status_code == 403
    assert "there is no trial 'none'" in details


async def test_pages_of_allowed_origins_may_use_it():
    async with serving(allow_origins=(PAGE,)) as web:
        asked = await web.http.options(
            f"{web.origin}{LIFECYCLE}StartTrial",
            headers={
                "origin": PAGE,
                "access-control-request-method": "POST",
                "access-control-request-headers": "content-type,trial-id,x-grpc-web",
            },
        )
        response = await web.post("Version", VersionRequest(), origin=PAGE)

    assert asked.status_code == 204
    allowed = asked.headers["access-control-allow-headers"].split(", ")
    assert {"content-type", "x-grpc-web", "trial-id", "user-id"} <= set(allowed)
    for one in (asked, response):
        assert one.headers["access-control-allow-origin"] == PAGE
        assert one.headers["access-control-expose-headers"] == "grpc-status, grpc-message"
        assert one.headers["vary"] == "origin"
        assert "access-control-allow-credentials" not in one.headers
        assert has_safety(one.headers)


@pytest.mark.parametrize("token", ["", "wrong", "ü", "x" * 5_000])
async def test_elsewhere_a_token_is_needed(token):
    async with serving(**ELSEWHERE) as web:
        await web.start()
        unary = await web.call("GetTrialInfo", TrialInfoRequest(), token=token)
        watch = await web.call("WatchTrials", TrialListRequest(), token=token)
        async with web.browser(token) as browser:
            await browser.join("trial")
            details, trailers = await browser.ending()

    assert (unary.status, watch.status, trailers["grpc-status"]) == (16, 16, "16")
    assert unary.messages == watch.messages == []
    assert "the token of this address is missing or wrong" in details


async def test_the_token_of_the_port_opens_everything():
    async with serving(**ELSEWHERE) as web:
        token = web.port.access.token
        started = await web.call(
            "StartTrial", TrialStartRequest(trial_id_requested="a"), token=token
        )
        async with web.browser(token) as browser:
            await browser.join("a")
            await browser.until("observation")
            ended = await web.call(
                "TerminateTrial", TerminateTrialRequest(), token=token, trial_id="a"
            )

    assert (started.status, ended.status, len(token)) == (0, 0, 43)


async def test_a_given_token_is_needed_on_this_machine_too():
    async with serving(token="mine") as web:
        without = await web.call("Version", VersionRequest())
        granted = await web.call("Version", VersionRequest(), token="mine")
        twice = await web.post(
            "/j/mine/cogmentAPI.TrialLifecycleSP/Version", VersionRequest(), token="mine"
        )

    assert (without.status, granted.status, twice.status_code) == (16, 0, 404)


async def test_a_token_to_act_is_good_for_its_slots_alone():
    async with serving(**ELSEWHERE) as web:
        await web.start("mine", parameters("web", "other"))
        await web.start("theirs")
        token = await web.port.token_to_act("mine", ["web"])
        answers = [
            await web.call("StartTrial", TrialStartRequest(), token=token),
            await web.call("TerminateTrial", TerminateTrialRequest(), token=token, trial_id="mine"),
            await web.call("GetTrialInfo", TrialInfoRequest(), token=token, trial_id="mine"),
            await web.call("WatchTrials", TrialListRequest(), token=token),
        ]
        refused = []
        for trial_id, name in (("theirs", "web"), ("mine", "other"), ("mine", "")):
            async with web.browser(token) as browser:
                await browser.join(trial_id, name)
                refused.append(await browser.ending())
        async with web.browser(token) as browser:
            await browser.join("mine")
            first = await browser.next()

    assert [answer.status for answer in answers] == [7] * 4
    assert answers[0].text == "this token is good for trial mine alone, and not for StartTrial"
    assert [details for details, _ in refused] == [
        "this token is good for trial mine alone",
        "this token is good as web, by name alone",
        "this token is good as web, by name alone",
    ]
    assert {trailers["grpc-status"] for _, trailers in refused} == {"7"}
    assert first.init_input.actor_name == "web"


async def test_a_token_to_watch_shows_its_trial_alone():
    async with serving(**ELSEWHERE) as web:
        await web.start("mine")
        await web.start("theirs")
        token = await web.port.token_to_watch("mine")
        info = await web.call("GetTrialInfo", TrialInfoRequest(), token=token)
        other = await web.call("GetTrialInfo", TrialInfoRequest(), token=token, trial_id="theirs")
        ended = await web.call("TerminateTrial", TerminateTrialRequest(), token=token)
        async with web.browser(token) as browser:
            await browser.join("mine")
            details, _ = await browser.ending()

    assert [one.trial_id for one in TrialInfoReply.FromString(info.messages[0]).trial] == ["mine"]
    assert (other.status, ended.status) == (7, 7)
    assert details == "this token is good to watch alone"


async def test_a_watch_of_one_trial_ends_with_it():
    async with serving(**ELSEWHERE) as web:
        await web.start("mine")
        await web.start("theirs")
        token = await web.port.token_to_watch("mine")
        url = f"{web.port.endpoint(token)}{LIFECYCLE}WatchTrials"
        request = framed(TrialListRequest().SerializeToString())
        async with web.http.stream(
            "POST", url, content=request, headers={"content-type": TYPE}
        ) as response:
            parts = response.aiter_raw()
            content = await anext(parts)
            await web.server.trials.terminate(["theirs", "mine"], is_hard=True)
            async for part in parts:
                content += part

    answer = Answer(content)
    entries = [TrialListEntry.FromString(one) for one in answer.messages]
    assert {one.trial_id for one in entries} == {"mine"}
    assert (entries[-1].state, answer.status) == (ENDED, 0)


async def test_tokens_of_a_trial_end_with_it():
    async with serving(**ELSEWHERE) as web:
        await web.start("mine")
        tokens = [
            await web.port.token_to_act("mine", ["web"]),
            await web.port.token_to_watch("mine"),
        ]
        async with web.browser(tokens[0]) as browser:
            await browser.join("mine")
            await browser.until("observation")
            await web.state("mine", RUNNING)
            await web.server.trials.terminate(["mine"], is_hard=True)
            await browser.ending()
        answers = [await web.call("GetTrialInfo", TrialInfoRequest(), token=one) for one in tokens]
        with pytest.raises(TrialError, match="no trial 'mine', or it has ended"):
            await web.port.token_to_watch("mine")

    assert [answer.status for answer in answers] == [16, 16]


async def test_tokens_are_made_for_actors_that_there_are():
    async with serving(**ELSEWHERE, limits={"tokens": 1}) as web:
        await web.start("mine")
        with pytest.raises(TrialError, match="has no actor 'other'"):
            await web.port.token_to_act("mine", ["web", "other"])
        with pytest.raises(TrialError, match="has no actor ''"):
            await web.port.token_to_act("mine", [])
        with pytest.raises(TrialError, match="no trial 'none'"):
            await web.port.token_to_watch("none")
        await web.port.token_to_watch("mine")
        with pytest.raises(TrialError, match="1 tokens already"):
            await web.port.token_to_watch("mine")


async def test_tokens_are_never_logged(caplog):
    caplog.set_level("DEBUG")
    async with serving(**ELSEWHERE) as web:
        for name in ("uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
            caplog.set_level("DEBUG", name)
        await web.start()
        token = await web.port.token_to_act("trial", ["web"])
        caplog.clear()
        for one in (token, web.port.access.token, "wrongwrong"):
            await web.call("Version", VersionRequest(), token=one)
            async with web.browser(one) as browser:
                await browser.join("none")
                await browser.ending()
        shown = [one for one in caplog.records if not one.name.startswith(("websockets", "http"))]

    text = "\n".join(one.getMessage() for one in shown)
    assert 'WebSocket /cogmentAPI.ClientActorSP/RunTrial" [accepted]' in text
    assert not any(one in text for one in (token, web.port.access.token, "wrongwrong"))


async def test_answers_that_are_not_of_calls_are_safe_too():
    async with serving(**ELSEWHERE) as web:
        missing = await web.http.get(f"{web.origin}/nothing")
        token_alone = await web.http.get(f"{web.origin}/j/{web.port.access.token}")
        with pytest.raises(InvalidStatus) as refused:
            async with web.browser("a/b"):
                pass
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port.port)
        writer.write(b"\x16\x03\x01 hello\r\n\r\n")
        garbage = (await reader.read()).decode().split("\r\n")
        writer.close()

    assert (missing.status_code, token_alone.status_code) == (404, 404)
    assert refused.value.response.status_code == 404
    assert garbage[0] == "HTTP/1.1 400 Bad Request"
    assert has_safety(missing.headers)
    assert has_safety(token_alone.headers)
    assert has_safety(refused.value.response.headers.raw_items())
    assert has_safety(line.split(": ") for line in garbage[1:-2])


async def test_a_port_may_speak_tls(tmp_path):
    path = tmp_path / "certificate.pem"
    path.write_text(CERTIFICATE)
    trusted = ssl.create_default_context(cafile=path)
    async with serving(tls_cert=path, tls_key=path) as web:
        url = web.port.endpoint()
        async with web.browser(ssl=trusted, origin=url) as browser:
            await browser.join("none")
            details, _ = await browser.ending()

    assert url.startswith("https://127.0.0.1:")
    assert "there is no trial 'none'" in details


async def test_a_certificate_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "certificate.pem"
    path.write_text("no certificate")
    async with Server() as server:
        with pytest.raises(TrialError, match=r"certificate\.pem with its key cannot be used"):
            await WebPort(server, WebOptions(tls_cert=path)).open()


@pytest.mark.parametrize("option", ["tls_cert", "tls_key"])
async def test_a_pipe_in_the_place_of_a_certificate_is_not_waited_for(tmp_path, option):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "certificate.pem").write_text(CERTIFICATE)
    files = dict.fromkeys(("tls_cert", "tls_key"), tmp_path / "certificate.pem")
    async with Server() as server:
        port = WebPort(server, WebOptions(**files | {option: tmp_path / "pipe"}))
        with pytest.raises(TrialError, match="it is not a plain file"):
            await port.open()


async def test_a_certificate_that_is_exchanged_for_a_pipe_is_the_one_that_was_opened(
    tmp_path, monkeypatch
):
    def exchanged(path):
        file = open_file(path)
        path.unlink()
        os.mkfifo(path)
        return file

    monkeypatch.setattr(http_server, "open_file", exchanged)
    files = {name: tmp_path / f"{name}.pem" for name in ("tls_cert", "tls_key")}
    for path in files.values():
        path.write_text(CERTIFICATE)
    async with serving(**files) as web:
        assert web.port.endpoint().startswith("https://")


async def test_a_port_in_use_is_named():
    async with serving() as web:
        second = WebPort(web.server, WebOptions(port=web.port.port))
        with pytest.raises(TrialError, match=f"127.0.0.1:{web.port.port}.*in use.*take another"):
            await second.open()


async def test_the_forms_of_endpoints():
    async with serving(**ELSEWHERE) as web:
        plain, full = web.port.endpoint(), web.port.endpoint("abc")

    assert plain == f"http://127.0.0.1:{web.port.port}"
    assert full == f"{plain}/j/abc"
