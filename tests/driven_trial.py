"""One trial of tests that is driven by hand, and the words for what it sends."""

from arkml.trials.core.hosting import HOSTED, STAND_IN, HostedRewards, HostedTick, StandIn
from arkml.trials.core.outputs import (
    Changed,
    EndActor,
    EndEnvironment,
    Entries,
    Entry,
    GiveActions,
    Notice,
    Show,
    ToActor,
    ToEnvironment,
)
from arkml.trials.core.parameters import LOCAL, checked
from arkml.trials.core.states import Phase
from arkml.trials.core.trial import Trial
from arkml.trials.wire.actor_pb2 import ActorInitialOutput, ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import (
    Action,
    ActorParams,
    CommunicationState,
    EnvironmentParams,
    Message,
    Reward,
    RewardSource,
    SerializedMessage,
    TrialParams,
    TrialState,
)
from arkml.trials.wire.environment_pb2 import (
    EnvInitialOutput,
    EnvRunTrialOutput,
    ObservationSet,
)

NORMAL, HEARTBEAT = CommunicationState.NORMAL, CommunicationState.HEARTBEAT
LAST, LAST_ACK, END = (
    CommunicationState.LAST,
    CommunicationState.LAST_ACK,
    CommunicationState.END,
)


def actor(name="a0", actor_class="player", endpoint="cogment://client", **fields):
    """Parameters of an actor; `default_action` is bytes."""
    default = fields.pop("default_action", None)
    params = ActorParams(name=name, actor_class=actor_class, endpoint=endpoint, **fields)
    if default is not None:
        params.default_action.CopyFrom(SerializedMessage(content=default))
    return params


def trial_params(actors=2, endpoint="grpc://127.0.0.1:9", **fields):
    """Parameters of a trial with `actors`, a number or a list of parameters."""
    if isinstance(actors, int):
        actors = [actor(f"a{index}") for index in range(actors)]
    environment = fields.pop("environment", EnvironmentParams(endpoint=endpoint))
    return TrialParams(environment=environment, actors=actors, **fields)


def hosted_params(actors=2, **fields):
    """Parameters of a hosted trial; a number of actors are left to stand-ins."""
    if isinstance(actors, int):
        actors = [standing_by(f"a{index}") for index in range(actors)]
    environment = EnvironmentParams(endpoint=f"{LOCAL}://", implementation=HOSTED)
    return trial_params(actors, environment=environment, **fields)


def standing_by(name="a0", **fields):
    """Parameters of an actor that is left to its stand-in."""
    return actor(name, endpoint=f"{LOCAL}://", implementation=STAND_IN, **fields)


def slot(name=None, *, actor_class=None):
    if actor_class is not None:
        return ActorInitialOutput(actor_class=actor_class)
    return ActorInitialOutput(actor_name=name)


def joining(name=None, *, actor_class=None):
    """The first message of an actor that joins."""
    return ActorRunTrialOutput(state=NORMAL, init_output=slot(name, actor_class=actor_class))


def ready():
    """The first message of an environment."""
    return EnvRunTrialOutput(state=NORMAL, init_output=EnvInitialOutput())


def observations(actors=2, tick=-1, content=b"o", **fields):
    """One observation, which all actors share."""
    observed = ObservationSet(
        tick_id=tick, observations=[content], actors_map=[0] * actors, **fields
    )
    return EnvRunTrialOutput(state=NORMAL, observation_set=observed)


def action(content=b"x", tick=-1):
    return ActorRunTrialOutput(state=NORMAL, action=Action(tick_id=tick, content=content))


def reward_for(receiver, *sources, tick=-1):
    """A reward whose sources are pairs of a value and a confidence."""
    return Reward(
        tick_id=tick,
        receiver_name=receiver,
        sources=[RewardSource(value=value, confidence=confidence) for value, confidence in sources],
    )


def message_for(receiver, tick=-1, sender=""):
    made = Message(tick_id=tick, receiver_name=receiver, sender_name=sender)
    made.payload.Pack(SerializedMessage(content=b"hello"))
    return made


def text_of(content):
    """Return content as text; bytes that are no text, as mutated messages have, are escaped."""
    return content.decode(errors="backslashreplace")


def word(message):
    """Return what a message says, in one line; NORMAL is left out."""
    kind = message.WhichOneof("data")
    state = CommunicationState.Name(message.state)
    if kind in (None, "details"):
        return f"{state} {message.details}".strip()
    data = getattr(message, kind)
    match kind:
        case "init_input":
            text = f"init {getattr(data, 'actor_name', '') or data.name}"
        case "observation":
            text = f"observation {data.tick_id} {text_of(data.content)}"
        case "reward":
            text = f"reward {data.tick_id} {data.value:g}"
        case "message":
            text = f"message {data.tick_id} {data.sender_name} > {data.receiver_name}"
        case "action_set":
            text = f"actions {data.tick_id} " + "|".join(map(text_of, data.actions))
            if data.unavailable_actors:
                text += f" without {','.join(map(str, data.unavailable_actors))}"
    return text if message.state == NORMAL else f"{state} {text}"


