import pytest

from arkml.errors import GuestMemoryFull
from arkml.sessions.brain_memory import PORTION
from arkml.sessions.call_vectors import CallVectors


class Room:
    """Grants bytes up to a limit, and notes how often it was asked."""

    def __init__(self, most):
        self.left = most
        self.asked = 0

    def require(self, size):
        self.asked += 1
        if size > self.left:
            raise GuestMemoryFull(f"{size} bytes")


def test_both_vectors_count_until_they_are_gone():
    vectors = CallVectors(Room(1 << 30).require)
    vectors.keep_returned(bytes(5 * PORTION))
    vectors.keep_pending(bytes(3 * PORTION - 1))
    both = vectors.granted
    vectors.drop_pending()
    returned = vectors.granted
    vectors.clear()

    assert (both, returned, vectors.granted) == (8 * PORTION, 5 * PORTION, 0)
    assert vectors.returned is vectors.pending is None


def test_a_vector_takes_the_place_of_the_last_one():
    vectors = CallVectors(Room(6 * PORTION).require)
    for _ in range(10):
        vectors.keep_returned(bytes(4 * PORTION))
        vectors.keep_pending(bytes(2 * PORTION))

    assert vectors.granted == 6 * PORTION


def test_a_vector_over_the_limit_leaves_the_last_one():
    vectors = CallVectors(Room(4 * PORTION).require)
    vectors.keep_returned(b"returned")
    vectors.keep_pending(b"pending")
    with pytest.raises(GuestMemoryFull):
        vectors.keep_returned(bytes(6 * PORTION))
    with pytest.raises(GuestMemoryFull):
        vectors.keep_pending(bytes(6 * PORTION))

    assert (vectors.returned, vectors.pending) == (b"returned", b"pending")
    assert vectors.granted == PORTION


def test_small_vectors_are_asked_for_once():
    room = Room(1 << 30)
    vectors = CallVectors(room.require)
    for _ in range(100):
        vectors.keep_pending(bytes(1_000))
        vectors.drop_pending()
        vectors.clear()

    assert room.asked == 1
