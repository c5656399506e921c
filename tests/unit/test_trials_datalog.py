"""The log of trials: what is added comes back, whole, and little else can happen to it."""

import asyncio
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.integration.command_line import ENVIRONMENT, ROOT
from tests.sqlite_journals import write_hot_journal
from tests.unit.datalog_parts import (
    ENDED,
    RUNNING,
    action,
    event,
    keeping,
    observations,
    reward,
    trial_params,
    write_trial,
    written,
)
from tests.waiting import eventually

from arkml.errors import UsageError
from arkml.trials.core.error import TrialError
from arkml.trials.core.outputs import Entries, Entry, EntryKind
from arkml.trials.datalog import database, datalog
from arkml.trials.datalog.database import FILE, connect, lock
from arkml.trials.datalog.datalog import Datalog, DatalogOptions
from arkml.trials.datalog.reader import DatalogReader
from arkml.trials.datalog.removal import remove
from arkml.trials.datalog.retention import Retention
from arkml.trials.datalog.samples import samples


def entries_of(directory, trial_id):
    """The entries of a trial, without the changes of its state."""
    with DatalogReader(directory) as reader:
        listed = list(reader.entries(reader.named(trial_id)[0]))
    return [entry for entry in listed if entry.kind != "state"]


def ids(directory):
    with DatalogReader(directory) as reader:
        return [record.id for record in reader.trials()]


def samples_of(directory, trial_id, first_tick=0):
    with DatalogReader(directory) as reader:
        trial = reader.named(trial_id)[0]
        return list(samples(reader, trial, reader.params(trial), first_tick))


def read_all(directory):
    with DatalogReader(directory) as reader:
        for trial in reader.trials():
            list(samples(reader, trial, reader.params(trial)))


def test_what_is_added_before_an_orderly_end_is_all_there(tmp_path):
    given = [action(tick, str(tick).encode()) for tick in range(2_000)]
    written(tmp_path / "log", "t", *given, reason="")

    found = entries_of(tmp_path / "log", "t")
    assert [Entry(EntryKind(entry.kind), *entry[2:8]) for entry in found] == given
    assert {entry.origin for entry in found} == {""}


def test_a_trial_is_listed_with_its_user_state_ticks_and_end(tmp_path):
    params = trial_params()
    written(tmp_path, "t", *map(action, range(7)), user="eve", began=5, params=params, reason="why")

    with DatalogReader(tmp_path) as reader:
        (record,) = reader.trials()
        read = reader.params(record)
    assert (record.id, record.user_id, record.state, record.ticks) == ("t", "eve", ENDED, 7)
    assert (record.began_ns, record.ended_ns, record.reason) == (5, 1_500_000_005, "why")
    assert record.seconds == 1.5
    assert read == params


def test_the_log_is_readable_by_its_owner_alone(tmp_path):
    written(tmp_path / "log", "t", action(0))

    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "log").iterdir()]
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o700
    assert set(modes) == {0o600}


def test_a_tick_holds_what_is_logged_of_it_also_what_came_later(tmp_path):
    written(
        tmp_path,
        "t",
        observations(0, b"seen"),
        action(0, b"a"),
        action(0, b"b", "bob", "default"),
        Entry(EntryKind.MESSAGE, 0, 9, "bob", "ann", b"\n\x01x"),
        reward(0, "ann", 1.0, 3.0),
        observations(1, b"more"),
        event(1, "it rains"),
        reward(0, "player.*", 5.0, 1.0, "bob"),
        reward(0, "bob", 7.0, 0.0),
    )

    first, second = samples_of(tmp_path, "t")
    assert list(first.observations.observations) == [b"seen"]
    assert first.actions == {"ann": (b"a", "given", ""), "bob": (b"b", "default", "")}
    assert first.rewards["ann"].value == 2.0  # (1 * 3 + 5 * 1) / (3 + 1)
    assert first.rewards["bob"].value == 5.0  # that without confidence does not count
    assert [source.sender_name for source in first.rewards["ann"].sources] == ["env", "bob"]
    assert [(one.sender_name, one.payload.type_url) for one in first.messages] == [("ann", "x")]
    assert (first.states, first.events, second.events) == (["RUNNING"], [], ["it rains"])
    assert second.actions == second.rewards == {}


def test_ticks_are_read_from_one_on(tmp_path):
    written(tmp_path, "t", *map(action, range(1_500)))

    assert [sample.tick for sample in samples_of(tmp_path, "t", 1_400)] == [*range(1_400, 1_500)]


