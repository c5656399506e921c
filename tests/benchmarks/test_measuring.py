from tests.benchmarks.measuring import (
    Spread,
    enough,
    interleave,
    mean_microseconds,
    quotients,
    undisturbed,
)
from tests.benchmarks.rows import AtLeast, AtMost, Verdict, against, alone


def test_a_spread_is_the_median_between_the_outer_tenths():
    spread = Spread.of([float(figure) for figure in range(101)])

    assert spread == Spread(median=50.0, low=10.0, high=90.0)


def test_subjects_run_in_turn_and_each_round_turns_the_order_round():
    ran: list[str] = []

    def block(name: str, figure: float):
        return lambda: ran.append(name) or figure

    figures = interleave({"a": block("a", 1.0), "b": block("b", 2.0)}, rounds=3)

    assert ran == ["a", "b", "b", "a", "a", "b"]
    assert figures == {"a": [1.0] * 3, "b": [2.0] * 3}


def test_a_ratio_is_the_median_of_the_quotients_of_each_round():
    ratio = quotients([1.0, 20.0, 3.0], [1.0, 10.0, 1.0])

    assert ratio.median == 2.0


def test_rounds_in_which_the_control_was_slow_do_not_count():
    figures, turns = [1.0, 9.0, 1.1], [100.0, 50.0, 98.0]

    assert undisturbed(figures, turns) == [1.0, 1.1]


def test_of_few_undisturbed_rounds_nothing_is_said():
    figures, turns = [1.0, 9.0, 9.1], [100.0, 50.0, 50.0]

    assert not enough(figures, turns)
    assert undisturbed(figures, turns) == figures


def test_an_upper_limit_is_one_of_ours_divided_by_theirs():
    row = against("frame", "1 agent", "µs", [3.0], "peer", [2.0], AtMost(1.4))

    assert row.ratio == Spread.of([1.5])
    assert row.verdict is Verdict.MISSED


def test_a_lower_limit_is_one_of_how_many_times_ours_is_faster():
    row = against("fleet", "many guests", "µs", [2.0], "one by one", [6.0], AtLeast(3.0))

    assert row.ratio == Spread.of([3.0])
    assert row.verdict is Verdict.KEPT


def test_a_limit_without_a_competitor_is_one_of_the_figure_itself():
    assert alone("startup", "run", "s", [0.4], AtMost(0.5)).verdict is Verdict.KEPT
    assert alone("startup", "run", "s", [0.6], AtMost(0.5)).verdict is Verdict.MISSED
    assert alone("startup", "run", "s", [0.6]).verdict is Verdict.REPORTED


def test_without_a_peer_nothing_is_asserted_against_it():
    row = against("frame", "1 agent", "µs", [3.0], "peer", None, AtMost(1.4))

    assert row.ratio is None
    assert row.verdict is Verdict.NO_PEER


def test_a_mean_is_of_so_many_calls_after_a_fifth_that_do_not_count():
    calls: list[None] = []

    figure = mean_microseconds(lambda: calls.append(None), 50)

    assert len(calls) == 60
    assert figure > 0
