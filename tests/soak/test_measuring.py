"""What a soak measures, and what it takes for flat."""

import os
import random
import subprocess
import sys
from ast import literal_eval
from dataclasses import replace
from pathlib import Path

import pytest
from tests.soak.measuring import (
    LEAST_ROUNDS,
    MOST_GROWTH,
    Usage,
    descendants,
    growth,
    usage,
    what_grows,
)

ROOT = Path(__file__).parents[2]
STILL = Usage(
    rss=100.0, virtual=900.0, mappings=500.0, descriptors=9.0, threads=4.0, processes=1.0, hive=50.0
)


def rounds(count, **slopes):
    """Rounds in which the named numbers grow by so much from each to the next."""
    return [
        replace(STILL, **{name: getattr(STILL, name) + k * slope for name, slope in slopes.items()})
        for k in range(count)
    ]


def test_rounds_that_are_alike_are_flat():
    assert what_grows(rounds(LEAST_ROUNDS)) == {}


@pytest.mark.parametrize("name", list(Usage.__dataclass_fields__))
def test_a_number_that_grows_is_named_with_its_growth_over_the_second_half(name):
    slope = getattr(MOST_GROWTH, name) / 10

    assert what_grows(rounds(40, **{name: slope})) == {name: pytest.approx(19 * slope)}


def test_what_grows_in_the_first_half_only_is_flat():
    warming = rounds(20, rss=10.0, mappings=50.0)

    assert what_grows(warming + [warming[-1]] * 21) == {}


def test_rounds_that_stand_out_and_noise_do_not_move_the_line():
    chance = random.Random(3)
    made = [replace(STILL, rss=100 + chance.uniform(-8, 8)) for _ in range(60)]
    made[35] = made[58] = replace(STILL, rss=400.0, descriptors=90.0)

    assert what_grows(made) == {}
    assert abs(growth(made).rss) < MOST_GROWTH.rss


def test_few_rounds_are_not_judged():
    with pytest.raises(ValueError, match="7 rounds: 8 at least"):
        what_grows(rounds(LEAST_ROUNDS - 1))


def test_descriptors_threads_and_mappings_are_those_of_this_process():
    program = """
import mmap, os, threading
from dataclasses import asdict
from tests.soak.measuring import usage

before = asdict(usage(None))
done = threading.Event()
files = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
blocks = [mmap.mmap(-1, mmap.PAGESIZE, prot=1 + number % 2 * 2) for number in range(8)]
threads = [threading.Thread(target=done.wait) for _ in range(3)]
for thread in threads:
    thread.start()
after = asdict(usage(None))
done.set()
print({name: after[name] - before[name] for name in before} | {"rss": after["rss"]})
"""

    run = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT
    )
    more = literal_eval(run.stdout)

    assert more["descriptors"] == 5
    assert more["threads"] == 3
    assert more["mappings"] >= 8  # neighbors of other protection are not joined
    assert more["rss"] > 0
    assert more["hive"] == 0


def test_processes_are_all_that_descend_from_this_one():
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    before = set(descendants(os.getpid()))
    with subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE) as process:
        found: set[int] = set()
        while len(found) < 2:
            found = set(descendants(os.getpid())) - before
        hive = usage(process.pid).hive
        process.communicate(b"\n")

    assert process.pid in found
    assert hive > 0
    assert not found & set(descendants(os.getpid()))
