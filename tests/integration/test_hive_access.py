"""A hive of a team, over TLS: tokens and their roles, browsers, and clients that train."""

import json
import logging
import os
import re
import signal
import socket
import ssl
import time
from contextlib import contextmanager
from dataclasses import replace

import httpx
import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from tests.integration.command_line import GUESTS, arkml, start
from tests.integration.hive_service import Service, request, start_hive
from tests.waiting import eventually

from arkml.errors import HiveRefused
from arkml.hive.client import HiveClient
from arkml.hive.protocol.runs import RunRequest, Status
from arkml.server import hive_service
from arkml.server.access.callers import AccessRole
from arkml.server.access.token_file import TokenFile

REACH = GUESTS / "c_reach.wasm"
QUICK = {"algorithm": "drawn", "hidden": 32, "batch_size": 64, "memory_min_size": 640}
OPERATOR = "the operator's token"
PAGE = {"sec-fetch-site": "same-origin", "x-arkml": "1"}


@contextmanager
def served(*words, said=None, **environment):
    """A hive in a process, and its URL; `said` gets the lines that it logs before."""
    process = start("hive", "serve", "--port", "0", *words, **environment)
    try:
        line = process.stderr.readline()
        while said is not None and "WARNING" in line:
            said.append(line)
            line = process.stderr.readline()
        assert line.startswith("hive: http"), line + process.stderr.read()
        yield re.search(r"(https?://\S+)", line)[1].replace("127.0.0.1", "localhost")
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err


def new_token(data, name, role, *more):
    """Make a token by the command line."""
    made = arkml("hive", "token", "new", "--data", data, "--name", name, "--role", role, *more)
    assert made.status == 0, made.err
    return made.out.strip()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A certificate of localhost, its key, and the authority that made it."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    own = authority.issue_cert("localhost")
    own.private_key_pem.write_to_path(folder / "key.pem")
    for number, blob in enumerate(own.cert_chain_pems):
        blob.write_to_path(folder / "cert.pem", append=number > 0)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("team") / "data"


@pytest.fixture(scope="module")
def tokens(data):
    return {role: new_token(data, f"{role} of the test", role) for role in ("act", "read", "admin")}


@pytest.fixture(scope="module")
def hive(data, tokens, certificates):  # noqa: ARG001  the tokens are there when it opens
    """The URL of a hive with TLS."""
    files = ("--tls-cert", certificates / "cert.pem", "--tls-key", certificates / "key.pem")
    with served("--data", data, *files) as url:
        yield url


@pytest.fixture(scope="module")
def trusted(certificates):
    return {"SSL_CERT_FILE": str(certificates / "ca.pem")}


@pytest.fixture
def browser(hive, certificates):
    verify = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    with httpx.Client(base_url=hive, verify=verify, headers=PAGE, trust_env=False) as made:
        yield made


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def test_a_client_trains_over_tls_by_the_role_act(hive, tokens, trusted, tmp_path):
    config = tmp_path / "quick.json"
    config.write_text(json.dumps(QUICK))
    words = ("train", REACH, "--hive", hive, "--frames", "30", "--config", config, "--json")
    by_act = arkml(
        *words, "--actors", "2", "--out", tmp_path / "a", ARKML_HIVE_TOKEN=tokens["act"], **trusted
    )
    by_read = arkml(*words, "--out", tmp_path / "b", ARKML_HIVE_TOKEN=tokens["read"], **trusted)
    listed = arkml(
        "hive", "list", "--hive", hive, "--json", ARKML_HIVE_TOKEN=tokens["read"], **trusted
    )

    assert by_act.status == 0, by_act.err
    assert by_act.json["updates"] > 0
    assert (tmp_path / "a").is_dir()
    assert by_read.status != 0
    assert "has the role read, and POST /runs takes act" in by_read.err
    assert [run["id"] for run in listed.json["runs"]] == [by_act.json["run"]]


def test_a_client_that_does_not_trust_the_certificate_says_so(hive, tokens):
    refused = arkml("hive", "list", "--hive", hive, ARKML_HIVE_TOKEN=tokens["read"])

    assert refused.status == 2
    assert "CERTIFICATE_VERIFY_FAILED" in refused.err
    assert "SSL_CERT_FILE names a file" in refused.err


