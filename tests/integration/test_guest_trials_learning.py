"""The part of a server of trials in the runs of a real hive: rows, versions and refusals."""

import signal

import pytest
from tests.faults.serving import TOKEN, Served
from tests.people_rows import stored
from tests.unit.datalog_parts import reward, write_trial
from tests.unit.guest_trial_parts import hosted_params, observed, played, same_rows
from tests.waiting import eventually

from arkml.demonstrations.demonstration_files import read_demonstrations, write_demonstrations
from arkml.envs.core.decisions import Behavior
from arkml.envs.core.specs import Actions, ObservationPart, Spec
from arkml.errors import HiveUnreachable, NotTrainable, UsageError
from arkml.guest_trials.learning.learned_rows import GuestTrialExport
from arkml.guest_trials.learning.run_options import LearningOptions
from arkml.guest_trials.learning.trial_learning import TrialLearning
from arkml.guest_trials.probe import GuestClass
from arkml.guest_trials.stand_ins import StandIns
from arkml.hive.address import Address
from arkml.hive.client import HiveClient
from arkml.hive.protocol.rows import RowKind
from arkml.hive.protocol.runs import RunRequest
from arkml.hive.protocol.settings import Settings
from arkml.trials.datalog.datalog import Datalog
from arkml.trials.datalog.reader import DatalogReader

WALKER = GuestClass("walker", Behavior("the walker", 2, 2, Spec.flat(2, 2)), 2)
ONES = ObservationPart("all", (2,), (-1.0,) * 2, (1.0,) * 2)
CHOOSER = GuestClass("flyer", Behavior("a flyer", 2, 1, Spec((ONES,), Actions(0, (), (), (3,)))), 1)


@pytest.fixture(scope="module")
def hive(tmp_path_factory):
    with Served(tmp_path_factory.mktemp("hive")) as served:
        yield served


@pytest.fixture
def client(hive):
    with HiveClient(lambda: Address("127.0.0.1", hive.port, TOKEN)) as made:
        yield made


@pytest.fixture
def own_hive(tmp_path):
    """A hive of one test, which may kill it."""
    with Served(tmp_path / "hive") as served:
        yield served


def options(hive, **more):
    given = {"runs": {"walker": "walk"}, "learn": "people", **more}
    return LearningOptions(hive=f"127.0.0.1:{hive.port}", token=TOKEN, **given)


def joined(hive, offer=lambda *_: None, classes=(WALKER,), **more):
    return TrialLearning(options(hive, **more), "a game", classes, offer)


def a_trial(ticks, origin="ann", note="given"):
    """A trial in which a person plays both walkers from beginning to end."""
    for tick in range(ticks):
        yield observed(tick, [tick / 8, 0.0], [tick / 8, 1.0])
        yield played(tick, "walker_0", note, origin)
        yield played(tick, "walker_1", note, origin, action=(tick / 100, 0.0))
        yield reward(tick, "*", tick + 0.5)
    yield observed(ticks, [0.0, 0.0], [0.0, 0.0])


def exported(directory, *ids):
    made = GuestTrialExport()
    with DatalogReader(directory) as reader:
        for trial_id in ids:
            made.add(reader, reader.named(trial_id)[0])
    return made.demonstrations()


