import pytest

from arkml.errors import SnapshotTooLarge
from arkml.sessions.leases import SnapshotLeases


def test_snapshots_over_the_limit_together_are_refused_with_all_numbers():
    leases = SnapshotLeases(10)
    leases.take(b"123456")

    with pytest.raises(SnapshotTooLarge, match=r"5 bytes beside 6 .*: the limit is 10 bytes"):
        leases.take(b"12345")
    assert leases.used == 6


def test_the_same_bytes_count_once_until_the_last_user_is_gone():
    leases = SnapshotLeases(10)
    first, second = leases.take(b"123456"), leases.take(b"123456")
    first.release()
    first.release()

    assert leases.used == 6
    second.release()
    assert leases.used == 0


def test_what_models_hold_while_they_are_loaded_is_limited_together():
    leases = SnapshotLeases(100, held_bytes=0)
    first, second = leases.take(b"123456"), leases.take(b"abc")
    first.count(80)
    first.count(10)

    assert (leases.used, leases.held) == (9, 80)
    with pytest.raises(SnapshotTooLarge, match=r"holds 30 bytes .* beside 80 bytes .* is 100"):
        second.count(30)
    first.release()
    second.count(30)
    assert (leases.used, leases.held) == (3, 30)


def test_a_small_limit_on_snapshots_leaves_room_for_what_small_models_hold():
    leases = SnapshotLeases(100)
    leases.take(b"123456").count(1 << 20)

    assert leases.held == 1 << 20


def test_a_snapshot_that_was_released_counts_no_model():
    lease = SnapshotLeases(100).take(b"123456")
    lease.release()

    with pytest.raises(SnapshotTooLarge, match="not in use any longer"):
        lease.count(50)


def test_a_block_that_fails_releases_and_one_that_does_not_keeps():
    leases = SnapshotLeases(10)
    with leases.take(b"123") as kept:
        pass
    with pytest.raises(KeyError), leases.take(b"4567"):
        raise KeyError

    assert leases.used == 3
    kept.release()
    assert leases.used == 0


def test_a_finalizer_of_another_guest_may_give_back_while_one_counts():
    one, other = SnapshotLeases(10), SnapshotLeases(10)
    lease = other.take(b"123")

    with one._lock:  # garbage may be collected here, and another guest with it
        lease.release()
    assert other.used == 0