def test_a_file_of_certificates_that_is_not_there_is_told(hive, tokens):
    refused = arkml(
        "hive", "list", "--hive", hive, ARKML_HIVE_TOKEN=tokens["read"], SSL_CERT_FILE="gone.pem"
    )

    assert refused.status == 2
    assert "SSL_CERT_FILE names gone.pem, which is no file" in refused.err


def test_a_client_without_tls_gets_a_sentence(hive, tokens):
    plain = hive.removeprefix("https://")
    refused = arkml("hive", "list", "--hive", plain, ARKML_HIVE_TOKEN=tokens["read"])

    assert refused.status == 2
    assert f"no hive answers at {plain}" in refused.err
    assert f"if it has TLS, its address is {hive}" in refused.err


def test_tls_below_1_2_is_refused(hive):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    port = int(hive.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), 10) as plain, pytest.raises(ssl.SSLError):
        context.wrap_socket(plain)


def test_a_browser_logs_in_and_out(browser, hive, tokens):
    port = hive.rpartition(":")[2]
    before = browser.get("/v1/runs")
    login = browser.post("/login", json={"token": tokens["read"]})
    cookie = login.headers["set-cookie"]
    seen, caller = browser.get("/v1/runs"), browser.get("/v1/whoami")
    changed = browser.post("/v1/runs/none/stop", json={})
    logout = browser.post("/logout", json={})
    kept = {"cookie": cookie.partition(";")[0]}
    after = browser.get("/v1/runs", headers=kept)

    assert (before.status_code, seen.status_code, after.status_code) == (401, 200, 401)
    assert re.fullmatch(
        rf"arkml_session_{port}=[\w-]{{43}}; Path=/; HttpOnly; SameSite=Strict;"
        r" Secure",
        cookie,
    )
    assert tokens["read"] not in cookie
    assert login.json() == caller.json()
    assert (caller.json()["name"], caller.json()["role"]) == ("read of the test", "read")
    assert changed.status_code == 403
    assert logout.status_code == 204
    assert "Max-Age=0" in logout.headers["set-cookie"]


def test_a_form_logs_in_and_leads_to_the_page(browser, tokens):
    own = {"origin": str(browser.base_url).rstrip("/")}
    del browser.headers["x-arkml"]
    login = browser.post("/login", data={"token": tokens["admin"]}, headers=own)
    seen = browser.get("/v1/runs")
    changed = browser.post("/v1/runs/none/stop", data={})

    assert (login.status_code, login.headers["location"]) == (303, "/")
    assert (seen.status_code, changed.status_code) == (200, 403)


def test_a_foreign_page_cannot_use_a_session(browser, tokens):
    browser.post("/login", json={"token": tokens["admin"]})
    asked = [
        browser.get("/v1/runs", headers={"sec-fetch-site": "cross-site"}),
        browser.get("/v1/runs", headers={"sec-fetch-site": "same-site"}),
        browser.get("/v1/runs", headers={"origin": "https://evil.example"}),
        browser.post("/v1/runs/none/stop", json={}, headers={"origin": "https://localhost:1"}),
        browser.post("/login", json={"token": tokens["read"]}, headers={"origin": "null"}),
        browser.get("/v1/health", headers={"host": "evil.example"}),
    ]

    assert [answer.status_code for answer in asked] == [403] * len(asked)
    assert browser.post("/v1/runs/none/stop", json={}).status_code == 404


