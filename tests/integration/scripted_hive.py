"""A hive that answers as it is told to: real HTTP on loopback, no storage and no learner."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from arkml.hive.protocol.rows import HEADER_SIZE, decode, parse_header


class ScriptedHive:
    """
    Keeps the bodies that it took, by their numbers.

    `replies` are what the next rows requests get, each a function of the handler and the body; a
    plain answer follows when they are used up.
    """

    def __init__(self):
        self.bodies = {}
        self.replies = []
        self.joins = 0
        self.asked = 0
        self.credit = 1 << 20
        self.acked = 0
        self.gate = threading.Event()
        self.gate.set()
        hive = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                hive.answer(self, self.rfile.read(int(self.headers.get("content-length", 0))))

            def do_GET(self):
                time.sleep(0.01)
                hive.say(self, 204)

            def log_message(self, *_):
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def locate(self):
        return "127.0.0.1", self.port, None

    def close(self):
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, handler, body):
        if handler.path.endswith("/sessions"):
            self.joins += 1
            fields = {"sid": f"s{self.joins}", "index": 1, "rejoin": self.joins > 1}
            self.say(handler, 200, {**self.standing(), **fields})
        elif handler.path.endswith("/rows"):
            self.asked += 1
            self.gate.wait(30)
            reply = self.replies.pop(0) if self.replies else take
            reply(self, handler, body)
        else:
            self.say(handler, 200, self.standing())

    def standing(self):
        return {"acked": self.acked, "credit": self.credit, "hold": False, "policy_version": 0}

    def keep(self, body):
        """Take a body once; whether it is there already."""
        header = parse_header(body)
        known = header.seq in self.bodies
        if not known:
            self.bodies[header.seq] = decode(header, body[HEADER_SIZE:])
            self.acked = header.seq
        return known

    @staticmethod
    def say(handler, status, fields=None):
        data = b"" if fields is None else json.dumps(fields).encode()
        handler.send_response(status)
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def rewards(self):
        """Of all rows, in the order of the bodies."""
        columns = [self.bodies[seq] for seq in sorted(self.bodies)]
        return [reward for found in columns for reward in found.reward.tolist()]


def take(hive, handler, body):
    """Take the rows."""
    known = hive.keep(body)
    rows = parse_header(body).rows
    hive.say(handler, 200, {**hive.standing(), "accepted": rows, "refused": [], "refused_n": 0,
                            "duplicate": known})  # fmt: skip


def status(code, **fields):
    """Refuse with a status."""
    return lambda hive, handler, _: hive.say(handler, code, {"error": "scripted", **fields})


def garbage(hive, handler, body):
    """Take the rows and answer with no JSON."""
    hive.keep(body)
    handler.send_response(200)
    handler.send_header("content-length", "4")
    handler.end_headers()
    handler.wfile.write(b"?!?!")


def cut(hive, handler, body):
    """Hang up without an answer and without the rows."""
    del hive, body
    handler.connection.close()
    handler.close_connection = True


def cut_after(hive, handler, body):
    """Take the rows and hang up before the answer."""
    hive.keep(body)
    cut(hive, handler, body)


def forget(hive, handler, _):
    """Not know the session any more."""
    hive.say(handler, 404, {"error": "no such session"})