def test_a_tick_with_many_entries_is_read_whole(tmp_path):
    written(tmp_path, "t", *(event(3, str(count)) for count in range(1_600)))

    (_, sample) = samples_of(tmp_path, "t")
    assert sample.events == [str(count) for count in range(1_600)]


@pytest.mark.parametrize(
    ("field", "missing"),
    [
        ("observations", {"observations"}),
        ("actions", {"action"}),
        ("rewards", {"reward"}),
        ("messages", {"message"}),
        ("trifles", set()),
    ],
)
def test_excluded_fields_are_left_out(tmp_path, field, missing):
    every = [
        observations(0, b""),
        action(0),
        reward(0, "ann", 1.0),
        Entry(EntryKind.MESSAGE, 0, 1, "ann", "env"),
        event(0, "e"),
    ]
    written(tmp_path, "t", *every, params=trial_params([field]))

    kinds = {entry.kind for entry in entries_of(tmp_path, "t")}
    assert kinds == {entry.kind.value for entry in every} - missing


def test_entries_by_column_are_written_as_those_one_by_one(tmp_path):
    rewards = Entries(EntryKind.REWARD, 2, 7, ["ann", "bob"], "env", [b"", b"r"])
    held = ["held 0.500", "stand-in"]
    actions = Entries(EntryKind.ACTION, 3, 8, ["ann", "bob"], "", [b"a", b""], held, ["eve", "v"])
    none = Entries(EntryKind.ACTION, 3, 8, [], "", [])
    for trial_id, parts in (
        ("columns", [rewards, none, actions]),
        ("rows", [*rewards.rows(), *actions.rows()]),
    ):
        written(tmp_path, trial_id, *parts)
    listed = entries_of(tmp_path, "columns")

    assert [(entry.name, entry.content, entry.note, entry.origin) for entry in listed] == [
        ("ann", b"", "", ""),
        ("bob", b"r", "", ""),
        ("ann", b"a", "held 0.500", "eve"),
        ("bob", b"", "stand-in", "v"),
    ]
    assert [one._replace(number=0) for one in listed] == [
        one._replace(number=0) for one in entries_of(tmp_path, "rows")
    ]


def test_a_trial_is_cut_off_at_the_largest_of_entries_by_column(tmp_path, monkeypatch):
    monkeypatch.setattr("arkml.trials.datalog.datalog.MOST_VALUE", 1_000)
    contents = [b"", bytes(1_001)]
    written(tmp_path, "t", Entries(EntryKind.REWARD, 0, 7, ["ann", "bob"], "env", contents))

    with DatalogReader(tmp_path) as reader:
        (record,) = reader.named("t")
    assert record.reason == "cut off: an entry of 1,001 bytes is not logged"


def test_trials_that_run_at_once_keep_their_entries_apart(tmp_path):
    with Datalog(tmp_path) as log:
        for trial in "abc":
            log.begin(trial, "u", trial_params(), 1)
        for tick in range(300):
            for trial in "abc":
                log.add(trial, action(tick, trial.encode()))
        for trial in "abc":
            log.end(trial, 2, "")

    for trial in "abc":
        found = entries_of(tmp_path, trial)
        assert [(entry.tick, entry.content) for entry in found] == [
            (tick, trial.encode()) for tick in range(300)
        ]


def test_a_running_trial_can_be_read_while_it_is_written(tmp_path):
    with Datalog(tmp_path) as log, DatalogReader(tmp_path) as reader:
        log.begin("t", "u", trial_params(), 1)
        log.state("t", RUNNING, 1)
        log.add("t", action(4))
        record = eventually(lambda: [one for one in reader.trials() if one.ticks])[0]

        assert (record.state, record.ended_ns, record.ticks) == (RUNNING, None, 5)


def test_an_id_may_come_again_and_the_newest_is_meant(tmp_path):
    written(tmp_path, "t", action(0, b"old"))
    written(tmp_path, "t", action(0, b"new"))

    assert [entry.content for entry in entries_of(tmp_path, "t")] == [b"new"]
    assert ids(tmp_path) == ["t", "t"]


def test_entries_of_trials_that_are_not_open_are_ignored(tmp_path):
    with Datalog(tmp_path) as log:
        log.add("never", action(0))
        write_trial(log, "t", [action(0)])
        log.add("t", action(1))
        log.state("t", RUNNING, 1)
        log.end("t", 1, "again")

    assert [entry.tick for entry in entries_of(tmp_path, "t")] == [0]
    assert ids(tmp_path) == ["t"]