def test_a_token_that_is_revoked_or_expires_ends_its_sessions(browser, data, hive):
    assert hive
    short = new_token(data, "short", "read", "--expires", "1h")
    revoked = new_token(data, "revoked", "read")
    assert eventually(lambda: browser.get("/v1/runs", headers=bearer(short)).status_code == 200)
    login = eventually(
        lambda: (one := browser.post("/login", json={"token": revoked})).status_code == 200 and one
    )
    before = browser.get("/v1/runs")
    arkml("hive", "token", "revoke", "revoked", "--data", data)
    eventually(lambda: browser.get("/v1/runs").status_code == 401)
    file = data / "tokens.json"
    entries = json.loads(file.read_text())
    (entry,) = (one for one in entries["tokens"] if one["name"] == "short")
    entry["expires_at"] = entry["created_at"] = int(time.time()) - 1
    file.write_text(json.dumps(entries))

    assert login.json()["role"] == "read"
    assert before.status_code == 200
    assert eventually(lambda: browser.get("/v1/runs", headers=bearer(short)).status_code == 401)


def test_guesses_are_slowed(tmp_path):
    with (
        served("--data", tmp_path, ARKML_HIVE_TOKEN=OPERATOR) as url,
        httpx.Client(base_url=url, headers=PAGE, trust_env=False) as browser,
    ):
        guesses = [browser.post("/login", json={"token": f"guess {number}"}) for number in range(8)]
        right = browser.post("/login", json={"token": OPERATOR})
        trains = browser.get("/v1/runs", headers=bearer(OPERATOR))
        pause = int(guesses[-1].headers["retry-after"])
        later = eventually(
            lambda: (
                (one := browser.post("/login", json={"token": OPERATOR})).status_code == 200 and one
            )
        )

    assert [answer.status_code for answer in guesses] == [401] * 5 + [429] * 3
    assert "too many logins have failed" in guesses[-1].json()["error"]
    assert right.status_code == 429
    assert trains.status_code == 200
    assert pause == 1
    assert "Secure" not in later.headers["set-cookie"]


def test_a_one_time_token_opens_one_session(tmp_path):
    tmp_path.chmod(0o755)
    said = []
    with (
        served("--data", tmp_path, said=said, ARKML_HIVE_TOKEN=OPERATOR) as url,
        httpx.Client(base_url=url, headers=PAGE, trust_env=False) as browser,
    ):
        made = browser.post("/v1/one_time_tokens", json={}, headers=bearer(OPERATOR)).json()
        as_bearer = browser.get("/v1/runs", headers=bearer(made["token"]))
        first = browser.post("/login", json={"token": made["token"]})
        seen = browser.get("/v1/runs")
        second = browser.post("/login", json={"token": made["token"]})

    assert made["seconds"] == 600
    assert as_bearer.status_code == 401
    assert (first.json()["role"], seen.status_code) == ("admin", 200)
    assert second.status_code == 401
    assert [f"chmod 700 {tmp_path}" in line for line in said] == [True]


@pytest.mark.parametrize(
    ("mode", "who"),
    [
        (0o700, None),
        (0o750, None),
        (0o755, "every user of this machine (mode 0755), who can read rows"),
        (0o777, "every user of this machine (mode 0777), who can change rows"),
        (0o770, "its group (mode 0770), who can change rows"),
    ],
)
def test_a_directory_that_others_may_use_is_said(tmp_path, caplog, mode, who):
    tmp_path.chmod(mode)

    hive_service._warn_if_open(tmp_path)

    assert [who in one for one in caplog.messages] == ([] if who is None else [True])


def test_a_stream_of_an_open_hive_ends_when_its_first_token_is_made(tmp_path):
    with (
        served("--data", tmp_path / "data") as url,
        httpx.stream("GET", f"{url}/v1/events", timeout=300) as stream,
    ):
        assert stream.status_code == 200
        TokenFile(tmp_path / "data").add("alice", AccessRole.ACT, None)

        assert b"".join(stream.iter_bytes())


def test_what_only_looks_at_a_run_does_not_wake_it(tmp_path):
    timeouts = {"lease": 0.2, "pause": 0.2, "idle_stop": 60.0}
    with start_hive(tmp_path / "data", timeouts=timeouts) as hive:
        service = Service(hive)
        run_id = service.create()
        service.sid(run_id)
        service.wait_for_status(run_id, "paused")
        asked = {
            path: service.get(f"/runs/{run_id}{path}").status_code
            for path in (
                "", "/memory", "/policy?after=99&wait=0.1", "/metrics", "/series?name=x",
                "/checkpoints", "/config", "/snapshot?which=latest",
            )
        }  # fmt: skip
        audit = service.get(f"/runs/{run_id}/memory").json()
        status = service.run(run_id)["status"]
        service.close()

    assert status == "paused"
    assert asked.pop("/memory") == 503
    assert set(asked.values()) <= {200, 204, 404}
    assert "its learner is asleep until a session uses it" in audit["error"]


