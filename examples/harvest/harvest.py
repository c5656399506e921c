"""Pickers gather apples on a field: an environment, two kinds of actors, and one trial of them."""

from __future__ import annotations

import argparse
import asyncio
import random

import cog_settings
from harvest_pb2 import DOWN, LEFT, RIGHT, STAY, UP, Field, Move, Picked, Position, View

from arkml.trials import (
    ActorParameters,
    ActorSession,
    Context,
    EnvironmentSession,
    EventType,
    Server,
    TrialParameters,
)

SIZE = 8
STEPS = {STAY: (0, 0), LEFT: (-1, 0), RIGHT: (1, 0), UP: (0, -1), DOWN: (0, 1)}

Place = tuple[int, int]


async def field(session: EnvironmentSession) -> None:
    """Be the environment: who steps on an apple has it, and the last apple ends the trial."""
    config = session.config or Field(apples=10, ticks=100)
    chance = random.Random(config.seed)
    places = [(x, y) for x in range(SIZE) for y in range(SIZE)]
    apples = set(chance.sample(places, config.apples))
    pickers = session.get_active_actors()
    at = [chance.choice(places) for _ in pickers]

    def views() -> list[tuple[str, View]]:
        return [
            (picker.actor_name, view(at[number], at[:number] + at[number + 1 :], apples))
            for number, picker in enumerate(pickers)
        ]

    session.start(views())
    async for event in session.all_events():
        if not event.actions:
            continue
        for action in event.actions:
            number = action.actor_index
            if action.action is not None:
                at[number] = moved(at[number], action.action.direction)
            if at[number] in apples:
                apples.discard(at[number])
                name = pickers[number].actor_name
                session.add_reward(value=1.0, confidence=1.0, to=[name])
                session.send_message(Picked(by=name, left=len(apples)), to=["*"])
        if apples and session.get_tick_id() + 1 < config.ticks:
            session.produce_observations(views())
        else:
            session.end(views())


async def greedy(session: ActorSession) -> None:
    """Pick the nearest apple; print what happens."""
    session.start()
    total = 0.0
    async for event in session.all_events():
        total += sum(reward.value for reward in event.rewards)
        if event.observation and event.type == EventType.ACTIVE:
            session.do_action(Move(direction=toward(event.observation.observation)))
        for message in event.messages:
            if message.payload.by == session.name:
                print(f"{session.name} picked an apple, {message.payload.left} are left")
    print(f"{session.name} ends with {total:g}")


async def idle(session: ActorSession) -> None:
    """Do nothing, in every tick."""
    session.start()
    async for event in session.all_events():
        if event.observation and event.type == EventType.ACTIVE:
            session.do_action(None)


def moved(place: Place, direction: int) -> Place:
    """Return the place after a step, inside the field."""
    x, y = (a + b for a, b in zip(place, STEPS.get(direction, (0, 0)), strict=True))
    return min(max(x, 0), SIZE - 1), min(max(y, 0), SIZE - 1)


def toward(seen: View) -> int:
    """Return the direction of the nearest apple."""
    x, y = seen.me.x, seen.me.y
    if not seen.apples:
        return STAY
    apple = min(seen.apples, key=lambda one: abs(one.x - x) + abs(one.y - y))
    if apple.x != x:
        return RIGHT if apple.x > x else LEFT
    return DOWN if apple.y > y else UP if apple.y < y else STAY


def view(me: Place, others: list[Place], apples: set[Place]) -> View:
    """Return what a picker sees."""

    def position(place: Place) -> Position:
        return Position(x=place[0], y=place[1])

    return View(
        me=position(me),
        others=[position(other) for other in others],
        apples=[position(apple) for apple in sorted(apples)],
    )


def parameters(endpoint: str, apples: int, seed: int) -> TrialParameters:
    """Return the parameters of a trial whose parts are all at one endpoint."""

    def picker(name: str, implementation: str) -> ActorParameters:
        return ActorParameters(
            cog_settings, "picker", name=name, endpoint=endpoint, implementation=implementation
        )

    return TrialParameters(
        cog_settings,
        environment_endpoint=endpoint,
        environment_implementation="field",
        environment_config=Field(apples=apples, ticks=100, seed=seed),
        actors=[picker("ada", "greedy"), picker("grace", "greedy"), picker("lazy", "idle")],
    )


async def main(apples: int, seed: int) -> None:
    """Play one trial in this process, without a socket."""
    async with Server() as server, Context("harvest", cog_settings) as context:
        context.register_environment(field, "field")
        context.register_actor(greedy, "greedy", ["picker"])
        context.register_actor(idle, "idle")
        await context.serve_all_registered(server)
        controller = context.get_controller(server)
        trial = await controller.start_trial(trial_params=parameters("local://", apples, seed))
        async for info in controller.watch_trials():
            if info.trial_id == trial:
                print(f"trial {info.state.name}")
                if info.state.name == "ENDED":
                    break


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--apples", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    asyncio.run(main(options.apples, options.seed))
