import numpy as np
import pytest

from arkml.policies import noise
from arkml.policies.noise import PinkNoise, fill_normal, streams

COUNT = 200_000


def fill_pink(out, streams, steps):
    """Fill with pink noise, with nothing kept of a batch before."""
    PinkNoise()(out, streams, steps)


def drawn(seed=0, keys=1, ids=(0,), steps=(0,), width=3, fill=fill_normal):
    ids, steps = np.broadcast_arrays(np.asarray(ids, np.uint64), np.asarray(steps, np.uint64))
    out = np.zeros((len(ids), width), np.float32)
    fill(out, streams(seed, np.asarray(keys, np.uint64), ids), steps)
    return out


@pytest.mark.parametrize("fill", [fill_normal, fill_pink])
def test_the_numbers_have_the_moments_of_the_standard_normal_distribution(fill):
    numbers = drawn(ids=np.arange(COUNT), width=4, fill=fill).astype(float).ravel()

    assert abs(numbers.mean()) < 0.005
    assert abs(numbers.var() - 1) < 0.01
    assert abs((numbers**3).mean()) < 0.02
    assert abs((numbers**4).mean() - 3) < 0.05
    assert 0.0440 < (abs(numbers) > 2).mean() < 0.0470
    assert np.isfinite(numbers).all()


@pytest.mark.parametrize("axis", ["ids", "steps", "keys"])
def test_numbers_along_every_coordinate_are_uncorrelated(axis):
    coordinates = {"ids": np.zeros(COUNT), axis: np.arange(COUNT)}
    numbers = drawn(**coordinates, width=2).astype(float)

    assert abs(np.corrcoef(numbers.T)[0, 1]) < 0.01
    assert abs(np.corrcoef(numbers[:-1, 0], numbers[1:, 0])[0, 1]) < 0.01
    assert len(np.unique(numbers[:, 0])) > 0.98 * COUNT


@pytest.mark.parametrize("step", [0, 1_000])
def test_pink_noise_changes_in_part(step):
    ids = np.arange(COUNT)
    first = drawn(ids=ids, steps=step, fill=fill_pink)
    for lag in (1, 2, 5, 16, 100, 300):
        later = drawn(ids=ids, steps=step + lag, fill=fill_pink)
        # Of eight parts, the kth is the same after `lag` of its 2^k steps for so many agents.
        kept = np.maximum(0.0, 1.0 - lag / 2.0 ** np.arange(8)).mean()

        assert np.corrcoef(first[:, 0], later[:, 0])[0, 1] == pytest.approx(kept, abs=0.01)
        assert np.corrcoef(first[:, 0], later[:, 1])[0, 1] == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize("fill", [fill_normal, fill_pink])
@pytest.mark.parametrize("width", [1, 2, 3, 8, 17])
def test_a_row_is_the_same_alone_and_anywhere_in_a_batch(width, fill):
    random = np.random.default_rng(width)
    ids = random.integers(0, 1 << 63, 70, np.uint64)
    steps = random.integers(0, 1000, 70, np.uint64)
    keys = random.integers(0, 1 << 63, 70, np.uint64)
    together = drawn(3, keys, ids, steps, width, fill)
    order = random.permutation(70)

    alone = [drawn(3, keys[i], ids[i : i + 1], steps[i : i + 1], width, fill)[0] for i in range(70)]
    again = drawn(3, keys[order], ids[order], steps[order], width, fill)
    assert np.array_equal(together, alone)
    assert np.array_equal(together[order], again)


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"keys": 2}, {"ids": (1,)}, {"steps": (1,)}], ids=lambda d: next(iter(d))
)
def test_every_coordinate_changes_every_number(other):
    assert (drawn(width=5) != drawn(**other, width=5)).all()


def test_seeds_may_be_any_integers():
    assert (drawn(seed=-1) != drawn(seed=1 << 70)).all()


def test_no_numbers_are_no_problem():
    for fill in (fill_normal, fill_pink):
        assert drawn(ids=[], steps=[], fill=fill).shape == (0, 3)
        assert drawn(width=0, fill=fill).shape == (1, 0)


def test_what_pink_noise_keeps_is_whole_after_an_interrupt(monkeypatch):
    fill = PinkNoise()
    agents, others = np.arange(5, dtype=np.uint64), np.arange(5, 10, dtype=np.uint64)
    out, alone = np.zeros((2, 5, 3), np.float32)
    fill(out, agents, agents)
    for name, ids in (("mix", others), ("fill_normal", others), ("fill_normal", agents)):
        with monkeypatch.context() as patched:
            patched.setattr(noise, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                fill(out, ids, agents + np.uint64(1))
        for streams_now in (others, agents):
            fill(out, streams_now, agents)
            fill_pink(alone, streams_now, agents)

            assert np.array_equal(out, alone)


def interrupted(*_):
    raise KeyboardInterrupt


def test_what_pink_noise_keeps_of_a_batch_changes_no_number():
    random = np.random.default_rng(5)
    ids, steps, width = np.arange(6, dtype=np.uint64), np.zeros(6, np.uint64), 2
    fill = PinkNoise()
    for _ in range(400):
        match random.integers(8):
            case 0:  # agents join, leave, or come in another order
                ids = random.permutation(12).astype(np.uint64)[: random.integers(13)]
                steps = random.integers(0, 300, len(ids), np.uint64)
            case 1:  # another model
                width = int(random.integers(4))
            case 2:  # one of them begins anew
                steps[:1] = 0
            case _:
                steps = steps + np.uint64(1)
        numbers = drawn(ids=ids, steps=steps, width=width, fill=fill)

        assert np.array_equal(numbers, drawn(ids=ids, steps=steps, width=width, fill=fill_pink))