def test_a_host_leaves_the_run_of_another_token_and_does_not_stop_it(tmp_path, caplog):
    data = tmp_path / "data"
    _, alice = TokenFile(data).add("alice", AccessRole.ACT, None)
    _, bob = TokenFile(data).add("bob", AccessRole.ACT, None)
    with (
        start_hive(data) as hive,
        HiveClient(lambda: replace(hive.locate(), token=alice)) as owner,
        HiveClient(lambda: replace(hive.locate(), token=bob)) as other,
    ):
        run = owner.create(RunRequest.from_json(request())).result()
        own, foreign = (
            one.join(run.id, 3, 2, on_policy=lambda *_: None).result() for one in (owner, other)
        )
        with caplog.at_level(logging.WARNING):
            foreign.leave(stop=True).result()
        between = owner.run(run.id).result()
        with pytest.raises(HiveRefused, match="may stop the runs alone that it started"):
            other.stop(run.id).result()
        own.leave(stop=True).result()
        after = owner.run(run.id).result()

    assert "is left, and not stopped: token 'bob' has the role act" in caplog.text
    assert between.sessions == 1
    assert between.status is not Status.STOPPED
    assert after.status is Status.STOPPED


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--tls-cert", "none.pem"), "--tls-cert none.pem: the certificate with its key"),
        (("--tls-cert", "wrong.pem"), "--tls-cert wrong.pem: the certificate with its key"),
        (("--tls-cert", "pipe"), "it is not a plain file: 'pipe'"),
        (("--tls-cert", "wrong.pem", "--tls-key", "pipe"), "it is not a plain file: 'pipe'"),
        (("--tls-key", "wrong.pem"), "--tls-key takes --tls-cert"),
        (("--public-url", "hive"), "--public-url hive: it takes a URL"),
        (("--trusted-proxy", "nginx"), "--trusted-proxy nginx: it takes an address"),
    ],
)
def test_an_option_of_access_that_cannot_be_followed_is_one_sentence(tmp_path, words, sentence):
    (tmp_path / "wrong.pem").write_text("a certificate")
    os.mkfifo(tmp_path / "pipe")
    refused = arkml(
        "hive", "serve", "--port", "0", "--data", tmp_path / "data", *words,
        cwd=tmp_path, ARKML_HIVE_TOKEN=OPERATOR,
    )  # fmt: skip

    assert refused.status == 2
    assert sentence in refused.err
    assert "bug" not in refused.err


@pytest.mark.parametrize(
    "words",
    [("--host", "0.0.0.0"), ("--public-url", "https://h"), ("--trusted-proxy", "127.0.0.1")],
)
@pytest.mark.parametrize("environment", [{}, {"ARKML_HIVE_TOKEN": ""}])
def test_a_hive_that_others_reach_does_not_open_without_tokens(tmp_path, words, environment):
    refused = arkml("hive", "serve", "--port", "0", "--data", tmp_path, *words, **environment)

    assert refused.status == 2
    assert "is open to others: make tokens by `arkml hive token new --data" in refused.err


def test_a_key_with_a_password_is_one_sentence_and_no_question(tmp_path, certificates):
    key = serialization.load_pem_private_key((certificates / "key.pem").read_bytes(), None)
    (tmp_path / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"a password"),
        )
    )
    refused = arkml(
        "hive", "serve", "--port", "0", "--data", tmp_path / "data",
        "--tls-cert", certificates / "cert.pem", "--tls-key", tmp_path / "key.pem",
    )  # fmt: skip

    assert refused.status == 2
    assert "the certificate with its key" in refused.err


