"""The interface between the manager of actors and the places where they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from arkml.async_trainer.error import SendMsgForPush
from arkml.async_trainer.messages import PushedItemMessage

OnFull = Literal["wait", "raise"]

CHANNEL = 1_000
"""Messages that are on their way to the trainer at most, before actors meet a full channel."""


@dataclass(frozen=True, slots=True)
class ActorJob:
    """
    One incarnation of an actor: the classes and configurations of its parts, which pickle can take.

    `n_buffer` items make a message. With `on_full` "raise" a full channel ends the actor with
    SendMsgForPush, otherwise it waits.
    """

    actor: int
    incarnation: int
    seed: int
    n_buffer: int
    on_full: OnFull
    agent: type[Any]
    agent_config: Any
    env: type[Any]
    env_config: Any
    step_processor: type[Any]
    step_processor_config: Any


@dataclass(frozen=True, slots=True)
class ActorStat:
    """Environment steps of an actor, and the seconds that it took for them."""

    env_steps: int
    duration: float


@dataclass(frozen=True, slots=True)
class ActorEnded:
    """
    The end of an incarnation of an actor; all of its messages that arrive have been received.

    `reason` is a sentence, empty if the actor was asked to stop. `is_channel_full` is true where
    it is SendMsgForPush.
    """

    actor: int
    incarnation: int
    stat: ActorStat
    reason: str = ""
    is_channel_full: bool = False


@dataclass(slots=True)
class Waits:
    """Times that actors met a full channel and waited, and the seconds of it."""

    count: int = 0
    seconds: float = 0.0


class ActorLink(Protocol):
    """The manager as the loop of an actor sees it, wherever it runs."""

    @property
    def is_stopped(self) -> bool:
        """True once the actor is to stop."""

    def first_model(self) -> tuple[int, Any] | None:
        """Wait for the first model and return it with its optimization steps; None if stopped."""

    def newest_model(self, newer_than: int) -> tuple[int, Any] | None:
        """Return the newest model if it has more optimization steps. Never waits."""

    def may_step(self, made: int) -> bool:
        """
        Wait while an actor that has made `made` items has no more admitted; False if stopped.

        An actor for which nothing was ever admitted is not held.
        """

    def send(self, message: PushedItemMessage) -> None:
        """
        Send a message.

        A full channel is waited for, until the actor is stopped, or raises SendMsgForPush if the
        job says so. The last message of an actor that is stopped is sent, if there is room.
        """


class Runner(Protocol):
    """A place where actors run: threads, processes or a Ray cluster. One thread calls it."""

    @property
    def waits(self) -> Waits:
        """Times that actors met a full channel and waited, and the seconds of it."""

    def start(self, job: ActorJob) -> None:
        """Start an incarnation of an actor. Raises UsageError if pickle cannot take the job."""

    def publish(self, n_opts: int, model_info: Any) -> None:
        """Give a model to all actors, also to those that start later; older ones are dropped."""

    def admit(self, actor: int, items: int) -> None:
        """
        Allow an actor to make `items` items in all, its earlier incarnations not counted.

        The manager admits the first items of an incarnation before its `start`, which does not
        change what is admitted.
        """

    def receive(self, seconds: float) -> list[PushedItemMessage | ActorEnded]:
        """Return what has arrived; wait for at most `seconds` if there is nothing."""

    def stop(self) -> None:
        """Ask all actors to stop. Their last messages and their ends are received as before."""

    def close(self, seconds: float) -> None:
        """End what still runs after `seconds` by force, and free everything. Safe to repeat."""


def channel_full(message: PushedItemMessage) -> SendMsgForPush:
    """Return the error of a message for which the channel has no room."""
    return SendMsgForPush(
        f"the channel to the trainer is full: {CHANNEL} messages wait there, and a message of"
        f" {len(message.pushed_items)} items of actor {message.id} was not sent"
    )
