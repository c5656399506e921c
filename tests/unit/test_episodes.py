"""The choice of the episodes that rate a policy."""

import numpy as np
import pytest

from arkml.hive.protocol.episode_choice import EpisodeChoice

SHORT, LONG = 10, 200


def play(choice, agents, lengths, *, renamed=False, frames=100_000, vanishes=lambda _: False):
    """
    Step agents whose episodes have lengths out of `lengths`, and return the chosen ones.

    An agent for which `vanishes` says True in a frame has no row any more; where agents are renamed
    another one begins in the next frame.
    """
    names = list(range(agents))
    left = [0] * agents
    length = [0] * agents
    chosen = []
    gone = set()
    for frame in range(frames):
        ended = [at for at in range(agents) if frame and left[at] == 0 and at not in gone]
        for at in ended:
            if choice.end(names[at]) is not None:
                chosen.append(length[at])
            if renamed:
                names[at] += agents
        begun = list(range(agents)) if frame == 0 else ended
        if renamed:
            begun += gone
            gone.clear()
        choice.begin([names[at] for at in begun])
        for at in begun:
            length[at] = left[at] = lengths(at)
        choice.pass_submit([names[at] for at in range(agents) if at not in gone])
        if choice.is_done:
            return chosen
        left = [steps - 1 for steps in left]
        for at in set(range(agents)) - gone:
            if left[at] and vanishes(at):
                gone.add(at)
                names[at] += agents * renamed
    return chosen


@pytest.mark.parametrize("renamed", [False, True], ids=["agents stay", "an agent an episode"])
@pytest.mark.parametrize("wanted", [10, 16, 32, 40])
def test_long_episodes_are_chosen_as_often_as_short_ones(wanted, renamed):
    draw = np.random.default_rng(5)
    shares = []
    for _ in range(150):
        lengths = lambda _: int(draw.choice([SHORT, LONG]))  # noqa: E731
        chosen = play(EpisodeChoice(wanted), 16, lengths, renamed=renamed)
        assert len(chosen) == wanted
        shares.append(np.mean([length == LONG for length in chosen]))

    assert abs(np.mean(shares) - 0.5) < 5 * 0.5 / np.sqrt(150 * wanted)


def test_every_agent_plays_as_many_episodes_and_some_the_rest():
    choice = EpisodeChoice(10)
    chosen = play(choice, 4, lambda at: [3, 30, 7, 50][at])

    assert sorted(chosen) == [3, 3, 3, 7, 7, 30, 30, 50, 50, 50]
    assert choice.is_done
    assert choice.unended == 0


def test_of_fewer_episodes_than_agents_each_is_of_another_agent():
    chosen = play(EpisodeChoice(3), 5, lambda at: [9, 5, 7, 1, 2][at])

    assert len(set(chosen)) == 3


