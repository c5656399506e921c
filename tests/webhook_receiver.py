"""A receiver of webhooks: HTTP on loopback that answers as it is told, and keeps what it gets."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class WebhookReceiver:
    """
    Keeps the notices that are posted to its `url`, with the paths.

    `answers` are the statuses of the next answers, the last of them for all that follow; None never
    answers while the receiver is open.
    """

    def __init__(self, *answers):
        self.posts = []
        self._answers = list(answers) or [200]
        self._closing = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.posts.append((self.path, self.headers["content-type"], json.loads(body)))
                status = receiver._next()
                if status is None:
                    receiver._closing.wait()
                    return
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("location", "/elsewhere")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/secret?key=1"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def notices(self):
        return [notice for _, _, notice in self.posts]

    def _next(self):
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