def test_remote_workers_of_a_hive_with_tls_need_its_url(tmp_path, certificates):
    refused = arkml(
        "hive", "serve", "--port", "0", "--data", tmp_path, "--workers", "1",
        "--tls-cert", certificates / "cert.pem", "--tls-key", certificates / "key.pem",
        ARKML_HIVE_TOKEN=OPERATOR,
    )  # fmt: skip

    assert refused.status == 2
    assert "--workers with --tls-cert takes --public-url" in refused.err


def test_a_damaged_file_of_tokens_is_one_sentence(tmp_path):
    (tmp_path / "tokens.json").write_text("{")
    (tmp_path / "tokens.json").chmod(0o600)
    refused = arkml("hive", "serve", "--port", "0", "--data", tmp_path)

    assert refused.status == 2
    assert f"the tokens in {tmp_path}/tokens.json cannot be read: not JSON" in refused.err


def test_tokens_of_a_directory_that_is_not_there_are_not_none(tmp_path):
    gone = tmp_path / "gone"
    listed = arkml("hive", "token", "list", "--data", gone)
    revoked = arkml("hive", "token", "revoke", "alice", "--data", gone)

    told = f"error: --data {gone} is not a directory: name the data directory of the hive\n"
    assert [(one.status, one.err) for one in (listed, revoked)] == [(2, told)] * 2
    assert not gone.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("hive", "serve", "--port", "0", "--data", ""),
        ("hive", "token", "list", "--data="),
        ("train", GUESTS / "c_reach.wasm", "--out", ""),
    ],
    ids=["hive serve", "token list", "train"],
)
def test_an_empty_name_is_not_the_current_directory(tmp_path, words):
    refused = arkml(*words, cwd=tmp_path)

    assert refused.status == 2
    assert refused.err.endswith(" is empty: name a file or a directory\n")
    assert list(tmp_path.iterdir()) == []


def test_tokens_are_made_listed_and_revoked(tmp_path):
    made = arkml(
        "hive", "token", "new", "--data", tmp_path, "--name", "ci", "--role", "read",
        "--expires", "30d", "--json",
    ).json  # fmt: skip
    shown = arkml("hive", "token", "new", "--data", tmp_path, "--name", "alice")
    listed = arkml("hive", "token", "list", "--data", tmp_path, "--json").json["tokens"]
    table = arkml("hive", "token", "list", "--data", tmp_path, COLUMNS="120")
    renewed = arkml("hive", "token", "renew", "ci", "--data", tmp_path, "--json").json
    revoked = arkml("hive", "token", "revoke", "ci", "--data", tmp_path)
    again = arkml("hive", "token", "revoke", "ci", "--data", tmp_path)

    assert made["expires_at"] - made["created_at"] == 30 * 86_400
    assert re.fullmatch(r"[\w-]{43}\n", shown.out)
    assert "role act; it is shown this once" in shown.err
    assert [(one["name"], one["role"]) for one in listed] == [("ci", "read"), ("alice", "act")]
    assert all(
        made["token"] not in text and shown.out.strip() not in text
        for text in (json.dumps(listed), table.out, (tmp_path / "tokens.json").read_text())
    )
    assert "never" in table.out
    assert renewed["token"] != made["token"]
    assert [renewed[name] for name in ("id", "name", "role")] == [made["id"], "ci", "read"]
    assert renewed["expires_at"] - renewed["created_at"] == 30 * 86_400
    assert (revoked.status, again.status) == (0, 2)
    assert "there is no token 'ci'" in again.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--name", "a", "--role", "root"), "--role root: it takes act or read or admin"),
        (("--name", "a", "--expires", "30"), "--expires 30: it takes a time, such as 30d"),
        (("--name", "a", "--expires", "0d"), "--expires 0d: it takes a time"),
        (("--name", "a/b"), "--name 'a/b': a token's name has 1 to 64 letters"),
    ],
)
def test_a_token_that_cannot_be_made_is_one_sentence(tmp_path, words, sentence):
    refused = arkml("hive", "token", "new", "--data", tmp_path, *words)

    assert refused.status == 2
    assert sentence in refused.err
    assert not (tmp_path / "tokens.json").exists()
