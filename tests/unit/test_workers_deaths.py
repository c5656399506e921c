"""How often a worker that dies is replaced."""

from arkml.workers.deaths import Deaths


def test_five_deaths_within_a_minute_are_replaced_at_once_and_the_sixth_waits():
    deaths = Deaths()

    waits = [deaths.note(now) for now in (100.0, 101.0, 102.0, 103.0, 104.0, 110.0)]

    assert waits == [0.0, 0.0, 0.0, 0.0, 0.0, 50.0]


def test_deaths_of_more_than_a_minute_ago_do_not_count():
    deaths = Deaths()

    assert {deaths.note(12.0 * number) for number in range(20)} == {0.0}
