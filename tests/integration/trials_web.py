"""A web port over a real server of trials, and a browser's side of its wire."""

import asyncio
import contextlib
from urllib.parse import unquote

import httpx
from google.protobuf.any_pb2 import Any
from tests.integration.hand_driven import hosting_by_hand
from tests.waiting import PATIENCE, tasks_left
from websockets.asyncio.client import connect

from arkml.trials.core.error import TrialError
from arkml.trials.server.web.port import WebPort
from arkml.trials.server.web.web_options import WebLimits, WebOptions
from arkml.trials.wire.actor_pb2 import ActorInitialOutput, ActorRunTrialInput, ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import (
    Action,
    ActorParams,
    CommunicationState,
    EnvironmentParams,
    Message,
    TrialParams,
    TrialState,
)
from arkml.trials.wire.environment_pb2 import EnvInitialOutput, EnvRunTrialOutput, ObservationSet
from arkml.trials.wire.lifecycle_pb2 import TrialListRequest, TrialStartRequest

NORMAL, LAST, LAST_ACK, END = (
    CommunicationState.NORMAL,
    CommunicationState.LAST,
    CommunicationState.LAST_ACK,
    CommunicationState.END,
)
ENDED, RUNNING = TrialState.ENDED, TrialState.RUNNING
TYPE = "application/grpc-web+proto"
LIFECYCLE = "/cogmentAPI.TrialLifecycleSP/"
RUN = "/cogmentAPI.ClientActorSP/RunTrial"


def parameters(*actors, environment="local://", **options):
    """Parameters of a trial with actors that join by themselves."""
    names = actors or ("web",)
    return TrialParams(
        environment=EnvironmentParams(endpoint=environment),
        actors=[
            ActorParams(name=name, actor_class="player", endpoint="cogment://client")
            for name in names
        ],
        **options,
    )


class CountingEnvironment:
    """An environment whose observations are the number of the tick, and which may send more."""

    def __init__(self, sender, flood=b"", messages=0):
        self._sender = sender
        self._flood = flood
        self._messages = messages
        self._tick = 0
        self._is_last = False

    def receive(self, message):
        if message.state == LAST:
            self._is_last = True
        elif message.WhichOneof("data") == "init_input":
            self._actors = [actor.name for actor in message.init_input.actors_in_trial]
            self._sender.send(EnvRunTrialOutput(state=NORMAL, init_output=EnvInitialOutput()))
            self._observe()
        elif message.WhichOneof("data") == "action_set":
            self._tick += 1
            self._observe()
            if self._is_last:
                self._sender.send(EnvRunTrialOutput(state=LAST_ACK))

    def lose(self, reason):
        self.lost = reason

    def _observe(self):
        observed = ObservationSet(
            tick_id=-1, observations=[b"%d" % self._tick], actors_map=[0] * len(self._actors)
        )
        self._sender.send(EnvRunTrialOutput(state=NORMAL, observation_set=observed))
        payload = Any(type_url="type.googleapis.com/none", value=self._flood)
        for _ in range(self._messages):
            message = Message(tick_id=-1, receiver_name=self._actors[0], payload=payload)
            self._sender.send(EnvRunTrialOutput(state=NORMAL, message=message))


class LocalParts:
    """The environments, and the hook, that are registered with the server."""

    def __init__(self, flood=b"", messages=0):
        self.flood = flood
        self.messages = messages
        self.hook_may_answer = asyncio.Event()
        self.hook_answers = lambda params: params

    def open_environment(self, _, __, sender):
        return CountingEnvironment(sender, self.flood, self.messages)

    def open_actor(self, *_):
        raise TrialError("there are no actors here")

    async def pre_trial(self, params, *_):
        await self.hook_may_answer.wait()
        return self.hook_answers(params)