WRITER = """
import sys, time
from pathlib import Path
from tests.unit.datalog_parts import action, trial_params
from arkml.trials.datalog.datalog import Datalog
log = Datalog(Path(sys.argv[1]))
for trial in "ab":
    log.begin(trial, "u", trial_params(), time.time_ns())
print("begun", flush=True)
tick = 0
while True:
    for trial in "ab":
        log.add(trial, action(tick, b"?" * 100))
    tick += 1
    if tick % 20 == 0:
        time.sleep(0.001)
"""


def test_a_killed_server_leaves_trials_that_are_whole_to_their_last_entry(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE, cwd=ROOT, env=ENVIRONMENT
    ) as process:
        assert process.stdout.readline() == b"begun\n"
        reader = DatalogReader(tmp_path)
        eventually(lambda: min((one.ticks for one in reader.trials()), default=0) > 1_000)
        process.send_signal(signal.SIGKILL)
    before = [record.ended_ns for record in reader.trials()]
    reader.close()
    with Datalog(tmp_path):
        pass

    assert before == [None, None]
    for trial in "ab":
        found = entries_of(tmp_path, trial)
        with DatalogReader(tmp_path) as reader:
            record = reader.named(trial)[0]
        assert [entry.tick for entry in found] == [*range(record.ticks)]
        assert (record.state, record.reason) == (ENDED, "cut off")
        assert record.ended_ns == found[-1].timestamp


def test_two_servers_cannot_have_one_directory(tmp_path):
    with Datalog(tmp_path), pytest.raises(TrialError, match="in use by another server"):
        Datalog(tmp_path)


def test_ended_trials_beyond_a_number_are_removed_the_oldest_first(tmp_path):
    with Datalog(tmp_path, keeping(kept_trials=2)) as log:
        log.begin("runs", "u", trial_params(), 1)
        for trial in "abcd":
            write_trial(log, trial, map(action, range(200)))

        assert eventually(lambda: ids(tmp_path) == ["d", "c", "runs"])
        log.add("runs", action(0))
    with DatalogReader(tmp_path) as reader:
        left = reader._rows("SELECT count(*), count(DISTINCT trial) FROM entries", ())
    assert left == [(2 * 201 + 1, 3)]


def test_trials_beyond_a_number_of_bytes_are_removed_and_the_file_shrinks(tmp_path):
    with Datalog(tmp_path) as log:
        for trial in "abc":
            write_trial(log, trial, (action(tick, bytes(60_000)) for tick in range(200)))
    before = (tmp_path / FILE).stat().st_size
    with Datalog(tmp_path, keeping(most_bytes=14_000_000)):
        eventually(lambda: ids(tmp_path) == ["c"])
        eventually(lambda: pages(tmp_path) < 6_000)
    after = (tmp_path / FILE).stat().st_size

    assert before > 36_000_000
    assert after < 6_000 * 4_096


def test_small_trials_beyond_a_number_of_bytes_are_all_removed(tmp_path):
    with Datalog(tmp_path) as log:
        for trial in "abcd":
            write_trial(log, trial, (action(tick, bytes(60_000)) for tick in range(20)))
    with Datalog(tmp_path, keeping(most_bytes=2_000_000)):
        eventually(lambda: ids(tmp_path) == ["d"])


def pages(directory):
    with DatalogReader(directory) as reader:
        return reader._rows("PRAGMA page_count", ())[0][0]


def test_a_trial_that_fills_the_log_by_itself_is_a_failure_until_there_is_room(tmp_path):
    with Datalog(tmp_path, keeping(most_bytes=1_000_000)) as log:
        log.begin("t", "u", trial_params(), 1)
        for tick in range(30):
            log.add("t", action(tick, bytes(60_000)))
        reason = eventually(lambda: log.failure)
        log.end("t", 2, reason)
        eventually(lambda: not log.failure)

        assert "has reached 1,000,000 bytes" in reason
        assert ids(tmp_path) == []


@pytest.fixture
async def failing(tmp_path):
    """A log, and the failures that it reports."""
    reasons = asyncio.Queue()
    told_on = []

    def take(reason):
        told_on.append(threading.get_ident())
        reasons.put_nowait(reason)

    loop = asyncio.get_running_loop()
    log = Datalog(tmp_path, DatalogOptions(most_entries=2_000), loop=loop, on_failure=take)
    yield log, reasons
    await asyncio.to_thread(log.close)
    assert set(told_on) <= {threading.get_ident()}


