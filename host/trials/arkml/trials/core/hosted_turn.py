"""Ticks of a hosted trial: players act in time, or stand-ins act for them (decision 19)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arkml.trials.core.actors import ActorPlace, Breach
from arkml.trials.core.hosting import MOST_AHEAD, Acted, ActionNote, Pacing, StandIn
from arkml.trials.core.mail import AUTO, PresentObservations
from arkml.trials.core.outputs import Outgoing
from arkml.trials.core.states import Move, Phase
from arkml.trials.wire.common_pb2 import Action, TrialState
from arkml.trials.wire.players_pb2 import Player, PlayerKind, View

LATE: Final = 1e-6
"""Seconds by which a timer of an event loop may fire early."""

MOST_ACTION: Final = 1 << 20
"""Maximum size of an action in bytes, as each is held in memory; guests need only some floats."""

_STAND_IN, _DEFAULT = ActionNote.STAND_IN, ActionNote.DEFAULT


class HostedPlayer:
    """
    The player of an actor, a client or a person, and its last action.

    Args:
        kind: Whether the player is a client or a person.
        user_id: Name of the user.
        now: The present time in seconds.

    Attributes:
        has_acted: Whether there is an action for the present tick.
        is_held: Whether the last action was repeated in the tick before.
        is_away: Whether the stand-in acts in place of the player.
        silent_since: Time of the oldest unanswered observation in seconds, None if all are
            answered.

    """

    __slots__ = (
        "_acted_at",
        "_content",
        "has_acted",
        "is_away",
        "is_held",
        "kind",
        "silent_since",
        "user_id",
    )

    def __init__(self, kind: PlayerKind, user_id: str, now: float) -> None:
        self.kind = kind
        self.user_id = user_id
        self.has_acted = self.is_held = self.is_away = False
        self._content: bytes | None = None
        self._acted_at = now
        self.silent_since: float | None = None

    def take(self, content: bytes, now: float) -> None:
        """Store the content of the player's newest action, which arrived at `now`, in seconds."""
        self._content, self._acted_at, self.silent_since = content, now, None

    def shown(self) -> Player:
        """Return the description of the player for spectators."""
        name, is_held, is_away = self.user_id, self.is_held, self.is_away
        return Player(kind=self.kind, name=name, is_held=is_held, is_away=is_away)

    def acted(self, now: float) -> Acted | None:
        """Return the player's action for a tick that ends at `now`, None if the stand-in acts."""
        has_acted, self.has_acted, self.is_held = self.has_acted, False, False
        if self._content is None or self.is_away:
            return None
        if has_acted:
            return Acted(self._content, ActionNote.GIVEN, self.user_id)
        self.is_held = True
        return Acted(self._content, ActionNote.HELD, self.user_id, now - self._acted_at)