class Browser:
    """One grpc-websocket, message by message."""

    def __init__(self, socket):
        self.socket = socket

    async def begin(self, trial_id, headers=None):
        """Send the headers."""
        pairs = {"trial-id": trial_id, "content-type": TYPE, "x-grpc-web": "1", **(headers or {})}
        text = "".join(f"{name}: {value}\r\n" for name, value in pairs.items())
        await self.socket.send(text.encode())

    async def join(self, trial_id, name="web", **headers):
        """Send what an actor sends first."""
        await self.begin(trial_id, {key.replace("_", "-"): one for key, one in headers.items()})
        slot = ActorInitialOutput(actor_name=name)
        await self.send(ActorRunTrialOutput(state=NORMAL, init_output=slot))

    async def send(self, message):
        await self.socket.send(b"\0" + framed(message.SerializeToString()))

    async def act(self, content=b"go"):
        await self.send(
            ActorRunTrialOutput(state=NORMAL, action=Action(tick_id=-1, content=content))
        )

    async def next(self):
        """The next message of the call, or its trailers as a dictionary. Skips the headers."""
        async with asyncio.timeout(PATIENCE):
            data = await self.socket.recv()
        assert len(data) == 5 + int.from_bytes(data[1:5], "big")
        if data[0] == 0:
            return ActorRunTrialInput.FromString(data[5:])
        values = header_values(data[5:])
        return await self.next() if "content-type" in values else values

    async def until(self, kind):
        """The next message with that data."""
        while (message := await self.next()).WhichOneof("data") != kind:
            pass
        return message

    async def ending(self):
        """The details of END, and the trailers; then the websocket is closed in order."""
        message = await self.next()
        while message.state != END:
            message = await self.next()
        trailers = await self.next()
        async with asyncio.timeout(PATIENCE):
            await self.socket.wait_closed()
        return message.details, trailers

    async def play(self, ticks):
        """Act in ticks, then acknowledge the end of the trial."""
        for _ in range(ticks):
            await self.until("observation")
            await self.act()


def framed(content, flag=0):
    return bytes([flag]) + len(content).to_bytes(4, "big") + content


def header_values(content):
    lines = content.decode("ascii").split("\r\n")
    return dict(line.split(": ", 1) for line in lines if line)


class Answer:
    """The frames of an answer: its messages, its status and its text."""

    def __init__(self, content):
        frames = []
        while content:
            size = 5 + int.from_bytes(content[1:5], "big")
            frames.append((content[0], content[5:size]))
            content = content[size:]
        *messages, (flag, trailers) = frames
        assert flag == 0x80
        assert all(kind == 0 for kind, _ in messages)
        values = header_values(trailers)
        self.messages = [message for _, message in messages]
        self.status = int(values["grpc-status"])
        self.text = unquote(values["grpc-message"])


class Web:
    """An open web port over a server, with clients of it."""

    def __init__(self, server, game, port, parts, http):
        self.server = server
        self.game = game
        self.port = port
        self.parts = parts
        self.http = http
        self.origin = port.endpoint()

    async def start(self, trial_id="trial", params=None):
        """Start a trial, past the port."""
        request = TrialStartRequest(trial_id_requested=trial_id, params=params or parameters())
        await self.server.trials.start(request)

    async def post(self, method, request, *, token="", **headers):
        """The whole response to a unary call."""
        content = request if isinstance(request, bytes) else framed(request.SerializeToString())
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.http.post(
            self.port.endpoint(token) + (method if method[0] == "/" else LIFECYCLE + method),
            content=content,
            headers={"content-type": TYPE, "x-grpc-web": "1", **names},
        )

    async def call(self, method, request, **options):
        """The answer to a unary call."""
        response = await self.post(method, request, **options)
        assert (response.status_code, response.headers["content-type"]) == (200, TYPE)
        return Answer(response.content)

    @contextlib.asynccontextmanager
    async def browser(self, token="", name="", method=RUN, **options):
        """A websocket as browsers open it, who may know the port by another name."""
        url = "ws" + self.port.endpoint(token).removeprefix("http") + method
        if name:
            url = url.replace("127.0.0.1", name)
            options |= {"host": "127.0.0.1", "port": self.port.port}
        options = {"subprotocols": ["grpc-websockets"], "compression": None} | options
        async with connect(url, proxy=None, close_timeout=1, **options) as socket:
            yield Browser(socket)

    async def connections(self, count):
        """Wait until there are `count` connections, and return their number."""
        async with asyncio.timeout(PATIENCE):
            while self.port.connections != count:
                await asyncio.sleep(0.001)
        return self.port.connections

    async def state(self, trial_id, state):
        """Wait until a trial is in a state."""
        async with asyncio.timeout(PATIENCE):
            async with contextlib.aclosing(self.server.trials.watch(TrialListRequest())) as entries:
                async for entry in entries:
                    if (entry.trial_id, entry.state) == (trial_id, state):
                        return


@contextlib.asynccontextmanager
async def serving(*, parts=None, trials=None, limits=None, **options):
    """
    A web port, closed at the end of the block, behind which nothing may be left.
    """
    parts = parts or LocalParts()
    before = asyncio.all_tasks()
    options = WebOptions(limits=WebLimits(**(limits or {})), **options)
    async with hosting_by_hand(params=parameters(), **(trials or {})) as game:
        server = game.server
        server.register(parts)
        port = WebPort(server, options)
        await port.open()
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as http:
                yield Web(server, game, port, parts, http)
        finally:
            await port.close()
    assert port.connections == 0
    assert await tasks_left(before) == set()
