"""The files of a page for people, at a web port."""

import pytest
from tests.integration.trials_web import serving

from arkml.trials.core.error import TrialError
from arkml.trials.server.server import Server
from arkml.trials.server.web.port import WebPort
from arkml.trials.server.web.web_options import WebOptions

FILES = {
    "index.html": ("<title>Balls</title>", "text/html; charset=utf-8"),
    "page.js": ("export const one = 1;", "text/javascript; charset=utf-8"),
    "style.css": ("body {}", "text/css; charset=utf-8"),
    "images/ball.svg": ("<svg/>", "image/svg+xml"),
}


@pytest.fixture
def folder(tmp_path):
    page = tmp_path / "page"
    for name, (text, _) in FILES.items():
        path = page / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (page / "notes.txt").write_text("not for people")
    (tmp_path / "secret.js").write_text("secret")
    return page


@pytest.mark.parametrize("name", FILES)
async def test_a_file_has_its_type_and_strict_headers(folder, name):
    async with serving(page=folder, host="0.0.0.0") as web:
        response = await web.http.get(f"{web.origin}/play/{name}")
    text, kind = FILES[name]
    headers = response.headers
    own = web.origin.removeprefix("http://")

    assert (response.status_code, response.text) == (200, text)
    assert headers["content-type"] == kind
    assert headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        f" connect-src 'self' ws://{own} wss://{own}; frame-ancestors 'none'; base-uri 'none';"
        " form-action 'none'"
    )
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cache-control"] == "no-cache"


async def test_the_page_is_at_its_folder_with_and_without_a_token(folder):
    async with serving(page=folder, host="0.0.0.0") as web:
        token = web.port.access.token
        plain = await web.http.get(f"{web.origin}/play/")
        behind = await web.http.get(f"{web.origin}/j/{token}/play/")
        wrong = await web.http.get(f"{web.origin}/j/wrong/play/page.js")
        sent_on = await web.http.get(f"{web.origin}/j/{token}/play", follow_redirects=True)

    assert plain.text == behind.text == sent_on.text == FILES["index.html"][0]
    assert sent_on.url == f"{web.origin}/j/{token}/play/"
    assert wrong.status_code == 200


async def test_the_javascript_sdk_is_beside_the_page(folder):
    async with serving(page=folder) as web:
        answers = [
            await web.http.get(f"{web.origin}/play/js/{name}")
            for name in ("cogment.js", "players.js", "google/protobuf/any_pb.js")
        ]

    assert [one.status_code for one in answers] == [200] * 3
    assert {one.headers["content-type"] for one in answers} == {"text/javascript; charset=utf-8"}
    assert "export async function takeOver" in answers[1].text


async def test_a_file_that_a_client_has_is_not_sent_again(folder):
    async with serving(page=folder) as web:
        url = f"{web.origin}/play/page.js"
        etag = (await web.http.get(url)).headers["etag"]
        same = await web.http.get(url, headers={"if-none-match": f'"other", W/{etag}'})
        other = await web.http.get(url, headers={"if-none-match": '"other"'})

    assert (same.status_code, same.content, other.status_code) == (304, b"", 200)
    assert same.headers["etag"] == etag


@pytest.mark.parametrize(
    "path",
    ["notes.txt", "../secret.js", "%2e%2e/secret.js", "..%2fsecret.js", "images", "images/",
     "nothing.js", "//page.js", "js/../page.js/", "js/", "index.html%00"],
)  # fmt: skip
async def test_no_other_file_is_served(folder, path):
    async with serving(page=folder) as web:
        response = await web.http.get(f"{web.origin}/play/{path}")

    assert response.status_code == 404


async def test_files_that_pages_share_are_in_a_folder_of_their_own(folder, tmp_path):
    shared = tmp_path / "scripts"
    shared.mkdir()
    (shared / "one.js").write_text("export const one = 2;")
    (shared / "one.py").write_text("one = 3")
    async with serving(page=folder, page_shared=shared) as web:
        found = await web.http.get(f"{web.origin}/play/shared/one.js")
        lost = [
            await web.http.get(f"{web.origin}/play/{name}") for name in ("one.js", "shared/one.py")
        ]

    assert (found.status_code, found.text) == (200, "export const one = 2;")
    assert "script-src 'self'" in found.headers["content-security-policy"]
    assert [answer.status_code for answer in lost] == [404, 404]


async def test_files_are_read_only(folder):
    async with serving(page=folder) as web:
        posted = await web.http.post(f"{web.origin}/play/page.js", content=b"x")
        head = await web.http.head(f"{web.origin}/play/page.js")

    assert posted.status_code == 405
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(FILES["page.js"][0]))


async def test_a_host_that_is_not_an_address_does_not_reach_the_policy(folder):
    async with serving(page=folder, host="0.0.0.0") as web:
        response = await web.http.get(
            f"{web.origin}/play/", headers={"host": "a;script-src 'unsafe-inline'"}
        )

    assert "unsafe" not in response.headers["content-security-policy"]
    assert "connect-src 'self';" in response.headers["content-security-policy"]


async def test_a_port_without_a_page_has_none():
    async with serving() as web:
        response = await web.http.get(f"{web.origin}/play/")

    assert response.status_code == 404


async def test_a_folder_without_an_index_is_refused(tmp_path):
    async with Server() as server:
        with pytest.raises(TrialError, match=r"is not the folder of a page: it has no index\.html"):
            WebPort(server, WebOptions(page=tmp_path))
