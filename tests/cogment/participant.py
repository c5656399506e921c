"""
A participant of trials, in words that the published Python SDK and ours both have.

    participant.py PACKAGE FOLDER serve|play JSON

`serve` has an environment, actors and perhaps a hook, and prints its port, and then what its
sessions saw. `play` starts a trial, watches it, joins it, and prints one object.
"""

import asyncio
import importlib
import json
import logging
import sys

package, folder, command, given = sys.argv[1:]
given = json.loads(given)
sys.path.insert(0, folder)
logging.basicConfig(level=logging.WARNING)
cogment = importlib.import_module(package)
cog_settings = importlib.import_module("cog_settings")
tally = importlib.import_module("tally_pb2")

ACTIVE, ENDING = cogment.EventType.ACTIVE, cogment.EventType.ENDING


def tell(**values):
    print(json.dumps(values), flush=True)


def note_in(payload):
    """The published SDK leaves payloads as they came."""
    if not hasattr(payload, "Unpack"):
        return payload.text
    note = tally.Note()
    assert payload.Unpack(note)
    return note.text


async def environment(session):
    """Add up the actions; reward and send as the test expects it."""
    seen = {"types": [], "actions": [], "messages": []}
    ticks = session.config.ticks if session.config else 3
    total = 0

    def observations(tick):
        return [("*", tally.Observation(tick=tick, total=total))]

    session.start(observations(0))
    async for event in session.all_events():
        seen["types"].append(event.type.name)
        seen["messages"] += [(each.sender_name, note_in(each.payload)) for each in event.messages]
        if not event.actions:
            continue
        seen["actions"].append([(each.actor_index, each.action.value) for each in event.actions])
        total += sum(each.action.value for each in event.actions)
        tick = session.get_tick_id()
        if tick == 0:
            session.add_reward(1.0, 1.0, ["*"])
            session.send_message(tally.Note(text="to all"), ["*"])
        if tick == 1:
            session.add_reward(2.0, 1.0, ["player.*"])
        if tick == 2:
            session.add_reward(7.0, 1.0, ["ada"], tick_id=0)  # too late
        if event.type == ACTIVE and tick + 1 >= ticks:
            session.end(observations(tick + 1))
        else:
            session.produce_observations(observations(tick + 1))
    actors = [(each.actor_name, each.actor_class_name) for each in session.get_active_actors()]
    tell(environment=session.get_trial_id(), name=session.name, actors=actors, **seen)


async def actor(session, on_tick=lambda _: None):
    """Act in every tick; send and reward in the first one. Returns what it saw."""
    seen = {"observations": [], "rewards": [], "messages": [], "types": []}
    session.start()
    async for event in session.all_events():
        seen["types"].append(event.type.name)
        for reward in event.rewards:
            sources = sorted((each.sender_name, each.value) for each in reward.all_sources())
            seen["rewards"].append((reward.tick_id, reward.value, sources))
        seen["messages"] += [(each.sender_name, note_in(each.payload)) for each in event.messages]
        if not event.observation:
            continue
        observed = event.observation
        tick = observed.tick_id
        seen["observations"].append((tick, observed.observation.tick, observed.observation.total))
        if event.type != ACTIVE:
            continue
        if tick == 0 and session.name == "ada":
            session.send_message(tally.Note(text="to the world"), [session.env_name])
            session.send_message(tally.Note(text="to watchers"), ["watcher.*"])
            session.add_reward(0.5, 1.0, ["bob"])
        session.do_action(tally.Action(value=len(session.name)))
        on_tick(tick)
    return seen


async def service(session):
    seen = await actor(session)
    tell(actor=session.get_trial_id(), name=session.name, **seen)


async def hook(session):
    """Change the number of ticks as the test says."""
    parameters = session.trial_parameters
    config = parameters.environment_config or tally.Config()
    asked = parameters.config.ticks if parameters.config else 0
    names = {"ticks": config.ticks or asked, "asked": asked}
    config.ticks = eval(given["hook"], {}, names)
    parameters.environment_config = config
    tell(hook=config.ticks)


