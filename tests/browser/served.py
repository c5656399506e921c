"""Processes that serve trials of a guest, their links, and the log that they leave."""

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tools.houses import PYTHONPATH

from arkml.trials.datalog.reader import DatalogReader
from arkml.trials.datalog.samples import samples
from arkml.trials.wire.guest_pb2 import Action, Observation

ROOT = Path(__file__).parents[2]
GUESTS = ROOT / "fixtures" / "guests"
RATE = 20  # ticks a second
PATIENCE = 60
EIGHTH = np.float32(0.125)


class Served:
    """A running `arkml trials play`; `log` may be read once it has ended."""

    def __init__(self, process, data):
        self.process = process
        self.data = data
        self.links = {"invite": []}
        for line in process.stdout:
            what, link = line.split()
            if what == "invite":
                self.links["invite"].append(link)
            else:
                self.links[what] = link
            if what == "watch":
                break

    @property
    def play(self):
        return self.links["play"]

    @property
    def watch(self):
        return self.links["watch"]

    def slot(self, name):
        """The link to play a slot, where no token is needed."""
        return f"{self.watch}#slot={name}"

    def end(self):
        """End it softly, and return the rest of what it printed."""
        self.process.send_signal(signal.SIGINT)
        output, errors = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 128 + signal.SIGINT, errors
        return output


@contextlib.contextmanager
def process_of(command, *options, **environment):
    """The process of a command of `arkml trials`; its stdout and stderr are text."""
    process = subprocess.Popen(
        [sys.executable, "-m", "arkml", "trials", command, *map(str, options)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, **environment},
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        process.communicate()


@contextlib.contextmanager
def playing(guest, data, *options, **environment):
    """The process of `arkml trials play`, which is ended by Ctrl-C."""
    given = ("--port", 0, "--tick-rate", RATE, "--data", data, "--log-level", "warning")
    with process_of("play", guest, *given, *options, **environment) as process:
        served = Served(process, data)
        assert served.links, process.stderr.read()
        yield served
        if process.returncode is None:
            served.end()


class Acted(NamedTuple):
    """The action of an actor in a tick, and who it is from."""

    action: Action
    note: str
    origin: str


class Tick(NamedTuple):
    """One tick of a trial, as the log has it; rows and actions are by actor."""

    number: int
    timestamp: int
    rows: dict
    actions: dict
    rewards: dict
    events: list


def trials_of(data):
    """The ticks of all trials in a log, of each trial that has any, the oldest trial first."""
    with DatalogReader(data) as reader:
        found = []
        for record in reversed(reader.trials()):
            params = reader.params(record)
            names = [actor.name for actor in params.actors]
            ticks = samples(reader, record, params)
            found.append([_tick(one, names) for one in ticks if one.observations is not None])
    return [ticks for ticks in found if ticks]


def ticks_of(data):
    """The ticks of the only trial in a log."""
    [ticks] = trials_of(data)
    return ticks


def _tick(sample, names):
    observed = sample.observations
    rows = [Observation.FromString(content) for content in observed.observations]
    return Tick(
        sample.tick,
        sample.timestamp,
        {name: rows[index] for name, index in zip(names, observed.actors_map, strict=True)},
        {
            name: Acted(Action.FromString(one.content), one.note, one.origin)
            for name, one in sample.actions.items()
        },
        {name: one.value for name, one in sample.rewards.items()},
        sample.events,
    )


def assert_rows_have_actions(ticks, actor):
    """Each action of a walker is in its guest's next row: an eighth of it is the way it went."""
    for before, after in itertools.pairwise(ticks):
        if actor not in before.actions:
            continue  # the last tick
        action = before.actions[actor].action.continuous
        way = np.float32(action[0] if action else 0.0) * EIGHTH
        expected = np.float32(before.rows[actor].values[0]) + way
        assert after.rows[actor].values[0] == expected


def actions_of(ticks, actor, person):
    """The continuous actions of a person, each run of equal ones once."""
    found = []
    for tick in ticks:
        acted = tick.actions.get(actor)
        if acted is not None and acted.origin == person:
            action = acted.action.continuous
            value = action[0] if action else 0.0
            if found[-1:] != [value]:
                found.append(value)
    return found


def notes_of(ticks, actor):
    """The notes and origins of an actor's actions, each run of equal ones once."""
    found = []
    for tick in ticks:
        acted = tick.actions.get(actor)
        if acted is not None:
            is_played = acted.note.split()[0] in ("given", "held")
            one = ("played" if is_played else acted.note, acted.origin)
            if found[-1:] != [one]:
                found.append(one)
    return found


def events_of(ticks, words):
    """The events that match a pattern, in order."""
    return [event for tick in ticks for event in tick.events if re.search(words, event)]