def no_more(log):
    """Let the file of a log be locked by another connection."""
    other = sqlite3.connect(log.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other


async def test_a_locked_log_fails_and_writes_what_waited_once_it_is_free(tmp_path, failing):
    log, reasons = failing
    log.begin("t", "u", trial_params(), 1)
    log.add("t", action(0))
    other = no_more(log)
    log.add("t", action(1))
    reason = await reasons.get()
    failure = log.failure
    log.add("t", action(2))
    other.close()
    await asyncio.to_thread(eventually, lambda: not log.failure)
    log.end("t", 2, "")

    assert "another process has locked it" in reason
    assert failure == reason
    await asyncio.to_thread(log.close)
    assert [entry.tick for entry in entries_of(tmp_path, "t")] == [0, 1, 2]


async def test_a_trial_for_which_there_is_no_room_is_cut_off_and_has_no_gap(tmp_path, failing):
    log, reasons = failing
    other = no_more(log)
    log.begin("t", "u", trial_params(), 1)
    for tick in range(5_000):
        log.add("t", action(tick))
    reason = await reasons.get()
    log.begin("refused", "u", trial_params(), 1)
    other.close()
    await asyncio.to_thread(eventually, lambda: not log.failure)
    await asyncio.to_thread(log.close)

    with DatalogReader(tmp_path) as reader:
        (record,) = reader.trials()
    assert "too slow" in reason
    assert record.reason == "cut off: the log of trials could not be written in time"
    assert [entry.tick for entry in entries_of(tmp_path, "t")] == [*range(1_999)]


async def test_a_log_that_is_damaged_while_it_is_written_fails(failing):
    log, reasons = failing
    log.begin("t", "u", trial_params(), 1)
    with DatalogReader(log.path.parent) as reader:
        await asyncio.to_thread(eventually, reader.trials)
        reader._rows("SELECT 1", ())
    log.path.write_bytes(b"?" * 40_000)
    log.path.with_name(f"{FILE}-wal").write_bytes(b"?" * 40_000)
    await asyncio.to_thread(eventually, lambda: log.add("t", action(0)) or log.failure)

    assert "cannot be used" in await reasons.get()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"?" * 5_000, "not a log of trials"),
        (b"", "not a log of trials"),
        (b"SQLite format 3\0" + bytes(90), "not a log of trials"),
    ],
)
def test_a_file_that_is_not_a_log_is_refused(tmp_path, content, reason):
    (tmp_path / FILE).write_bytes(content)

    for opened in (Datalog, DatalogReader):
        with pytest.raises(TrialError, match=reason):
            opened(tmp_path)
    assert (tmp_path / FILE).read_bytes() == content


def altered(directory, *statements):
    with sqlite3.connect(directory / FILE) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return directory


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("PRAGMA user_version = 2", "of version 2: this arkml reads version 1"),
        ("PRAGMA application_id = 2", "is not a log of trials"),
        ("CREATE TABLE more (a)", "its tables are others"),
        ("CREATE VIEW more AS SELECT 1", "its tables are others"),
        ("CREATE TRIGGER t AFTER INSERT ON trials BEGIN SELECT 1; END", "its tables are others"),
        ("DROP INDEX entries_by_tick", "its tables are others"),
    ],
)
def test_a_log_of_another_kind_is_refused(tmp_path, statement, reason):
    altered(written(tmp_path, "t", action(0)), statement)

    for opened in (Datalog, DatalogReader):
        with pytest.raises(TrialError, match=reason):
            opened(tmp_path)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE trials SET state = 77", "state 77"),
        ("UPDATE trials SET state = 'x'", "'x' stands where"),
        ("UPDATE trials SET began_ns = 1.5", "1.5 stands where"),
        ("UPDATE trials SET ended_ns = x'00'", "stands where"),
        ("UPDATE trials SET id = x'00'", "stands where"),
        ("UPDATE trials SET reason = CAST(x'ff' AS TEXT)", "UTF-8"),
        ("UPDATE trials SET params = x'ff'", "a TrialParams"),
        ("UPDATE trials SET params = 'text'", "'text' stands where"),
        ("UPDATE entries SET kind = 9", "kind 9"),
        ("UPDATE entries SET tick = 'one'", "'one' stands where"),
        ("UPDATE entries SET content = 5", "stands where"),
        ("UPDATE entries SET content = x'ff' WHERE kind = 3", "a RewardSource"),
        ("UPDATE entries SET content = x'ff' WHERE kind = 1", "a ObservationSet"),
        ("UPDATE entries SET content = x'ff' WHERE kind = 4", "a Any"),
        ("UPDATE entries SET name = x'00'", "stands where"),
    ],
)
def test_a_log_with_values_that_cannot_be_is_refused_in_a_sentence(tmp_path, statement, reason):
    every = [
        observations(0, b""),
        action(0),
        reward(0, "ann", 1.0),
        Entry(EntryKind.MESSAGE, 0, 1, "ann", "env"),
    ]
    altered(written(tmp_path, "t", *every), statement)

    with pytest.raises(TrialError, match=reason):
        read_all(tmp_path)


