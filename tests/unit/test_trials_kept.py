"""What a server of trials keeps of trials that have ended, and for those who watch."""

import asyncio

import pytest

from arkml.trials.core.error import TrialError
from arkml.trials.server import kept_trials, watchers
from arkml.trials.server.kept_trials import EndedTrial, KeptTrials
from arkml.trials.server.watchers import Watchers
from arkml.trials.wire.common_pb2 import TrialState
from arkml.trials.wire.lifecycle_pb2 import TrialInfo, TrialListRequest

ENDED = TrialState.ENDED


def ended(name, size=1_000):
    """A trial with a property of so many bytes."""
    info = TrialInfo(trial_id=name, properties={"k": "v" * size})
    return EndedTrial(name, ENDED, "", info, None, ())


def described(trial):
    return trial.info


@pytest.fixture
def kept(monkeypatch):
    monkeypatch.setattr(kept_trials, "MOST_BYTES", 10_000)
    return KeptTrials(100)


def test_the_oldest_trials_that_have_ended_are_forgotten_for_their_bytes(kept):
    for number in range(20):
        kept.begin(f"{number}", 1_000)
        kept.end(ended(f"{number}"))

    assert list(kept.ended) == [f"{number}" for number in range(11, 20)]


def test_live_trials_take_the_bytes_of_ended_ones_and_are_refused_without_room(kept):
    for number in range(5):
        kept.end(ended(f"{number}"))
    for number in range(10):
        kept.begin(f"live {number}", 1_000)

    assert not kept.ended
    with pytest.raises(TrialError, match="take 1 bytes, and those of the others 10000"):
        kept.begin("more", 1)
    kept.end(ended("live 0", size=100))
    kept.begin("more", 500)
    assert list(kept.ended) == ["live 0"]


def test_a_trial_that_is_too_large_to_be_kept_forgets_no_live_one(kept):
    kept.begin("live", 9_000)
    kept.begin("large", 500)
    kept.end(ended("large", size=5_000))
    kept.begin("next", 1_000)

    assert not kept.ended


async def test_watchers_share_what_changes_and_one_that_reads_misses_nothing(monkeypatch):
    monkeypatch.setattr(watchers, "MOST_BYTES", 50_000)
    made = Watchers(described)
    request = TrialListRequest(full_info=True)
    idle = [made.watch(request, list) for _ in range(10)]
    waiting = [asyncio.ensure_future(anext(one)) for one in idle]
    reader, seen = made.watch(request, list), []
    for number in range(100):
        reading = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0)
        made.change(ended(f"{number}"), ENDED)
        seen.append((await reading).trial_id)

    assert seen == [f"{number}" for number in range(100)]
    assert sum(one.bytes for one in made._watchers) == made._bytes <= 50_000
    newest = {one.entries[-1][0].trial_id for one in made._watchers if one.entries}
    assert newest == {"99"}
    assert len({id(one.entries[-1][0]) for one in made._watchers if one.entries}) == 1
    for one in waiting:
        await one
    for one in (*idle, reader):
        await one.aclose()
    assert made._bytes == 0
