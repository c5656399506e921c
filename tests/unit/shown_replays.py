"""Documents of replays, made by hand."""

from arkml.hive.protocol.replay_messages import (
    ReplayDocument,
    ShownBehavior,
    ShownFrame,
    ShownPart,
    ShownSubmit,
)

DRIVER = ShownBehavior(
    "driver",
    [ShownPart("place", [2], [-1, -1], [1, None]), ShownPart("gear", [1], [None], [None])],
    [-1],
    [1],
    [3],
    [0, 1],
)


def submit(agents, rewards, *, session=0, values=()):
    """A submit of agents by their ids; the first feature is the id, others are words."""
    count = len(agents)
    return ShownSubmit(
        behavior=0, session=session, training=True, code=0, rows=count, agents=list(agents),
        states=["running"] * count, rewards=rewards, returns=rewards,
        observations=[[float(agent), "NaN", "-Infinity"] for agent in agents],
        actions=[[0.5, 2.0]] * count, values=list(values),
    )  # fmt: skip


def document(*frames, **more):
    """A document of frames from 1 on, each a list of submits."""
    shown = [ShownFrame(number, "step()", list(one)) for number, one in enumerate(frames, 1)]
    given = {
        "guest": "orc", "release": "0", "recorded_at": 0, "first": 1, "last": len(frames),
        "every": 1, "behaviors": [DRIVER], "frames": shown, "lines": [], "marks": [],
        "opens_at": 1, "notes": [], **more,
    }  # fmt: skip
    return ReplayDocument(**given)