def test_a_value_that_is_too_large_is_refused_before_it_is_read(tmp_path, monkeypatch):
    altered(written(tmp_path, "t", action(0)), "UPDATE entries SET content = zeroblob(2000000)")
    monkeypatch.setattr(database, "MOST_VALUE", 1_000_000)

    with pytest.raises(TrialError, match="it holds a value that is too large"):
        samples_of(tmp_path, "t")


def test_an_entry_that_is_too_large_cuts_its_trial_off_in_the_log_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(datalog, "MOST_VALUE", 1_000)
    with Datalog(tmp_path) as log:
        write_trial(log, "t", [action(0), action(1, bytes(1_001)), action(2)])
        write_trial(log, "other", [action(0)])

        assert not log.failure
    with DatalogReader(tmp_path) as reader:
        other, record = reader.trials()
    assert (record.ticks, record.reason) == (1, "cut off: an entry of 1,001 bytes is not logged")
    assert (other.ticks, other.reason) == (1, "")


def test_every_truncation_of_a_log_is_refused_or_read(tmp_path):
    written(tmp_path, "t", *(action(tick, bytes(3_000)) for tick in range(20)))
    whole = (tmp_path / FILE).read_bytes()
    refused = 0
    for size in range(100, len(whole), 4_000):
        (tmp_path / FILE).write_bytes(whole[:size])
        try:
            samples_of(tmp_path, "t")
        except TrialError:
            refused += 1

    assert refused > 10


@pytest.mark.parametrize("seed", range(40))
def test_a_log_with_changed_bytes_is_refused_or_read(tmp_path, seed):
    chance = random.Random(seed)
    written(tmp_path, "t", *(action(tick, bytes(500)) for tick in range(20)))
    content = bytearray((tmp_path / FILE).read_bytes())
    for _ in range(50):
        content[chance.randrange(len(content))] = chance.randrange(256)
    (tmp_path / FILE).write_bytes(content)
    outcomes = set()
    for use in (read_all, lambda place: remove(place, lambda reader: reader.trials())):
        try:
            use(tmp_path)
            outcomes.add("used")
        except TrialError as error:
            outcomes.add(type(error).__name__)

    assert outcomes <= {"used", "TrialError"}


def test_without_a_log_there_is_a_sentence_and_nothing_is_made(tmp_path):
    with pytest.raises(TrialError, match="there is no log of trials at"):
        DatalogReader(tmp_path / "log")
    with pytest.raises(TrialError, match="there is no log of trials at"):
        remove(tmp_path / "log", lambda reader: reader.trials())

    assert not (tmp_path / "log").exists()


@pytest.fixture
def closed_log(tmp_path):
    """A log that no process has open, without files beside it."""
    return written(tmp_path / "log", "trial")


USES = {"read": DatalogReader, "write": Datalog, "remove": lambda log: remove(log, list)}


@pytest.mark.parametrize("use", USES)
def test_a_journal_that_names_another_file_is_not_followed(closed_log, tmp_path, use):
    victim = tmp_path / "victim"
    victim.write_text("key")
    journal = write_hot_journal(closed_log / FILE, victim)

    with pytest.raises(TrialError, match=f"{journal.name} does not belong to a log of trials"):
        USES[use](closed_log)
    assert victim.exists()


