"""A hundred thousand calls over all pushes, compared with a plain decoder of the ABI."""

import asyncio
import logging
import random

import pytest
from tests.conformance.differential_guest import LIMITS, DifferentialGuest
from tests.conformance.random_steps import DATA, FIRST_PAGES, PUSHES, SCRIPT
from tests.conformance.scripted_guest import PAGE, Cell, module, step

from arkml import Host
from arkml.errors import GuestFailed, GuestTimeout
from arkml.guests.guest import calls_of

UNTOUCHED = 0xEEEE_EEEE  # the answer of a step that was not done


@pytest.fixture(scope="module")
def host():
    logging.disable(logging.CRITICAL)  # refused rows and policies, thousands of times
    with Host(limits=LIMITS) as made:
        yield made
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def program(host):
    return host.compile(module(FIRST_PAGES), name="random")


def play(tested, count=3_000):
    """One script, run and checked."""
    tested.random_steps.play(count)
    steps, codes = tested.random_steps.take()
    tested.check(codes, tested.run(*steps))
    return len(steps)


def test_fifty_thousand_calls_do_what_the_plain_decoder_does(host, program):
    chance = random.Random(7)
    subjects = [DifferentialGuest(host, program, chance) for _ in range(2)]
    played = sum(play(tested) for _ in range(10) for tested in subjects)
    for tested in subjects:
        tested.guest.close()

    assert played >= 60_000
    for tested in subjects:
        calls = tested.random_steps.calls
        assert len(tested.decoder.memory) > FIRST_PAGES * PAGE
        assert {code for _, code in calls} == {0, 5, 6, 7}
        assert len(tested.decoder.all) > 50
        for name, *_ in PUSHES:
            assert calls[name, 0] > 2_000
            assert calls[name, 5] > 25
            assert calls[name, 6] > 25


@pytest.mark.parametrize("way", ["budget", "task", "policy"])
def test_a_dropped_call_leaves_what_was_done_and_nothing_to_the_next_guest(host, program, way):
    chance = random.Random(way)
    for _ in range(3):
        tested = DifferentialGuest(host, program, chance)
        play(tested, 1_000)
        drop(tested, way)

        with pytest.raises(GuestFailed):
            tested.guest.call("run", SCRIPT, 0, SCRIPT)
        assert calls_of(tested.guest).services.live_handles == 0
        tested.guest.close()
        neighbor = DifferentialGuest(host, program, chance)
        play(neighbor, 1_000)
        neighbor.guest.close()


def drop(tested, way):
    """Run a script that is dropped before its end, and check what it did until then."""
    tested.random_steps.play(500)
    last = suspended(tested) if way == "policy" else step("spin")
    steps, codes = tested.random_steps.take()
    steps += [last, step("memory.fill", DATA, 0, 64)]
    place = tested.run.place(steps)
    arguments = "run", SCRIPT, len(steps), place
    match way:
        case "task":
            with calls_of(tested.guest).instance.memory() as memory:
                pass  # to be read while the guest is in its call
            last = place + 4 * (len(steps) - 3)
            asyncio.run(
                cancelled(
                    tested.guest.call_async(*arguments),
                    lambda: int.from_bytes(memory.read(last, 4), "little") != UNTOUCHED,
                )
            )
        case "policy":
            with pytest.raises(KeyboardInterrupt):
                tested.guest.call(*arguments)
        case _:
            with pytest.raises(GuestTimeout):
                tested.guest.call(*arguments, budget=0.3)
    answers = tested.run.answers(len(steps))
    assert answers[-2:] == [UNTOUCHED] * 2
    tested.check(codes, answers[:-2])


def suspended(tested):
    """A submit in which the policy is interrupted; its rows are seen and nothing is written."""
    random_steps, decoder = tested.random_steps, tested.decoder
    cell = random_steps.open(True, 3, 2, 1000)
    session = decoder.sessions[cell]
    while not session.rows:
        random_steps.push(cell)
    tested.policies[session.tag].interruption = KeyboardInterrupt()
    count = len(session.rows)
    session.submitted.append(session.clear())
    session.turns += 1
    name = "ark-ml-v1.ml__submit_training_observations"
    return step(name, Cell(cell), DATA, 2 * count, DATA + 8 * count, count)


async def cancelled(call, is_at_last):
    task = asyncio.ensure_future(call)
    while not is_at_last():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