@pytest.mark.parametrize("agents", [4, 8, 16])
@pytest.mark.parametrize("is_alternating", [False, True])
def test_the_rest_is_of_the_first_and_last_agents_and_of_every_second_one(agents, is_alternating):
    """Half of the agents play long episodes: the first half, or every second one."""
    long = range(1, agents, 2) if is_alternating else range(agents // 2)
    for wanted in range(2, 50, 2):
        chosen = play(EpisodeChoice(wanted), agents, lambda at: 30 if at in long else 3)

        assert len(chosen) == wanted
        assert abs(chosen.count(30) - wanted // 2) <= 1


def test_agents_that_come_later_share_what_is_left():
    choice = EpisodeChoice(4)
    choice.begin([1])
    choice.end(1)
    choice.begin([1, 2])

    assert choice.is_chosen(1)
    assert choice.is_chosen(2)
    choice.end(1)
    choice.begin([1])
    assert not choice.is_chosen(1)  # two of four are its share
    choice.end(2)
    choice.begin([2])
    assert choice.is_chosen(2)


def test_an_episode_that_was_in_progress_before_is_not_chosen_and_its_agent_is_waited_for():
    before = EpisodeChoice(2)
    before.begin([1, 2])
    before.end(1)
    choice = EpisodeChoice(2, [*before.playing, 1])
    choice.begin([1])
    ended = choice.end(1)

    assert before.playing == [2]
    assert ended is not None
    assert not choice.is_chosen(2)
    choice.begin([1])
    assert not choice.is_chosen(1)
    assert choice.end(2) is None
    assert not choice.is_done
    choice.begin([2])
    choice.end(2)
    assert choice.is_done


def test_an_agent_that_ends_no_episode_is_told():
    choice = EpisodeChoice(6)
    play(choice, 3, lambda at: [5, 10**9, 8][at], frames=1_000)

    assert not choice.is_done
    assert choice.unended == 1
    assert choice.rounds == 0


def test_what_all_agents_have_ended_are_whole_rounds():
    choice = EpisodeChoice(6)
    play(choice, 2, lambda at: [5, 60][at], frames=150)

    assert (choice.ended, choice.rounds, choice.unended) == (5, 2, 0)


def test_an_episode_that_is_left_is_replaced_by_the_next_of_its_agent():
    choice = EpisodeChoice(1)
    choice.begin([7])
    choice.leave(7)
    choice.begin([7])
    choice.begin([7])

    assert choice.is_chosen(7)
    assert choice.end(7) is not None
    assert choice.is_done


def test_the_end_of_an_agent_that_is_not_known_is_none():
    choice = EpisodeChoice(1)

    assert choice.end(3) is None
    assert not choice.is_chosen(3)


@pytest.mark.parametrize("renamed", [False, True], ids=["agents stay", "an agent an episode"])
def test_agents_that_vanish_make_long_episodes_neither_rarer_nor_more_frequent(renamed):
    draw = np.random.default_rng(7)
    wanted, agents, games, vanished, shares = 64, 16, 100, 0, []
    for _ in range(games):
        age = [0] * agents

        def lengths(at, age=age):
            age[at] = 0
            return int(draw.choice([SHORT, LONG]))

        def vanishes(at, age=age):
            """One agent in twelve, or the first of those that stay, in its fifth step."""
            age[at] += 1
            return age[at] == 5 and draw.random() < (1 / 12 if renamed else 1 / 40)

        choice = EpisodeChoice(wanted)
        chosen = play(choice, agents, lengths, renamed=renamed, vanishes=vanishes)
        assert len(chosen) == wanted
        vanished += choice.vanished
        shares.append(np.mean([length == LONG for length in chosen]))

    assert vanished > games
    assert abs(np.mean(shares) - 0.5) < 5 * 0.5 / np.sqrt(games * wanted)


def test_what_an_agent_that_vanished_had_to_play_is_shared_out_among_the_others():
    choice = EpisodeChoice(12)
    ages = [0] * 3

    def vanishes(at):
        ages[at] += 1
        return at == 1 and ages[at] == 20

    chosen = play(choice, 3, lambda at: [5, 8, 9][at], vanishes=vanishes)

    assert choice.vanished == 1
    assert (chosen.count(5), chosen.count(8), chosen.count(9)) == (5, 2, 5)
    assert choice.unended == 0


def test_an_agent_that_is_missing_for_less_than_the_longest_episode_is_waited_for():
    choice = EpisodeChoice(4)
    choice.begin([1, 2])
    for round_ in range(5_000):
        assert choice.pass_submit([1, 2] if round_ % 1_000 == 0 else [1]) == []
        if round_ == 1_200:
            choice.end(1)
    for _ in range(4_000):
        choice.pass_submit([1])

    assert choice.vanished == 1
    assert not choice.is_chosen(2)


def test_a_submit_of_each_of_many_agents_is_no_long_time():
    agents, choice = range(3_000), EpisodeChoice(3_000)
    choice.begin(agents)
    for _ in range(3):
        for agent in agents:
            assert choice.pass_submit([agent]) == []

    assert choice.playing == list(agents)