def test_a_journal_beside_the_target_of_a_link_is_not_followed(closed_log, tmp_path):
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_text("key")
    link.mkdir()
    (link / FILE).symlink_to(closed_log / FILE)
    write_hot_journal(closed_log / FILE, victim)

    with pytest.raises(TrialError, match="does not belong to a log of trials"):
        Datalog(link)
    assert victim.exists()


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
@pytest.mark.parametrize("end", ["-journal", "-wal", "-shm"])
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_is_no_plain_file_beside_a_log_is_refused(closed_log, tmp_path, mode, end, kind):
    path = closed_log / (FILE + end)
    with sqlite3.connect(closed_log / FILE) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
    connection.close()
    os.mkfifo(path) if kind == "pipe" else path.symlink_to(tmp_path / "elsewhere")

    for use in USES.values():
        with pytest.raises(TrialError, match=f"{path.name} does not belong to a log of trials"):
            use(closed_log)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_lock_that_is_no_plain_file_is_refused(tmp_path, kind):
    path, elsewhere = tmp_path / "log" / "trials.lock", tmp_path / "elsewhere"
    path.parent.mkdir()
    os.mkfifo(path) if kind == "pipe" else path.symlink_to(elsewhere)

    with pytest.raises(TrialError, match=r"trials\.lock cannot be used: it is not a plain file"):
        lock(path.parent)
    assert not elsewhere.exists()


def test_a_log_in_another_mode_is_written_in_its_own_again(closed_log):
    with sqlite3.connect(closed_log / FILE) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    connect(closed_log / FILE, "rw", 1.0).close()

    with sqlite3.connect(closed_log / FILE) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(TrialError, match="cannot be used: Not a directory"):
        Datalog(tmp_path / "file" / "log")


def test_trials_are_removed_also_while_a_server_writes(tmp_path):
    with Datalog(tmp_path) as log:
        for trial in "abc":
            write_trial(log, trial, map(action, range(300)))
        log.begin("runs", "u", trial_params(), 1)
        eventually(lambda: ids(tmp_path) == ["runs", "c", "b", "a"])
        removed = remove(tmp_path, lambda reader: reader.named("a") + reader.named("c"))
        log.add("runs", action(0))

        with pytest.raises(TrialError, match="'runs' is running"):
            remove(tmp_path, lambda reader: reader.trials())
    assert [record.id for record in removed] == ["a", "c"]
    assert ids(tmp_path) == ["runs", "b"]
    assert len(entries_of(tmp_path, "runs")) == 1


def test_a_trial_of_a_killed_server_can_be_removed(tmp_path):
    written(tmp_path, "t", action(0))
    altered(tmp_path, "UPDATE trials SET ended_ns = NULL, state = 3")
    removed = remove(tmp_path, lambda reader: reader.trials())

    assert [(record.id, record.reason) for record in removed] == [("t", "cut off")]
    assert ids(tmp_path) == []


@pytest.mark.parametrize("name", ["kept_trials", "most_bytes"])
def test_limits_of_nothing_are_refused(name):
    with pytest.raises(UsageError, match=f"{name} is 0"):
        Retention(**{name: 0})


@pytest.mark.parametrize("name", ["most_entries", "most_waiting"])
def test_a_queue_of_nothing_is_refused(name):
    with pytest.raises(UsageError, match=f"{name} is 0"):
        DatalogOptions(**{name: 0})


class ClosedMeanwhile(threading.Event):
    """An Event between whose wait and clear its log is closed by another thread."""

    def __init__(self, log):
        super().__init__()
        self.closer = threading.Thread(target=log.close, daemon=True)
        self._is_set_again = threading.Event()

    def set(self):
        super().set()
        self._is_set_again.set()

    def clear(self):
        if self.closer.ident is None:
            self.closer.start()
            self._is_set_again.wait()
        super().clear()


def test_a_log_that_is_closed_at_the_turn_of_its_thread_does_not_wait_for_ever(tmp_path):
    log = Datalog(tmp_path)
    eventually(lambda: not log._is_removing)
    before, log._wake = log._wake, ClosedMeanwhile(log)
    before.set()
    eventually(lambda: log._closing.is_set())
    log._wake.closer.join(300)

    assert not log._wake.closer.is_alive()
    assert not log._thread.is_alive()


def test_closing_frees_the_thread_and_the_files_and_may_be_done_again(tmp_path):
    before, threads = set(Path("/proc/self/fd").iterdir()), threading.active_count()
    log = Datalog(tmp_path)
    log.close()
    log.close()

    assert set(Path("/proc/self/fd").iterdir()) <= before  # those of other tests may end meanwhile
    assert threading.active_count() <= threads
