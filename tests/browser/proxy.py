"""A TCP proxy that loses its connections when a test says so."""

import contextlib
import socket
import threading


class Proxy:
    """Passes connections on to a port of this machine, until `drop`; use it with `with`."""

    def __init__(self, target):
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._open = set()
        self._refuses = False
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self):
        self._threads[0].start()
        return self

    def __exit__(self, *_):
        self._listening.shutdown(socket.SHUT_RDWR)
        self.drop()
        for thread in self._threads:
            thread.join()
        self._listening.close()

    def drop(self):
        """Cut all connections off, and refuse new ones."""
        with self._lock:
            self._refuses = True
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def resume(self):
        """Accept connections again."""
        with self._lock:
            self._refuses = False

    def _accept(self):
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with self._lock:
                if self._refuses:
                    client.close()
                    continue
                try:
                    server = socket.create_connection(("127.0.0.1", self._target))
                except OSError:  # the server has ended
                    client.close()
                    continue
                self._open |= {client, server}
            for pair in ((client, server), (server, client)):
                thread = threading.Thread(target=self._pass_on, args=pair)
                self._threads.append(thread)
                thread.start()

    def _pass_on(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open.discard(source)
        source.close()
