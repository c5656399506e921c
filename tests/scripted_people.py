"""Scripted people who play sparse reach in a hosted trial, and what they did."""

import numpy as np

from arkml.trials.streams import Receiver
from arkml.trials.wire.actor_pb2 import ActorInitialOutput, ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import Action as SentAction
from arkml.trials.wire.common_pb2 import CommunicationState
from arkml.trials.wire.guest_pb2 import RUNS_ON, Action, Observation

NORMAL, LAST, LAST_ACK = (
    CommunicationState.NORMAL,
    CommunicationState.LAST,
    CommunicationState.LAST_ACK,
)


def steer(values):
    """Thrust to the target of a reach, slower near it."""
    seen = np.float32(values)
    return np.clip(5 * seen[:2] - 2.5 * seen[2:], -1, 1)


class Player:
    """
    The side of a person, who answers observations until `episodes` have ended.

    `acted` are the features and actions of the ticks that were answered, `ended` the episodes that
    ended.
    """

    def __init__(self, episodes=1_000_000):
        self.acted = []
        self.ended = 0
        self._episodes = episodes

    @property
    def is_done(self):
        """True if all episodes were played."""
        return self.ended >= self._episodes

    def action(self, content):
        """The action that answers an observation, None if there is none to be taken."""
        observed = Observation.FromString(content)
        self.ended += (observed.end != RUNS_ON) + (observed.final_end != RUNS_ON)
        if self.is_done or not observed.present or observed.end != RUNS_ON:
            return Action()
        action = steer(observed.values)
        self.acted.append((list(observed.values), action.tolist()))
        return Action(continuous=action)


class TakenOver:
    """
    A Player who has taken over an actor of a running trial: it implements Sender.

    After `ticks` in which the agent acted, the actor is handed back.
    """

    def __init__(self, player, ticks):
        self.is_handed_back = False
        self._player = player
        self._ticks = ticks
        self._receiver: Receiver[ActorRunTrialOutput] | None = None
        self._early = []

    async def take_over(self, players, trial_id, actor, user_id):
        """Take an actor over, and answer from its present observation on."""
        slot = ActorInitialOutput(actor_name=actor)
        self._receiver = await players.take_over(trial_id, slot, user_id, self)
        early, self._early = self._early, []
        for message in early:
            self.send(message)

    def send(self, message):
        """Answer a message of the trial."""
        if self._receiver is None:
            self._early.append(message)
        elif message.state == LAST:
            self._receiver.receive(ActorRunTrialOutput(state=LAST_ACK))
        elif self.is_handed_back:
            return
        elif message.WhichOneof("data") == "observation" and len(self._player.acted) < self._ticks:
            seen = message.observation
            action = SentAction(tick_id=seen.tick_id)
            action.content = self._player.action(seen.content).SerializeToString()
            self._receiver.receive(ActorRunTrialOutput(state=NORMAL, action=action))
        elif message.WhichOneof("data") == "observation":
            self.is_handed_back = True
            self._receiver.lose("handed back")

    def close(self):
        """Do nothing: the trial has ended."""
