"""The interface between the manager of actors and the runners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from arkml.async_trainer.messages import PushedItemMessage
from arkml.async_trainer.trainer_errors import SendMsgForPush

OnFull = Literal["wait", "raise"]

CHANNEL = 1_000
"""Capacity of the channel to the trainer, in messages."""


@dataclass(frozen=True, slots=True)
class ActorJob:
    """
    One incarnation of an actor: picklable classes and configurations of its parts.

    `n_buffer` is the number of items in a message. At a full channel the actor waits, or ends with
    SendMsgForPush if `on_full` is "raise".
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
    """The number of an actor's environment steps, and the seconds that they took."""

    env_steps: int
    duration: float


@dataclass(frozen=True, slots=True)
class ActorEnded:
    """
    The end of an incarnation of an actor, reported after its last message.

    `reason` is a sentence, empty if the actor was asked to stop. `is_channel_full` is true if the
    reason is SendMsgForPush.
    """

    actor: int
    incarnation: int
    stat: ActorStat
    reason: str = ""
    is_channel_full: bool = False


@dataclass(slots=True)
class Waits:
    """Number and total seconds of actors' waits at a full channel."""

    count: int = 0
    seconds: float = 0.0


class ActorLink(Protocol):
    """The interface of an actor's loop to the manager of actors."""

    @property
    def is_stopped(self) -> bool:
        """True once the actor should stop."""

    def first_model(self) -> tuple[int, Any] | None:
        """Wait for the first model; return it with its optimization steps, or None if stopped."""

    def newest_model(self, newer_than: int) -> tuple[int, Any] | None:
        """Return the newest model if it has more optimization steps, else None. Never waits."""

    def may_step(self, made: int) -> bool:
        """
        Wait until more than `made` items are admitted; return False if stopped.

        Without any call of `admit` for an actor, it is not limited.
        """

    def send(self, message: PushedItemMessage) -> None:
        """
        Send a message.

        At a full channel this waits until there is room or the actor is stopped, or raises
        SendMsgForPush if the job says so. The last message of a stopped actor is sent if there is
        room.
        """


class Runner(Protocol):
    """A place where actors run, such as threads or a Ray cluster. Belongs to one thread."""

    @property
    def waits(self) -> Waits:
        """Number and total seconds of actors' waits at a full channel."""

    def start(self, job: ActorJob) -> None:
        """Start an incarnation of an actor. Raises UsageError if pickle cannot encode the job."""

    def publish(self, n_opts: int, model_info: Any) -> None:
        """Send a model to all actors, including later ones; older models are dropped."""

    def admit(self, actor: int, items: int) -> None:
        """
        Allow the present incarnation of an actor to make `items` items in total.

        For a new incarnation this is called before `start`, which keeps the number.
        """

    def receive(self, seconds: float) -> list[PushedItemMessage | ActorEnded]:
        """Return messages and ends of actors, waiting for at most `seconds` if there are none."""

    def stop(self) -> None:
        """Ask all actors to stop. Their last messages and their ends can still be received."""

    def close(self, seconds: float) -> None:
        """End all actors, by force after `seconds`, and release resources. Idempotent."""


def channel_full(message: PushedItemMessage) -> SendMsgForPush:
    """Return the error for a message that the channel has no room for."""
    return SendMsgForPush(
        f"the channel to the trainer is full: {CHANNEL} messages wait there, and a message of"
        f" {len(message.pushed_items)} items of actor {message.id} was not sent"
    )
