"""Values that are expensive to make are made once, and those that are not used go."""

import gc
import threading
import weakref

import pytest

from arkml.runtime.recent import RecentCache


class Value:
    def __init__(self, weight=1):
        self.weight = weight


def cache(count, weight=1_000):
    return RecentCache(count, weight, lambda value: value.weight)


def test_a_value_is_made_once():
    values = cache(2)
    made = [values.get("a", Value), values.get("a", Value)]

    assert made[0] is made[1]


def test_threads_that_ask_at_once_get_one_value():
    values, begun, made = cache(2), threading.Barrier(4), []

    def ask():
        begun.wait(300)
        made.append(values.get("a", Value))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)

    assert len(made) == 4
    assert len(set(map(id, made))) == 1


def test_the_values_asked_for_last_stay_and_the_others_go():
    values = cache(2)
    watched = {}
    for key in "abca":
        if key == "a" and "a" in watched:
            continue
        watched[key] = weakref.ref(values.get(key, Value))
        values.get("a", Value)
    gc.collect()

    assert [key for key, value in watched.items() if value() is not None] == ["a", "c"]


def test_values_beyond_the_weight_go():
    values = cache(10, weight=5)
    watched = [weakref.ref(values.get(key, lambda: Value(2))) for key in range(4)]
    gc.collect()

    assert [value() is not None for value in watched] == [False, False, True, True]


def test_a_value_in_use_stays_the_one_of_its_key():
    values = cache(1)
    used = values.get("a", Value)
    values.get("b", Value)

    assert values.get("a", Value) is used


def test_a_value_that_could_not_be_made_is_asked_for_again():
    values = cache(1)
    with pytest.raises(ZeroDivisionError):
        values.get("a", lambda: 1 / 0)

    assert isinstance(values.get("a", Value), Value)
