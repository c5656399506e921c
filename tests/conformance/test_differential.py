"""A hundred thousand calls over all pushes, compared with a plain decoder of the ABI."""

import asyncio
import logging
import random

import pytest
from tests.conformance.driver import PAGE, Cell, module, step
from tests.conformance.storm import DATA, FIRST_PAGES, PUSHES, SCRIPT
from tests.conformance.subject import LIMITS, Subject

from arkml import Host
from arkml.errors import GuestFailed, GuestTimeout
from arkml.guests.guest import calls_of


@pytest.fixture(scope="module")
def host():
    logging.disable(logging.CRITICAL)  # refused rows and policies, thousands of times
    with Host(limits=LIMITS) as made:
        yield made
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def program(host):
    return host.compile(module(FIRST_PAGES), name="storm")


def play(subject, count=3_000):
    """One script, run and checked."""
    subject.storm.play(count)
    steps, codes = subject.storm.take()
    subject.check(codes, subject.run(*steps))
    return len(steps)


def test_a_hundred_thousand_calls_do_what_the_plain_decoder_does(host, program):
    chance = random.Random(7)
    subjects = [Subject(host, program, chance) for _ in range(2)]
    played = sum(play(subject) for _ in range(20) for subject in subjects)
    for subject in subjects:
        subject.guest.close()

    assert played >= 120_000
    for subject in subjects:
        calls = subject.storm.calls
        assert len(subject.decoder.memory) > FIRST_PAGES * PAGE
        assert {code for _, code in calls} == {0, 5, 6, 7}
        assert len(subject.decoder.all) > 100
        for name, *_ in PUSHES:
            assert calls[name, 0] > 4_000
            assert calls[name, 5] > 50
            assert calls[name, 6] > 50


@pytest.mark.parametrize("way", ["budget", "task", "policy"])
def test_a_dropped_call_leaves_what_was_done_and_nothing_to_the_next_guest(host, program, way):
    chance = random.Random(way)
    for _ in range(3):
        subject = Subject(host, program, chance)
        play(subject, 1_000)
        drop(subject, way)

        with pytest.raises(GuestFailed):
            subject.guest.call("run", SCRIPT, 0, SCRIPT)
        assert calls_of(subject.guest).services.live_handles == 0
        subject.guest.close()
        neighbor = Subject(host, program, chance)
        play(neighbor, 1_000)
        neighbor.guest.close()


def drop(subject, way):
    """Run a script that is dropped before its end, and check what it did until then."""
    subject.storm.play(500)
    last = suspended(subject) if way == "policy" else step("spin")
    steps, codes = subject.storm.take()
    steps += [last, step("memory.fill", DATA, 0, 64)]
    place = subject.run.place(steps)
    arguments = "run", SCRIPT, len(steps), place
    match way:
        case "task":
            asyncio.run(cancelled(subject.guest.call_async(*arguments)))
        case "policy":
            with pytest.raises(KeyboardInterrupt):
                subject.guest.call(*arguments)
        case _:
            with pytest.raises(GuestTimeout):
                subject.guest.call(*arguments, budget=0.05)
    answers = subject.run.answers(len(steps))
    assert answers[-2:] == [0xEEEE_EEEE] * 2
    subject.check(codes, answers[:-2])


def suspended(subject):
    """A submit in which the policy is interrupted; its rows are seen and nothing is written."""
    storm, decoder = subject.storm, subject.decoder
    cell = storm.open(True, 3, 2, 1000)
    session = decoder.sessions[cell]
    while not session.rows:
        storm.push(cell)
    subject.policies[session.tag].interruption = KeyboardInterrupt()
    count = len(session.rows)
    session.submitted.append(session.clear())
    session.turns += 1
    name = "ark-ml-v1.ml__submit_training_observations"
    return step(name, Cell(cell), DATA, 2 * count, DATA + 8 * count, count)


async def cancelled(call):
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