def test_a_hive_that_is_killed_and_comes_back_has_every_row_once_as_the_export_has_it(
    own_hive, tmp_path, caplog
):
    log = tmp_path / "log"
    with Datalog(log) as datalog, joined(own_hive) as learning:
        learned = learning.learned_log(datalog)
        session = learning.runs["walker"].session
        write_trial(learned, "one", a_trial(300), params=hosted_params())
        eventually(lambda: session.settled == 602)
        own_hive.end(signal.SIGKILL)
        write_trial(learned, "two", a_trial(500), params=hosted_params())
        eventually(lambda: "the hive is gone" in caplog.text)
        write_trial(learned, "three", a_trial(200), params=hosted_params())
        own_hive.start()
        eventually(lambda: session.settled == 602 + 1_002 + 402)
        eventually(lambda: "the hive is back" in caplog.text)
    demonstrations = exported(log, "one", "two", "three")
    write_demonstrations(tmp_path / "rows.npz", demonstrations)

    assert same_rows(stored(own_hive), demonstrations.columns)
    assert same_rows(stored(own_hive), read_demonstrations(tmp_path / "rows.npz").columns)
    assert session.ledger.accepted == 2_006
    assert session.failure is None
    warnings = [one.message for one in caplog.records if one.levelname == "WARNING"]
    told = [text.partition(":")[0] for text in warnings]
    # Once for the kill, and where the machine is so busy that the hive answers late, again.
    assert told == ["the hive is gone", "the hive is back"] * max(1, len(told) // 2)


def test_demonstrations_that_were_exported_are_stored_as_those_that_were_learned_live(
    own_hive, tmp_path
):
    with Datalog(tmp_path / "log") as datalog, joined(own_hive) as learning:
        learned = learning.learned_log(datalog)
        write_trial(learned, "one", a_trial(40), params=hosted_params())
    live = stored(own_hive)
    demonstrations = exported(tmp_path / "log", "one")
    with HiveClient(lambda: Address("127.0.0.1", own_hive.port, TOKEN)) as client:
        run = client.runs().result()[0]
        upload = client.demonstrate(run.id, demonstrations.columns, demonstrations.digest)
        client.end_upload(upload.result()).result()
    both = stored(own_hive)

    assert len(live) == 82
    assert same_rows(both.take(slice(82)), live)
    assert same_rows(both.take(slice(82, None)), live)


def test_policies_are_learned_from_as_ordinary_rows_of_their_versions(own_hive, tmp_path):
    with Datalog(tmp_path / "log") as datalog, joined(own_hive, learn="all") as learning:
        learned = learning.learned_log(datalog)
        acting = a_trial(20, origin="walk@3", note="stand-in")
        write_trial(learned, "one", acting, params=hosted_params())
        write_trial(learned, "two", a_trial(10), params=hosted_params())
    training = stored(own_hive, RowKind.TRAINING)

    assert len(training) == 42
    assert set(training.version.tolist()) == {3}
    assert same_rows(stored(own_hive), exported(tmp_path / "log", "two").columns)


def test_a_run_that_the_hive_does_not_have_is_started_and_its_versions_stand_in(hive, client):
    stand_ins = StandIns(run_classes=["walker"])
    worker = stand_ins.open([WALKER])
    with joined(hive, stand_ins.offer, runs={"walker": "fresh"}) as learning:
        eventually(lambda: stand_ins.names.get("walker"))
        run = learning.runs["walker"].run
    worker.close()

    assert stand_ins.names["walker"].startswith("fresh@")
    assert (run.name, run.game, run.features, run.actions) == ("fresh", "a game", 2, 2)
    assert [one.name for one in client.runs().result()].count("fresh") == 1


def test_the_newest_run_of_a_name_is_joined(hive, client):
    for game in ("x", "y"):
        newest = client.create(RunRequest("named", game, Settings(2, 2))).result()
    with joined(hive, runs={"walker": "named"}) as learning:
        found = learning.runs["walker"].run

    assert found.id == newest.id


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        (
            "wide",
            Settings(3, 2),
            "run 'wide' has 3 features and 2 actions, and 'the walker' has 2 features and 2"
            " actions",
        ),
        (
            "chooses",
            Settings(2, 2, (3,)),
            "run 'chooses' has 2 features and 2 actions, of them branches of \\[3\\] choices, and"
            " 'the walker' has 2 features and 2 actions",
        ),
        (
            "rollouts",
            Settings(2, 2, algorithm="ppo"),
            "run 'rollouts' learns by ppo, from rows of its own policy only, and not from what"
            " people do: the algorithm sac does",
        ),
    ],
)
def test_a_run_that_the_class_cannot_take_part_in_is_refused(
    hive, client, name, settings, sentence
):
    client.create(RunRequest(name, "a game", settings)).result()

    with pytest.raises(NotTrainable, match=f"^{sentence}$"):
        joined(hive, runs={"walker": name})


def test_a_run_that_would_take_no_demonstrations_is_not_started(hive, client):
    with pytest.raises(NotTrainable, match="run 'unwanted' learns by ppo"):
        joined(hive, classes=[WALKER, CHOOSER], runs={"walker": "other", "flyer": "unwanted"})

    assert not {one.name for one in client.runs().result()} & {"unwanted", "other"}


def test_a_run_of_ppo_gives_its_versions_where_nothing_is_learned(hive):
    offered = []
    with joined(
        hive, lambda *one: offered.append(one), [CHOOSER], runs={"flyer": "choices"}, learn=""
    ) as learning:
        log = object()
        eventually(lambda: offered)

        assert learning.learned_log(log) is log
    assert offered[0][3] == f"choices@{offered[0][1]}"


def test_options_that_cannot_be_meant_are_refused(hive):
    with pytest.raises(UsageError, match="class 'bird', and the guest has the classes walker"):
        joined(hive, runs={"bird": "fly"})
    for wrong in ({"runs": {}}, {"runs": {"walker": ""}}, {"learn": "x"}, {"rewards": "x"}):
        with pytest.raises(UsageError):
            options(hive, **wrong)


def test_a_hive_that_is_not_there_is_told_at_the_start(tmp_path):
    absent = Served(tmp_path / "hive")

    with pytest.raises(HiveUnreachable, match="no hive answers"):
        joined(absent)