class DrivenTrial:
    """
    A trial with all of its outputs so far. `now` is its clock, in seconds.

    What goes to the environment and to each actor are lines of `word`, in order; an ended stream
    has `"ended"` as the last of them. With `pacing` it is hosted, and each stand-in acts "s" of
    policy version "v".
    """

    def __init__(self, params=None, *, is_logged=False, is_begun=True, pacing=None):
        self.now = 1_000.0
        self.trial = Trial("t", "u", is_logged=is_logged, wall=lambda: int(self.now * 1e9))
        self.states = [TrialState.INITIALIZING]
        self.to_environment = []
        self.to_actors = {}
        self.sent = {}  # the messages themselves, of each actor and None, the environment
        self.notices = []
        self.entries = []
        self.outputs = []
        self.views = []
        self.acted = []  # of each tick: its time and its actions
        self.most_ahead = []  # for the same ticks, the number that may be played ahead
        self.pacing = pacing
        if is_begun:
            self.begin(trial_params() if params is None else params)

    @property
    def names(self):
        """Names of the states so far."""
        return [TrialState.Name(state) for state in self.states]

    @property
    def is_over(self):
        return self.trial.is_over

    def begin(self, params):
        self.trial.begin(checked(params), self.now, self.pacing)
        return self.collect()

    def start(self, *, tick_zero=True):
        """Join with all actors that may, accept for those called and for the environment."""
        for one in self.trial.actors:
            if one.joins:
                self.join(one.name)
            elif one.is_awaited:
                self.actor(one.index, joining())
        self.environment(ready())
        if tick_zero:
            self.observe()
        return self

    def all_arrive(self):
        """Let everyone who is awaited join or accept, and the environment, if it was called."""
        for one in self.trial.actors:
            if one.phase is Phase.ABSENT and one.joins and not self.trial.is_over:
                self.join(one.name)
            elif one.phase is Phase.CALLED:
                self.actor(one.index, joining())
        if self.trial.environment.phase is Phase.CALLED:
            self.environment(ready())

    def join(self, name=None, *, actor_class=None):
        index = self.trial.slot(slot(name, actor_class=actor_class))
        self.trial.join(index, self.now)
        self.collect()
        return index

    def take_over(self, name=None, user="ann", *, actor_class=None):
        index = self.trial.slot_to_take_over(slot(name, actor_class=actor_class))
        if self.trial.actors[index].is_present:
            self.lose_actor(index, f"{user!r} took it over")
        self.trial.take_over(index, user, self.now)
        self.collect()
        return index

    def actor(self, index, message):
        self.trial.from_actor(index, message, self.now)
        return self.collect()

    def environment(self, message):
        self.trial.from_environment(message, self.now)
        return self.collect()

    def observe(self, tick=-1, content=b"o", *, rewards=(), stand_ins=None, ended=()):
        count = len(self.trial.actors)
        message = observations(count, tick, content)
        if self.trial.hosted is None:
            return self.environment(message)
        offered = [StandIn(b"s", "v")] * count if stand_ins is None else stand_ins
        self.trial.take_tick(HostedTick(rewards, message.observation_set, offered, ended), self.now)
        return self.collect()

    def play_ahead(self, ticks):
        """Ticks that a hosted environment plays by stand-ins, each with a reward of 1 before."""
        source = RewardSource(sender_name="env", value=1, confidence=1).SerializeToString()
        count = len(self.trial.actors)
        for _ in range(ticks):
            rewards = HostedRewards(range(count), [1.0] * count, [source] * count)
            observed = observations(count).observation_set
            played = HostedTick([rewards], observed, [StandIn(b"s", "v")] * count)
            self.trial.take_tick(played, self.now, is_ahead=True)

    def act(self, *indices, content=b"x", tick=-1):
        for index in indices or range(len(self.trial.actors)):
            self.actor(index, action(content, tick))

    def play(self, ticks):
        """GiveActions and observe."""
        for _ in range(ticks):
            self.act()
            self.observe()

    def announce_end(self):
        """End by the environment: LAST, the last observations, LAST_ACK."""
        self.environment(EnvRunTrialOutput(state=LAST))
        self.observe()
        self.environment(EnvRunTrialOutput(state=LAST_ACK))

    def acknowledge(self, *indices):
        for index in indices or range(len(self.trial.actors)):
            self.actor(index, ActorRunTrialOutput(state=LAST_ACK))

    def terminate(self):
        self.trial.terminate(self.now)
        return self.collect()

    def cut(self, reason="enough"):
        self.trial.cut(reason)
        return self.collect()

    def lose_actor(self, index, reason="it vanished"):
        self.trial.lose_actor(index, reason, self.now)
        return self.collect()

    def lose_environment(self, reason="it vanished"):
        self.trial.lose_environment(reason)
        return self.collect()

    def wait(self, seconds):
        """Let time pass, and elapse at each deadline on the way."""
        until = self.now + seconds
        while (deadline := self.trial.deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.trial.elapse(self.now)
            self.collect()
        self.now = until

    def collect(self):
        """Take what the trial wants done, and return it."""
        taken = self.trial.take()
        for output in taken:
            match output:
                case ToEnvironment(message):
                    self.to_environment.append(word(message))
                    self.sent.setdefault(None, []).append(message)
                case ToActor(index, message):
                    self.to_actors.setdefault(index, []).append(word(message))
                    self.sent.setdefault(index, []).append(message)
                case EndEnvironment():
                    self.to_environment.append("ended")
                case EndActor(index):
                    self.to_actors[index].append("ended")
                case Changed(state):
                    self.states.append(state)
                case Notice(text, _):
                    self.notices.append(text)
                case GiveActions(tick, acted, most_ahead):
                    self.most_ahead.append(most_ahead)
                    words = "|".join(f"{one.note} {text_of(one.content)}" for one in acted)
                    self.to_environment.append(f"acted {tick} {words}")
                    self.acted.append((self.now, acted))
                case Show(view):
                    self.views.append(view)
                case Entry():
                    self.entries.append(output)
                case Entries():
                    self.entries += output.rows()
        self.outputs += taken
        return taken
