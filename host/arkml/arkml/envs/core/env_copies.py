"""Copying of an environment's guest in the middle of an episode."""

from __future__ import annotations

from arkml.envs.core.decisions import Step
from arkml.envs.core.env_instance import EnvInstance
from arkml.envs.core.history import MOST_HISTORY, History, RepeatedStep
from arkml.envs.core.instance_factory import InstanceFactory
from arkml.envs.core.world import SteadyPace
from arkml.errors import AbiError, StateRefused


def copied_instance(other: EnvInstance, factory: InstanceFactory) -> EnvInstance:
    """
    Return a copy of an instance, made by a copy of its factory.

    A guest that is suspended in a submit cannot be copied directly. The copy loads the original's
    newest state that was saved at the beginning of a frame, if there is one, and repeats the steps
    since; both then have a state that is a few steps old. Raises StateRefused if the guest does
    something else in the repetition.
    """
    name, history = other.guest.name, other.history
    if history is None or not history.is_whole:
        raise StateRefused(
            f"{name} was given more than {MOST_HISTORY:,} actions, or more bytes than are kept for"
            f" a copy, since its reset, and it has no state that can be saved: {other.obstacle()}"
        )
    made = factory.make_copied(history, other.calls.instance.number)
    log, kept = made.calls.services.log, made.history
    assert kept is not None
    log.is_muted = True
    try:
        _repeat(made, history, factory)
        _require_alike(made, other)
        made.experiments.give_as(other.experiments)
        made.calls.instance.failure = other.guest.failure  # with the panic that is not read again
    except AbiError as error:
        made.close()
        raise StateRefused(f"{name} cannot be copied: {error}") from error
    except BaseException:
        made.close()
        raise
    finally:
        log.is_muted = False
        made.world.pace = factory.pace
    kept.note_copy()
    history.follow(kept)
    return made


def _repeat(made: EnvInstance, history: History, factory: InstanceFactory) -> None:
    """
    Let an instance repeat the steps in a history, and save its state shortly before their end.
    """
    kept = made.history
    assert kept is not None
    kept.wait()
    made.world.pace = SteadyPace(kept.pace)
    waiting = factory.script.messages.waiting
    answers = made.calls.fiber.game_answers
    if answers is not None and history.answers is not None:
        answers.repeat(history.answers.kept)
    if history.state is not None:
        made.load(history.state)
    runs = list(history.runs())
    wished = len(runs) - history.least_steps
    for place, run in enumerate(runs):
        waiting.extend(run.messages)
        if place and place == wished:
            kept.wish()
        if run.actions is None:
            made.pass_on(made.run() if history.state is None else made.run_on())
        elif not _answered(made, run, kept, factory):
            break
    if answers is not None:
        answers.end_repeat()


def _answered(
    made: EnvInstance, run: RepeatedStep, kept: History, factory: InstanceFactory
) -> Step | None:
    """Repeat one step; return None where the instance waits for no such actions."""
    pending, actions = made.pending, run.actions
    assert actions is not None
    if pending is None or pending.batch.actions.shape != actions.shape:
        return None
    if run.first_agent is not None:
        factory.numbers.begin(run.first_agent)
        kept.number(run.first_agent)
    if run.pace is not None:
        made.world.pace = SteadyPace(run.pace)
    made.answer_rows(actions)
    return made.pass_on(made.run())


def _require_alike(one: EnvInstance, other: EnvInstance) -> None:
    """Raise StateRefused unless two instances wait in the same submit, or both in none."""
    ours, theirs = (
        None if each.pending is None else each.pending.decision for each in (one, other)
    )
    if ours is None or theirs is None:
        is_alike = ours is theirs
    else:
        is_alike = all(
            getattr(ours, name).tobytes() == getattr(theirs, name).tobytes() for name in _COMPARED
        )
    failures = one.guest.failure, other.guest.failure
    if not is_alike or type(failures[0]) is not type(failures[1]):
        raise StateRefused(
            f"{one.guest.name} did not do the same again for the same seed and actions: it depends"
            " on something else, such as files or another host"
        )


_COMPARED = ("agents", "observations", "rewards", "started", "terminated", "truncated")
