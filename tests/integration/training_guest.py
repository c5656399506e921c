"""A proxy guest that takes part in runs through the imports that a test calls."""

import numpy as np
from tests.waiting import eventually

from arkml.abi.codes import ErrorCode
from arkml.testing.proxy import Proxy, proxy_text

QUICK = """{"mine": 1,  "arkml": {"algorithm": "drawn", "hidden": 32, "batch_size": 32,
  "memory_min_size": 100, "new": 2}}"""
LOCAL = ("localhost", 12356)
V1, V2, V3, V4 = (f"ark-ml-v{number}" for number in range(1, 5))
FEATURES, ACTIONS = 3, 2


class TrainingGuest:
    """A proxy guest in runs, with one method for each step of a training."""

    def __init__(self, host, *, pages=1):
        self.guest = host.load(proxy_text(pages=pages).encode(), name="proxy")
        self.proxy = Proxy(self.guest, pages=pages)

    def ask(self, module, name, *arguments, size=8):
        """Call an import; return the code and the bytes at the last pointer."""
        flat = []
        for argument in arguments:
            flat += self.proxy.text(argument) if isinstance(argument, str) else [argument]
        room = self.proxy.room(size)
        code = self.proxy.code(module, f"ml__{name}", *flat, room)
        return code, self.proxy.read(room, size)

    def handle(self, module, name, *arguments):
        code, data = self.ask(module, name, *arguments)
        assert code is ErrorCode.SUCCESS
        return int.from_bytes(data, "little")

    def wait(self, module, kind, future, *, size=1):
        """Poll until a future is ready, and return its number of items."""
        room = self.proxy.room(size)

        def polled():
            assert not self.proxy.code(module, f"ml__poll_future_{kind}", future, room)
            data = self.proxy.read(room, size)
            return data if data[0] else None

        data = eventually(polled)
        return int.from_bytes(data[4:8], "little") if size == 8 else 1

    def take(self, module, kind, future, size):
        room = self.proxy.room(size)
        code = self.proxy.code(module, f"ml__take_future_{kind}", future, room)
        return code, self.proxy.read(room, size)

    def vector(self, module, kind, future, item=1):
        """Return the bytes of a future's vector."""
        count = self.wait(module, kind, future, size=8)
        room = self.proxy.room(count * item)
        assert not self.proxy.code(module, f"ml__take_future_{kind}", future, room, count)
        return self.proxy.read(room, count * item)

    def joined(self, future):
        """The training handle of a start."""
        self.wait(V1, "training_handle", future)
        code, data = self.take(V1, "training_handle", future, 8)
        assert code is ErrorCode.SUCCESS
        return int.from_bytes(data, "little")

    def start(self, name, config=QUICK):
        return self.joined(
            self.handle(V2, "start_training", *LOCAL, "game", name, FEATURES, ACTIONS, 0, config)
        )

    def submit(self, context, rows):
        """Push (id, state, reward, features) and submit; code, actions, values."""
        for agent, state, reward, features in rows:
            data = np.full(FEATURES, features, "f4").tobytes()
            pointer = self.proxy.put(data)
            assert not self.proxy.code(
                V1, "ml__push_training_observation",
                context, agent, state, reward, pointer, FEATURES, 0, 0, 1.0,
            )  # fmt: skip
        count = len(rows)
        actions, values = self.proxy.room(4 * ACTIONS * count), self.proxy.room(4 * count)
        code = self.proxy.code(
            V1, "ml__submit_training_observations",
            context, actions, ACTIONS * count, values, count,
        )  # fmt: skip
        found = np.frombuffer(self.proxy.read(actions, 4 * ACTIONS * count), "f4")
        return code, found.reshape(count, ACTIONS), self.proxy.read(values, 4 * count)
