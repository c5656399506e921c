"""Trials that guests play: ticks of stand-ins, of clients over gRPC and of people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import Companion
from tests.benchmarks.rows import AtLeast, AtMost, Row, against, alone
from tests.benchmarks.trials import micros, taking_turns

TOPIC = "guest trials"

BESIDE_ALONE = AtLeast(0.25)
BESIDE_BARE = AtLeast(0.5)
LATE = AtMost(10.0)
PRESSED = AtMost(1_000 / 60 + 20)

ACTORS, TRIALS = 4, (100, 1_000)
WIRED, KINDS = (2, 8, 64), ("guest", "bare")


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        f"Trials of {ACTORS} actors, all stand-ins with the default action, in one process with"
        " datalog: observations, actions and rewards of each tick are logged. Beside them the same"
        " guests, stepped in turn by GuestEnv, without trials, messages or a log. Over gRPC all"
        " actors of one trial are clients in the process of the server, and a tick waits for all of"
        " them; the bare program sends them the same messages over grpc.aio, without a guest. The"
        " two people, in a process of their own, play one trial of 60 ticks a second over gRPC, in"
        " the server that plays the 1,000 trials; a press is an action of a script that took an"
        " actor over by gRPC.",
    )
    yield from stand_ins(bench)
    yield from clients(bench)
    yield from people(bench)


def stand_ins(bench: Bench) -> Iterator[Row]:
    """Yield ticks a second of trials whose actors are all stand-ins."""
    for count in TRIALS:
        bench.say(f"{count:,} trials of stand-ins")
        found = beside_alone(bench, {"trials": ("guest_ticks", "hosted", ACTORS, count)}, count)
        yield against(
            TOPIC, f"a tick, {count:,} trials of {ACTORS} stand-ins", "us", micros(found["trials"]),
            "GuestEnv alone", micros(found["alone"]), BESIDE_ALONE,
        )  # fmt: skip
    with Companion("guest_ticks", "memory", ACTORS, TRIALS[-1]) as program:
        megabytes = [program.measure()]
    yield alone(TOPIC, f"memory of {TRIALS[-1]:,} trials of {ACTORS} stand-ins", "MB", megabytes)


def clients(bench: Bench) -> Iterator[Row]:
    """Yield ticks of one trial whose actors are all clients over gRPC."""
    for count in WIRED:
        bench.say(f"a guest and {count} clients over gRPC")
        found = taking_turns(bench, {kind: ("guest_players", kind, count) for kind in KINDS})
        yield against(
            TOPIC, f"a tick over gRPC, {count} clients", "us", micros(found["guest"]),
            "a bare grpc.aio program", micros(found["bare"]), BESIDE_BARE,
        )  # fmt: skip


def people(bench: Bench) -> Iterator[Row]:
    """Yield how late ticks are for people, and how soon a press is in the guest's row."""
    bench.say("people")
    beside = f"beside {TRIALS[-1]:,} trials"
    for name, words, limit in (
        (f"a late tick of 2 people {beside}, 99 %", ("late", ACTORS, TRIALS[-1]), LATE),
        ("a key press to the guest's row, 95 %", ("presses", ACTORS), PRESSED),
    ):
        found = taking_turns(bench, {"people": ("guest_players", *words)})
        yield alone(TOPIC, name, "ms", found["people"], limit)


def beside_alone(
    bench: Bench, programs: Mapping[str, tuple[object, ...]], guests: int
) -> Mapping[str, Sequence[float]]:
    """Return ticks a second of programs and of as many guests alone ("alone"), taking turns."""
    others = {"alone": ("guest_ticks", "alone", ACTORS, guests)}
    return taking_turns(bench, {**programs, **others})