async def datalog(session):
    """Read all samples of a trial, and print what they have of the first actor."""
    session.start()
    ticks, late = [], []
    async for sample in session.all_samples():
        if sample.out_of_sync:
            late += [(sample.tick_id, each.value) for each in sample.all_rewards()]
            continue
        action, observation = sample.get_action(0), sample.get_observation(0)
        ticks.append({
            "tick": sample.tick_id,
            "state": sample.state.name,
            "action": action.action.value if action.tick_id >= 0 else None,
            "observation": observation and observation.observation.tick,
            "rewards": [(each.receiver_name, each.value) for each in sample.all_rewards()],
            "messages": [(each.sender_name, each.receiver_name) for each in sample.all_messages()],
        })  # fmt: skip
    actors = len(session.trial_parameters.actors)
    tell(datalog=session.trial_id, user=session.user_id, actors=actors,
         samples=ticks, late=late)  # fmt: skip


async def serve():
    context = cogment.Context("server", cog_settings)
    context.register_environment(environment, "tally")
    context.register_actor(service, "service", ["player", "watcher"])
    if given.get("hook"):
        context.register_pre_trial_hook(hook)
    if given.get("datalog"):
        context.register_datalog(datalog)
    serving = asyncio.create_task(context.serve_all_registered(cogment.ServedEndpoint(port=0)))
    while not context.served_port and not serving.done():
        await asyncio.sleep(0.01)
    tell(port=context.served_port)
    await serving


def parameters():
    """The parameters of a trial that does without hooks."""
    return cogment.TrialParameters(
        cog_settings,
        environment_name="world",
        environment_endpoint=given["environment"],
        environment_implementation="tally",
        environment_config=tally.Config(ticks=given["ticks"]),
        nb_buffered_ticks=2,
        datalog_endpoint=given.get("datalog"),
        actors=[
            cogment.ActorParameters(cog_settings, each["class"], name=each["name"],
                                    endpoint=each["endpoint"],
                                    implementation=each.get("implementation"))
            for each in given["actors"]
        ],
    )  # fmt: skip


class States:
    """The states of all trials, watched from before they begin."""

    def __init__(self, controller):
        self.seen = {}
        self.changed = asyncio.Condition()
        self.watching = asyncio.create_task(self.watch(controller))

    async def watch(self, controller):
        async for info in controller.watch_trials():
            async with self.changed:
                self.seen.setdefault(info.trial_id, []).append(info.state.name)
                self.changed.notify_all()

    async def until(self, trial_id, state):
        async with self.changed:
            await self.changed.wait_for(lambda: state in self.seen.get(trial_id, []))


async def play():
    endpoint = cogment.Endpoint(given["server"])
    context = cogment.Context("player", cog_settings)
    reached = asyncio.Event()
    seen = {}

    async def joining(session):
        def on_tick(tick):
            if tick >= 2:
                reached.set()

        seen[session.name] = await actor(session, on_tick)

    context.register_actor(joining, "joining", ["player", "watcher"])
    controller = context.get_controller(endpoint)
    states = States(controller)
    probe = await controller.start_trial(trial_params=parameters())
    await states.until(probe, "PENDING")  # the watch is on
    await controller.terminate_trial([probe], hard=True)

    if "config" in given:
        config = tally.Config(ticks=given["config"])
        trial = await controller.start_trial(trial_config=config)
    else:
        trial = await controller.start_trial(
            trial_id_requested=given.get("id"), trial_params=parameters()
        )
    again = await controller.start_trial(trial_id_requested=trial, trial_params=parameters())
    [before] = await controller.get_trial_info([trial])
    actors = await controller.get_actors(trial)
    joins = [
        asyncio.create_task(context.join_trial(trial, endpoint, actor_name=name))
        for name in given["joins"]
    ]
    if given["end"] != "environment":
        await reached.wait()
        await controller.terminate_trial([trial], hard=given["end"] == "hard")
    await asyncio.gather(*joins)
    await states.until(trial, "ENDED")
    [after] = await controller.get_trial_info([trial])
    tell(
        trial=trial,
        again=again,
        states=states.seen[trial],
        seen=seen,
        before=[before.state.name, before.env_name],
        after=[after.state.name, after.tick_id],
        actors=[(each.actor_name, each.actor_class_name) for each in actors],
        versions=sorted(await controller.get_remote_versions()),
    )
    states.watching.cancel()


asyncio.run({"serve": serve, "play": play}[command]())
