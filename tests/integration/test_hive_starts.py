"""Starts of runs whose answers are lost, and clients and hives of other versions."""

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tests.integration.hive_service import Service, request, start_hive
from tests.waiting import eventually

from arkml.errors import HiveRefused, HiveUnreachable, ProtocolError
from arkml.hive.address import Address
from arkml.hive.client import HiveClient
from arkml.hive.protocol.runs import PROTOCOL, RunRequest, require_protocol
from arkml.hive.transport import HiveTransport

ASKED = RunRequest.from_json(request())


@pytest.fixture
def service(tmp_path):
    with start_hive(tmp_path / "data") as hive:
        service = Service(hive)
        yield service
        service.close()


def start(service, key, body=None):
    return service.post("/runs", body or request(), headers={"Idempotency-Key": key})


def runs(service):
    return [run["id"] for run in service.get("/runs").json()["runs"]]


def test_a_start_that_is_repeated_gets_the_same_run(service):
    answers = [start(service, key) for key in ("one", "one", "other")]
    ids = [answer.json()["run"]["id"] for answer in answers]

    assert [answer.status_code for answer in answers] == [201, 201, 201]
    assert ids[0] == ids[1] != ids[2]
    assert sorted(runs(service)) == sorted(set(ids))


def test_the_key_of_another_start_is_refused(service):
    start(service, "one")
    refused = start(service, "one", request("other"))

    assert refused.status_code == 422
    assert "Idempotency-Key 'one' was used for another run" in refused.json()["error"]
    assert len(runs(service)) == 1


def test_equal_starts_at_once_create_one_run(service):
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: start(service, "one"), range(8)))

    assert {answer.json()["run"]["id"] for answer in answers} == set(runs(service))
    assert len(runs(service)) == 1


def test_a_start_is_found_again_by_a_hive_that_was_killed(service):
    first = start(service, "one").json()["run"]["id"]
    os.kill(service.hive.pid, signal.SIGKILL)
    eventually(lambda: service.hive.is_dead)
    service.close()
    service.connect()
    again, refused = start(service, "one"), start(service, "one", request("other"))

    assert (again.status_code, again.json()["run"]["id"]) == (201, first)
    assert refused.status_code == 422
    assert runs(service) == [first]


def test_a_start_that_was_refused_may_succeed_later(service):
    body = request() | {"checkpoint": "nothing"}
    refused = [start(service, "one", body).status_code for _ in range(2)]

    assert refused == [404, 404]
    assert start(service, "one").status_code == 201


def test_a_repeated_start_of_a_run_that_was_deleted_says_so(service):
    run = start(service, "one").json()["run"]["id"]
    service.http.delete(f"/runs/{run}?force=1")
    again = start(service, "one")

    assert (again.status_code, again.json()["error"]) == (404, f"there is no run {run!r}")
    assert runs(service) == []


class Losing(httpx.AsyncBaseTransport):
    """HTTP that loses the answers to the first starts; `lost` is called before each loss."""

    def __init__(self, count, lost=lambda: None):
        self.keys = []
        self._count = count
        self._lost = lost
        self._http = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, sent):
        answer = await self._http.handle_async_request(sent)
        if sent.method != "POST" or not sent.url.path.endswith("/runs"):
            return answer
        self.keys.append(sent.headers["idempotency-key"])
        if len(self.keys) > self._count:
            return answer
        await answer.aread()
        await answer.aclose()
        self._lost()
        raise httpx.ReadError("the answer is lost")

    async def aclose(self):
        await self._http.aclose()


def test_a_client_that_does_not_get_the_answer_starts_one_run_all_the_same(service):
    http = Losing(3)
    with HiveClient(service.hive.locate, transport=http) as client:
        run = client.create(ASKED).result()
        second = client.create(ASKED).result()

    assert len(http.keys) == 5
    assert len(set(http.keys[:4])) == 1
    assert run.id != second.id
    assert sorted(runs(service)) == sorted([run.id, second.id])


def test_a_client_whose_hive_dies_before_the_answer_finds_its_run(service):
    def die():
        os.kill(service.hive.pid, signal.SIGKILL)
        eventually(lambda: service.hive.is_dead)

    with HiveClient(service.hive.locate, transport=Losing(1, die)) as client:
        run = client.create(ASKED).result()
    service.close()
    service.connect()

    assert runs(service) == [run.id]


def test_a_client_gives_up_when_every_answer_is_lost(service, monkeypatch):
    monkeypatch.setattr("arkml.hive.transport._LOST_PAUSES", (0.0, 0.0))
    http = Losing(100)
    with (
        HiveClient(service.hive.locate, transport=http) as client,
        pytest.raises(HiveUnreachable, match="the answer is lost"),
    ):
        client.create(ASKED).result()

    assert len(http.keys) == 3
    assert len(runs(service)) == 1


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        (PROTOCOL + 1, f"the client has version {PROTOCOL + 1} .* and the hive version {PROTOCOL}:"
         " use a release of arkml for the hive that is as new as that of the client"),
        (PROTOCOL - 1, f"the client has version {PROTOCOL - 1} .* and the hive version {PROTOCOL}:"
         " use a release of arkml for the client that is as new as that of the hive"),
    ],
    ids=["a newer client", "an older client"],
)  # fmt: skip
def test_a_client_of_another_protocol_is_told_so_in_one_sentence(service, version, sentence):
    async def ask():
        transport = HiveTransport(service.hive.locate, protocol=version)
        try:
            await transport.ask("POST", "/runs", body=ASKED)
        finally:
            await transport.close()

    with pytest.raises(HiveRefused, match=sentence) as refused:
        asyncio.run(ask())
    assert refused.value.status == 426
    assert runs(service) == []


class OtherHive(httpx.AsyncBaseTransport):
    """A hive whose health is of another version of the protocol."""

    async def handle_async_request(self, _):
        return httpx.Response(200, json={"service": "arkml-hive", "protocol": PROTOCOL + 1})


def test_a_hive_of_another_protocol_is_named_by_the_client():
    with (
        HiveClient(lambda: Address("127.0.0.1", 1), transport=OtherHive()) as client,
        pytest.raises(ProtocolError, match="for the client that is as new as that of the hive"),
    ):
        client.health().result()


def test_equal_protocols_go_together():
    require_protocol(PROTOCOL, PROTOCOL)
