"""Bytes that are kept for a guest outside of its instance."""

import pytest

from arkml.errors import GuestMemoryFull
from arkml.runtime.kept_bytes import PORTION, KeptBytes


def limited(most):
    """Bytes of a guest that may have `most`, and what was asked for."""
    asked, kept = [], KeptBytes()

    def require(size):
        if kept.granted + size > most:
            raise GuestMemoryFull(f"{size} bytes more than {kept.granted}")
        asked.append(size)

    kept.require = require
    return kept, asked


def test_bytes_are_asked_for_in_whole_portions():
    kept, asked = limited(10 * PORTION)
    for _ in range(8):
        kept.change(PORTION // 4)

    assert asked == [PORTION, PORTION]
    assert kept.granted == 2 * PORTION


def test_bytes_that_are_refused_are_not_taken():
    kept, asked = limited(3 * PORTION)
    kept.change(PORTION)
    with pytest.raises(GuestMemoryFull):
        kept.change(2 * PORTION + 1)
    kept.change(2 * PORTION)

    assert asked == [PORTION, 2 * PORTION]
    assert kept.granted == 3 * PORTION


def test_portions_are_given_back_but_for_a_few_and_all_at_the_end():
    freed = []
    kept = KeptBytes(lambda: freed.append(kept.granted))
    kept.change(10 * PORTION)
    kept.change(-2 * PORTION)
    spare = kept.granted
    kept.change(-7 * PORTION)
    few = kept.granted
    kept.change(-PORTION)

    assert (spare, few, kept.granted) == (10 * PORTION, PORTION, 0)
    assert freed == [PORTION, 0]
