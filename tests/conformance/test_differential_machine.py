"""The decoder's comparison again, small, with failures that hypothesis makes smaller still."""

import logging
import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle as Names
from hypothesis.stateful import (
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    rule,
    run_state_machine_as_test,
)
from tests.conformance.decoder import PAGE, Row
from tests.conformance.differential_guest import LIMITS, DifferentialGuest
from tests.conformance.random_steps import (
    ACTIONS,
    DATA,
    FIRST_PAGES,
    NOTHING,
    PUSHES,
    SCRIPT,
    SUBMITS,
    V1,
    WIDTHS,
)
from tests.conformance.scripted_guest import Cell, module, step

from arkml import Host

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
FAULTS = st.sampled_from(["", "", "", "short", "long", "outside", "wraps", "huge"])
PLACES = st.integers(0, 2 * PAGE)


class Machine(RuleBasedStateMachine):
    """Starts, stops, pushes and submits of one guest."""

    host = program = None
    sessions = Names("sessions")

    def __init__(self):
        super().__init__()
        self.tested = DifferentialGuest(self.host, self.program, random.Random(3))

    def teardown(self):
        self.tested.guest.close()

    @initialize(target=sessions)
    def nothing(self):
        return multiple(NOTHING)

    @rule(
        target=sessions,
        training=st.booleans(),
        features=st.sampled_from(WIDTHS),
        actions=st.sampled_from(ACTIONS),
    )
    def start(self, training, features, actions):
        cell = self.tested.random_steps.open(training, features, actions, 0)
        self.play()
        return cell

    @rule(target=sessions, cell=consumes(sessions), training=st.booleans())
    def stop(self, cell, training):
        name = V1 + ("stop_training" if training else "stop_inference")
        code = self.tested.decoder.stop(cell, training=training)
        self.play(step(name, Cell(cell)), code)
        return cell  # a stale handle is as interesting as a live one

    @rule(
        cell=sessions,
        push=st.sampled_from(PUSHES),
        numbers=st.tuples(U64, st.integers(0, 4), U32, U32),
        lent=st.tuples(PLACES, PLACES, PLACES),
        faults=st.tuples(FAULTS, FAULTS, FAULTS),
        has_given=st.booleans(),
        items=st.integers(0, 3),
        times=st.sampled_from([1, 1, 1, 70, 310]),
    )
    def push(self, cell, push, numbers, lent, faults, has_given, items, times):
        name, training, has_length, item = push
        session = self.tested.decoder.sessions.get(cell)
        widths = (2, 2) if session is None else (session.num_features, session.num_actions)
        agent, state, reward, length = numbers
        features = self.lend(lent[0], widths[0], 4, faults[0])
        given = self.lend(lent[1], widths[1] * has_given, 4, faults[1]) if training else (0, 0)
        metadata = (*self.lend(lent[2], items, item, faults[2]), item) if item else (0, 0, 0)
        arguments = [Cell(cell), agent, state, reward, *features]
        arguments += given if training else ()
        arguments += metadata[:2] if item else ()
        arguments += [length] if has_length else ()
        made = step(name, *arguments)
        for _ in range(times):
            row = Row(agent, state, reward, length * has_length, b"", b"", ())
            code = self.tested.decoder.push(cell, row, features, given, metadata, training=training)
            self.tested.random_steps.add(made, code)
        self.play()

    @rule(cell=sessions, training=st.booleans(), at=PLACES, faults=st.tuples(FAULTS, FAULTS))
    def submit(self, cell, training, at, faults):
        session = self.tested.decoder.sessions.get(cell)
        rows, width = (1, 1) if session is None else (len(session.rows), session.num_actions)
        actions = self.lend(at, rows * width, 4, faults[0])
        values = self.lend(at + 4 * rows * width, rows, 4, faults[1])
        if overlap(actions, values):
            return
        code = self.tested.decoder.submit(cell, actions, values, training=training)
        self.play(step(SUBMITS[training], Cell(cell), *actions, *values), code)

    @rule(cell=sessions)
    def hand_over(self, cell):
        self.tested.random_steps.hand_over(cell)
        self.play()

    @rule()
    def grow(self):
        if len(self.tested.decoder.memory) < 20 * PAGE:
            self.play(step("memory.grow", 1), self.tested.decoder.grow(1))

    def lend(self, place, items, size, fault):
        """A pointer into the data that has room, or one with a fault."""
        end = len(self.tested.decoder.memory)
        need = items * size
        pointer = DATA + place % max(1, SCRIPT - DATA - need)
        match fault:
            case "short":
                return pointer, max(0, items - 1)
            case "long":
                return pointer, items + 1
            case "outside":
                return max(0, end - need + 1), items
            case "wraps":
                return 2**32 - max(1, need // 2), items
            case "huge":
                return pointer, 2**32 // size + items
            case _:
                return pointer, items

    def play(self, *made):
        if made:
            self.tested.random_steps.add(*made)
        steps, codes = self.tested.random_steps.take()
        self.tested.check(codes, self.tested.run(*steps))


def overlap(first, second):
    (start, count), (other, size) = first, second
    return start < other + 4 * size and other < start + 4 * count


@pytest.fixture
def machine():
    logging.disable(logging.CRITICAL)
    with Host(limits=LIMITS) as host:
        program = host.compile(module(FIRST_PAGES), name="random")
        yield type("HostedMachine", (Machine,), {"host": host, "program": program})
    logging.disable(logging.NOTSET)


def test_the_shim_does_what_the_plain_decoder_does(machine):
    chosen = settings(
        max_examples=120,
        stateful_step_count=25,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=chosen)
