"""A person at the page's keyboard plays sparse reach, and a run of a hive learns it from that."""

import pytest
from tests.browser.served import playing, ticks_of
from tests.faults.serving import TOKEN, Served
from tests.people_rows import NAME, SPARSE, actions_in, exported, learn, stored
from tests.scripted_people import steer
from tests.unit.guest_trial_parts import same_rows

from arkml.guest_trials.learning.spans import HOLD
from arkml.trials.wire.guest_pb2 import RUNS_ON

pytestmark = pytest.mark.browser

EPISODES = 20
MOST = 20  # times 200 looks at the page
KEYS = (("ArrowLeft", "ArrowRight"), ("ArrowDown", "ArrowUp"))
LEAST = 0.4  # of a thrust, to press its key
SHOWN = "[...document.querySelectorAll('.bars output')].map((one) => Number(one.textContent))"


def test_a_run_learns_sparse_reach_from_twenty_episodes_at_the_keyboard(tmp_path, person, capsys):
    actor, data, ratings = f"{NAME}_0", tmp_path / "trials", {}
    with Served(tmp_path / "hive") as hive:
        words = ("--hive", f"127.0.0.1:{hive.port}", "--run", f"{NAME}=played", "--learn", "people")
        with playing(SPARSE, data, *words, ARKML_HIVE_TOKEN=TOKEN) as served:
            ann = person(served.play, "Ann").plays(actor)
            for _ in range(MOST):  # a slow machine shows the person fewer of the ticks
                play(ann, ticks=200)
                if stored(hive).reward.sum() >= EPISODES:
                    break
            ann.page.click("#leave")
            ann.sees("#notice-text", f"You handed {actor} back")
            learn(hive, ratings)
            served.end()
        rows = stored(hive)
        ticks = ticks_of(data)
        demonstrations = exported(data)
    with capsys.disabled():
        print(f"\n{len(actions_in(rows))} ticks at the keyboard; successes by rows: {ratings}")

    acted = [one for one in ticks if actor in one.actions and one.actions[actor].origin == "Ann"]
    learned = [
        (list(one.rows[actor].values), list(one.actions[actor].action.continuous))
        for one in acted
        if one.rows[actor].present
        and one.rows[actor].end == RUNS_ON
        and is_learned(one.actions[actor].note)
    ]
    assert actions_in(rows) == learned
    assert same_rows(rows, demonstrations.columns)
    assert rows.reward.sum() >= EPISODES
    assert max(ratings.values()) >= 0.9


def is_learned(note):
    """Whether an action is the person's own: on a busy machine some are held for too long."""
    kind, _, seconds = note.partition(" ")
    return kind == "given" or (kind == "held" and float(seconds) <= HOLD)


def play(person, ticks):
    """Press the keys that take the point to the target and stop it there, for some ticks."""
    held = set()
    for _ in range(ticks):
        values = person.page.evaluate(SHOWN)
        thrusts = steer(values) if len(values) == 4 else (0.0, 0.0)
        pairs = zip(KEYS, thrusts, strict=True)
        wanted = {keys[int(thrust > 0)] for keys, thrust in pairs if abs(thrust) > LEAST}
        for key in held - wanted:
            person.page.keyboard.up(key)
        for key in wanted - held:
            person.page.keyboard.down(key)
        held = wanted
        person.waits(1)
    for key in held:
        person.page.keyboard.up(key)