class HostedTurn:
    """
    The ticks of a hosted trial, which end in time even if players do not act.

    Actors without a player cost next to no time.

    Args:
        actors: The actors of the trial.
        observations: The latest observations.
        outgoing: Collects the outputs of the trial.
        pacing: Timing of the ticks.
        user_id: Id of the user who started the trial.
        max_steps: Number of ticks after which the trial ends, 0 for no limit.

    Attributes:
        due: Time at which the tick ends or a player is late, in seconds; None if there is none.
        offered: The stand-in actions for the observations that come next, one for each actor.
        ended: Actors whose episodes end with these observations.
        is_shown: Whether there are spectators: each tick is shown then, and none is played ahead.

    """

    def __init__(
        self,
        actors: Sequence[ActorPlace],
        observations: PresentObservations,
        outgoing: Outgoing,
        pacing: Pacing,
        user_id: str,
        max_steps: int,
    ) -> None:
        self._actors = actors
        self._names = [actor.name for actor in actors]
        self._observations = observations
        self._outgoing = outgoing
        self._pacing = pacing
        self._user_id = user_id  # its clients act in the name of the user who started the trial
        self._max_steps = max_steps  # 0 for no limit
        self._players: dict[int, HostedPlayer] = {}
        self._stand_ins: Sequence[StandIn] = ()
        self._acted: Sequence[Acted] = ()
        self._made_of: Sequence[StandIn] = ()  # the stand-ins from which `_made` was built
        self._made: Sequence[Acted] = ()
        self._is_open = self._is_time = False
        self._paced_at = 0.0  # the time at which the last tick was due to end
        self._missing: dict[int, float] = {}  # deadlines of the awaited players
        self.due: float | None = None
        self.offered: Sequence[StandIn] = ()
        self.ended: Sequence[int] = ()
        self.is_shown = False

    @property
    def is_complete(self) -> bool:
        """True if the tick's time is up, or no player is awaited."""
        return self._is_open and (self._is_time if self._pacing.rate else not self._missing)

    def check(self) -> None:
        """Raise Breach unless the environment has offered a stand-in action for each actor."""
        if len(self.offered) != len(self._actors):
            offered, count = len(self.offered), len(self._actors)
            raise Breach(f"it offered {offered} stand-ins for {count} actors")

    def begin(self, now: float) -> None:
        """Send players their observations, and set the time at which the tick ends."""
        self._stand_ins, self.offered = self.offered, ()
        if not self._outgoing.tick:
            self._take_in_clients(now)
            self._paced_at = now
        self._is_open = True
        for index, player in self._players.items():
            self._observe(index, player, now)
        rate = self._pacing.rate
        if rate:
            self._paced_at = self.due = max(self._paced_at + 1 / rate, now) + self._rest()
            self._is_time = self.due <= now + LATE
        else:
            self.due = min(self._missing.values(), default=None)

    def take(self, actor: ActorPlace, action: Action, now: float) -> None:
        """
        Store a player's action; the latest one before the end of the tick counts.

        With a tick rate, the action counts in the tick that ends next; without one, in the tick
        that it names. A late action is held for the next tick.

        Args:
            actor: The actor that acts.
            action: The action.
            now: The present time in seconds.

        """
        outgoing, tick, index = self._outgoing, action.tick_id, actor.index
        player = self._players.get(index)
        is_begun = self._observations.has_begun
        if player is None or not (is_begun and AUTO <= tick <= outgoing.tick):
            if actor.phase is not Phase.LEAVING:
                outgoing.complain(
                    f"an action of {actor.name!r} for tick {tick} was ignored in tick"
                    f" {outgoing.tick}: there is no such tick yet"
                )
            return
        if len(action.content) > MOST_ACTION:
            raise Breach(f"its action has {len(action.content)} bytes, more than {MOST_ACTION}")
        player.take(action.content, now)
        if player.is_away:
            player.is_away = False
            self._note(index, player, "is back")
        if self._pacing.rate:
            player.has_acted = True
        elif self._is_open and tick in (AUTO, outgoing.tick):
            player.has_acted = True
            self._missing.pop(index, None)

    def late(self, now: float) -> list[tuple[ActorPlace, str]]:
        """
        Note that the tick's time is up or that players are late at `now`, in seconds.

        The list is empty: unlike in other trials, a late player is not lost.
        """
        if self._pacing.rate:
            self._is_time = self.due is not None and self.due <= now
        else:
            for index in [index for index, due in self._missing.items() if due <= now]:
                del self._missing[index]
            self.due = min(self._missing.values(), default=None)
        return []

    def take_over(self, actor: ActorPlace, user_id: str, now: float) -> None:
        """
        Make a person the player of an actor, and send the present observation to the person.

        Args:
            actor: The actor.
            user_id: Name of the person.
            now: The present time in seconds.

        """
        player = self._players[actor.index] = HostedPlayer(PlayerKind.PERSON, user_id, now)
        self._note(actor.index, player, "was taken over")
        if self._observations.has_begun:
            self._observe(actor.index, player, now)
            if not self._pacing.rate:
                self.due = min(self._missing.values(), default=None)

    def release(self, actor: ActorPlace, reason: str) -> None:
        """
        Let the stand-in act for an actor whose player was lost or has handed it back.

        `reason` is the end of a sentence for the log.
        """
        player = self._players.pop(actor.index, None)
        if player is None:
            self._outgoing.note(f"actor {actor.name!r} was lost: {reason}", name=actor.name)
            return
        what = "was handed back" if player.kind == PlayerKind.PERSON else "was lost"
        self._note(actor.index, player, what, f": {reason}")
        self._missing.pop(actor.index, None)

    def leave(self, now: float) -> None:
        """End the tick at `now`, in seconds: send the environment one action for each actor."""
        most_ahead = 0
        if self._players:
            acted: Sequence[Acted] = self._with_players(now)
        else:
            acted = self._by_stand_ins()
            if not (self._pacing.rate or self.is_shown):
                left = self._max_steps - self._outgoing.tick - 1 if self._max_steps else MOST_AHEAD
                most_ahead = max(0, min(MOST_AHEAD, left))
        self.finish()
        self._end(acted)
        self._outgoing.act(acted, most_ahead)

    def pass_over(self) -> None:
        """
        End a tick that the environment has played ahead, in which all actors' stand-ins acted.
        """
        self._stand_ins, self.offered = self.offered, ()
        self._end(self._by_stand_ins())

    def finish(self) -> None:
        """Stop waiting for the players' actions."""
        self._is_open = self._is_time = False
        self._missing.clear()
        self.due = None

    def is_away(self, index: int) -> bool:
        """Return whether an actor has a player who is away."""
        player = self._players.get(index)
        return player is not None and player.is_away

    def people(self) -> int:
        """Return the number of people who play."""
        return sum(player.kind == PlayerKind.PERSON for player in self._players.values())

    def view(self, rewards: Sequence[float], state: TrialState, reason: str) -> View:
        """
        Return the present tick for spectators.

        Args:
            rewards: The rewards of the tick before, in order of the actors.
            state: State of the trial.
            reason: Why the trial was cut off, or empty.

        """
        stand_ins = self.offered or self._stand_ins or [StandIn(b"")] * len(self._actors)
        players = [
            Player(kind=PlayerKind.STAND_IN, name=origin)
            if (player := self._players.get(index)) is None
            else player.shown()
            for index, (_, origin) in enumerate(stand_ins)
        ]
        return View(
            tick_id=self._outgoing.tick,
            observations=self._observations.latest(),
            players=players,
            rewards=rewards,
            actions=[one.content for one in self._acted],
            state=state,
            reason=reason,
        )

    def _by_stand_ins(self) -> Sequence[Acted]:
        """Return the stand-ins' actions, cached while the same ones are offered again."""
        if self._made_of is not self._stand_ins:
            self._made_of = self._stand_ins
            self._made = [
                Acted(content, _STAND_IN if origin else _DEFAULT, origin)
                for content, origin in self._stand_ins
            ]
        return self._made

    def _with_players(self, now: float) -> list[Acted]:
        """Return the actions of a tick, with players' actions in place of stand-ins'."""
        acted = [*self._by_stand_ins()]
        for index, player in self._players.items():
            silence = 0.0 if player.silent_since is None else now - player.silent_since
            if not (player.has_acted or player.is_away) and silence >= self._pacing.away:
                player.is_away = True
                self._note(index, player, "is away", f": no action for {silence:.1f} s")
            acted[index] = player.acted(now) or acted[index]
        return acted

    def _end(self, acted: Sequence[Acted]) -> None:
        self._acted = acted
        if self._outgoing.is_logged:
            self._outgoing.log_acted(self._names, acted)

    def _take_in_clients(self, now: float) -> None:
        """Make players of the actors that were called or joined before the first tick."""
        for actor in self._actors:
            if actor.is_present and actor.index not in self._players:
                player = HostedPlayer(PlayerKind.CLIENT, self._user_id, now)
                self._players[actor.index] = player

    def _observe(self, index: int, player: HostedPlayer, now: float) -> None:
        actor = self._actors[index]
        actor.take(Move.OBSERVE)
        self._outgoing.to_actor(index, self._observations.message_for(index))
        if player.silent_since is None:
            player.silent_since = now
        if self._is_open and not (self._pacing.rate or player.is_away):
            timeout = actor.params.response_timeout
            away_at = player.silent_since + self._pacing.away
            self._missing[index] = min(now + timeout, away_at) if timeout else away_at

    def _rest(self) -> float:
        """Return the seconds by which the tick is longer, as an episode of a person has ended."""
        players = (self._players.get(index) for index in self.ended)
        has_person = any(one is not None and one.kind == PlayerKind.PERSON for one in players)
        return self._pacing.rest if has_person else 0.0

    def _note(self, index: int, player: HostedPlayer, what: str, more: str = "") -> None:
        name = self._names[index]
        text = f"actor {name!r} of {player.user_id!r} {what}{more}"
        self._outgoing.note(text, name=name, origin=player.user_id)
