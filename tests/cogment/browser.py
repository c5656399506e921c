"""Chromium with a page of this folder, which gets JSON from its test and sends JSON back."""

import asyncio
import contextlib
import json
import mimetypes
import shutil
import threading
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

PATIENCE = 120
POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self' http://127.0.0.1:* ws://127.0.0.1:*"
)
"""What pages with our SDK may do; the published one evaluates text."""


class Pages(ThreadingHTTPServer):
    """A server of files, by their path, with /given and /result."""

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.given = {}
        self.result = Future()
        self.origin = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path.lstrip("/")
        if name == "given":
            self.answer(json.dumps(self.server.given).encode(), "application/json")
        elif name in self.server.files:
            kind, _ = mimetypes.guess_type(name)
            self.answer(self.server.files[name].read_bytes(), kind)
        else:
            self.send_error(404)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(b"", "text/plain")
        self.server.result.set_result(json.loads(body))

    def answer(self, content, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if self.path == "/ours.html":
            self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving_pages(files):
    with Pages(files) as pages:
        thread = threading.Thread(target=pages.serve_forever)
        thread.start()
        try:
            yield pages
        finally:
            pages.shutdown()
            thread.join()


async def shown(pages, name, folder):
    """What a page sends to /result."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.fail("there is no program chromium: install Debian's package of that name")
    process = await asyncio.create_subprocess_exec(
        chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--disable-background-networking", f"--user-data-dir={folder}", f"{pages.origin}/{name}",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        return await asyncio.wait_for(asyncio.wrap_future(pages.result), PATIENCE)
    finally:
        process.terminate()
        await process.wait()
