"""The policy and the files of a training, when a part of what belongs to them fails."""

import contextlib
import json
import logging
import os
import pty
import re
import shlex
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from tests.integration.command_line import GUESTS
from tests.integration.guest_text import ACTOR
from tests.integration.scripted_hive import ScriptedHive, raw
from tests.waiting import eventually

from arkml import HiveGrant, Host
from arkml.cli import logs, training_display
from arkml.cli.training_display import TrainingDisplay, command_to_play, infers, pace_of, show
from arkml.errors import HiveRefused, NotFound, ProtocolError
from arkml.hive.protocol.result_messages import EvaluationReport
from arkml.hive.protocol.runs import Best, RunDetails, RunInfo, RunRequest, Status
from arkml.hive.protocol.settings import Settings
from arkml.host import hives_of
from arkml.limits import Limits
from arkml.training import pictures
from arkml.training.monitor import RunMonitor
from arkml.training.outcome import RunOutcome, gather
from arkml.training.results import TrainingProgress
from arkml.training.training_files import write_files
from arkml.training.training_options import TrainingOptions

RUN = RunInfo("r1", "run", "game", Status.RUNNING, 3, 2, 0)
TABLE = {
    "guest": "a.wasm", "name": "a", "frames": 10, "rows": 160, "updates": 80, "versions": 2,
    "seconds": 2.0, "fps": None, "mean_return": {"first": None}, "evaluations": [],
    "workers": [], "policy": {"which": "now", "onnx": "a.onnx", "crvo": None}, "curve": "a.png",
    "other_policies": {}, "traces": None, "play": None, "metrics": {}, "health": [], "refusals": {},
}  # fmt: skip
"""The result of a training, as a table shows it."""


def told(values):
    return json.dumps(values).encode()


@pytest.fixture
def hive():
    made = ScriptedHive()
    made.scripts = {"evaluations": [raw(b"nonsense")], "snapshot": [raw(b"the best")]}
    yield made
    made.close()


def test_a_report_of_an_evaluation_that_failed_does_not_cost_the_best_policy(hive):
    with Host(hive=HiveGrant(f"127.0.0.1:{hive.port}")) as host:
        client, guest = hives_of(host).client(), host.load(ACTOR)
        report = client.evaluate("r1", EvaluationReport(1, [1.0], [1]))
        error = report.exception(300)
        with RunMonitor(hives_of(host), lambda _: None) as monitor:
            outcome = gather(client, RUN, guest, monitor, [report])

    assert isinstance(error, ProtocolError)
    assert (outcome.kind, outcome.best) == ("best", b"the best")


@pytest.fixture
def grounded():
    """A host whose hive never answers."""
    with Host(hive=HiveGrant("127.0.0.1:1")) as made:
        yield made


class Ended:
    """A client of a hive whose learner makes its first update at its end."""

    is_gone = False

    def __init__(self, *infos, policy=b"a policy"):
        self._infos, self._policy = list(infos), policy

    def run(self, _):
        return done(self._infos.pop(0) if self._infos[1:] else self._infos[0])

    def details(self, _):
        return done(RunDetails(RUN, Settings(3, 2), None))

    def snapshot(self, *_):
        if self._policy is None:
            return failed(HiveRefused("there is no such policy", 404))
        return done(self._policy)

    def series(self, *_):
        return done([])

    metrics = series


def done(value):
    future = Future()
    future.set_result(value)
    return future


def failed(error):
    future = Future()
    future.set_exception(error)
    return future


class Rated(Ended):
    """A client of a hive that has rated a policy."""

    def details(self, _):
        return done(RunDetails(RUN, Settings(3, 2), Best("training", 7.5, 3, 40)))


def test_the_best_policy_comes_with_the_mean_return_that_it_is_rated_by(grounded):
    guest = grounded.load(ACTOR)
    with RunMonitor(hives_of(grounded), lambda _: None) as monitor:
        rated, unrated = (gather(one(RUN), RUN, guest, monitor) for one in (Rated, Ended))

    assert (rated.kind, rated.score, unrated.score) == ("best", 7.5, None)
    assert (rated.rated_by, unrated.rated_by) == ("training", None)


@pytest.mark.parametrize(
    ("last", "reason"), [(1, ""), (0, "nothing was learned: the learner has made no update")]
)
def test_an_update_that_a_learner_makes_at_its_end_is_learned(grounded, last, reason):
    over = replace(RUN, status=Status.STOPPED, rows=5_000)
    client = Ended(over, replace(over, n_opts=last))
    with RunMonitor(hives_of(grounded), lambda _: None) as monitor:
        outcome = gather(client, RUN, grounded.load(ACTOR), monitor, wants_update=True)

    assert outcome.unlearned.startswith(reason)
    assert bool(outcome.unlearned) == bool(reason)


@pytest.mark.parametrize(
    ("read", "due", "reason"),
    [
        (320, 0, "mine wants more rows than the 320 that there are: train for longer"),
        (300, 0, "the learner has made no update of 320 rows"),
        (320, 1, "the learner has made no update of 320 rows"),
        (320, None, "the learner has made no update of 320 rows"),
    ],
)
def test_a_learner_of_a_package_that_has_read_all_rows_and_has_no_update_due_is_not_waited_for(
    grounded, monkeypatch, caplog, read, due, reason
):
    latest = {"time/total_timesteps": read} | ({} if due is None else {"hive/updates_due": due})
    client, waits = Packaged(replace(RUN, rows=320, latest=latest)), due != 0 or read < 320
    monkeypatch.setattr("arkml.training.outcome._PATIENCE_UPDATE", 0.05 if waits else 1e9)
    monkeypatch.setattr("arkml.training.outcome._TOLD_AFTER", 0.0)
    caplog.set_level("INFO")
    with RunMonitor(hives_of(grounded), lambda _: None) as monitor:
        outcome = gather(client, RUN, grounded.load(ACTOR), monitor, wants_update=True)

    assert outcome.unlearned == f"nothing was learned: {reason}"
    told = "run run: waiting for the first update of mine, 0.05 s at most"
    assert (told in caplog.messages) is waits


class Reporting(Ended):
    """A client of a hive whose learner reports the rows that it has read after a moment."""

    def metrics(self, _):
        read = self._infos[0].latest["time/total_timesteps"]
        return done([("time/total_timesteps", read, 0)])


def test_the_metrics_of_a_training_are_of_its_last_rows(grounded):
    known = replace(RUN, status=Status.RUNNING, rows=320)
    infos = [replace(known, latest={"time/total_timesteps": read}) for read in (64.0, 256.0, 320.0)]
    with RunMonitor(hives_of(grounded), lambda _: None) as monitor:
        outcome = gather(Reporting(*infos), RUN, grounded.load(ACTOR), monitor)

    assert outcome.metrics == {"time/total_timesteps": 320.0}


class Late(Ended):
    """A client of a hive that does not answer a question about its run in time, but the next."""

    def __init__(self, *infos):
        super().__init__(*infos)
        self._late = [Future()]

    def run(self, _):
        return self._late.pop() if self._late else super().run(_)


def test_an_answer_that_comes_too_late_does_not_hide_that_nothing_was_learned(
    grounded, monkeypatch
):
    monkeypatch.setattr("arkml.training.outcome._PATIENCE_UPDATE", 0.1)
    client = Late(replace(RUN, rows=5_000))
    with RunMonitor(hives_of(grounded), lambda _: None) as monitor:
        outcome = gather(client, RUN, grounded.load(ACTOR), monitor, wants_update=True)

    assert outcome.unlearned == "nothing was learned: the learner has made no update of 5,000 rows"


def test_updates_that_a_dead_learner_has_lost_were_made(grounded):
    died = replace(RUN, rows=5_000, reason="killed", latest={"hive/learner_ends": 1.0})
    with RunMonitor(hives_of(grounded), lambda _: None) as monitor:
        monitor.updates = 3
        outcome = gather(Ended(died), RUN, grounded.load(ACTOR), monitor, wants_update=True)

    assert outcome.unlearned == ""


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (Status.RUNNING, "its learner had not begun, train for longer"),
        (Status.STOPPED, "the run is stopped"),
    ],
)
def test_a_run_whose_learner_had_not_begun_is_told_once(grounded, status, reason):
    run = replace(RUN, status=status)
    with (
        RunMonitor(hives_of(grounded), lambda _: None) as monitor,
        pytest.raises(NotFound) as error,
    ):
        gather(Ended(run, policy=None), RUN, grounded.load(ACTOR), monitor, wants_update=True)

    assert str(error.value) == f"run 'run' has no policy yet: {reason}"


@pytest.mark.parametrize(
    ("status", "advice"),
    [(Status.RUNNING, "train for longer"), (Status.STOPPED, "the run is stopped")],
)
def test_a_longer_training_is_advised_only_where_the_run_goes_on(grounded, status, advice):
    client = Ended(replace(RUN, status=status, rows=320))
    with RunMonitor(hives_of(grounded), lambda _: None) as monitor:
        outcome = gather(client, RUN, grounded.load(ACTOR), monitor, wants_update=True)

    assert outcome.unlearned == (
        "nothing was learned: sac begins with 1,001 rows (memory_min_size), and there are 320:"
        f" {advice}"
    )


def test_a_run_whose_learner_died_before_its_first_policy_names_the_reason(grounded):
    died = Ended(replace(RUN, reason="ValueError: no\x1b[2J good"), policy=None)
    with (
        RunMonitor(hives_of(grounded), lambda _: None) as monitor,
        pytest.raises(NotFound) as error,
    ):
        gather(died, RUN, grounded.load(ACTOR), monitor, wants_update=True)

    assert str(error.value) == (
        r"run 'run' has no policy yet: its learner ended: ValueError: no\x1b[2J good"
    )


class Packaged(Ended):
    """A client of a hive whose run learns by the algorithm of a package."""

    def details(self, _):
        return done(RunDetails(RUN, Settings(3, 2, algorithm="mine"), None))


@pytest.mark.parametrize(
    ("rejection", "reason"),
    [
        ("", "there are no rows: the guest pushed none"),
        ("version 1 of run r1 is not used: no model", "version 1 of run r1 is not used: no model"),
    ],
)
def test_an_algorithm_of_a_package_that_got_no_rows_is_told_with_the_reason(
    grounded, monkeypatch, rejection, reason
):
    membership = SimpleNamespace(
        deliver=lambda: True, latest=None, rejection=rejection, irregular={}
    )
    monkeypatch.setattr("arkml.training.outcome.membership_of", lambda _: membership)
    with RunMonitor(hives_of(grounded), lambda _: None) as monitor:
        outcome = gather(Packaged(RUN), RUN, grounded.load(ACTOR), monitor, wants_update=True)

    assert outcome.unlearned == f"nothing was learned: {reason}"


def test_a_curve_that_cannot_be_drawn_is_told_and_costs_no_policy(tmp_path):
    options = TrainingOptions("guest.v2.wasm", tmp_path)
    run = RunInfo("r1", r"$\nonsense$", "game", Status.RUNNING, 3, 2, 0)  # not mathematics
    outcome = RunOutcome("best", b"a policy", "now", b"the last", [(1, 0.5)], [], {}, run)
    files, (error,) = write_files(options, outcome, options.stem)

    assert (tmp_path / "guest.v2.onnx").read_bytes() == b"a policy"
    assert (tmp_path / "guest.v2.last.onnx").read_bytes() == b"the last"
    assert set(files) == {"onnx", "crvo", "last"}
    assert f"{tmp_path / 'learning_curve.png'} cannot be made: ValueError" in str(error)


@pytest.mark.parametrize("is_installed", [True, False])
def test_a_curve_is_drawn_where_matplotlib_is_installed_and_else_told_how(
    tmp_path, monkeypatch, capsys, is_installed
):
    monkeypatch.setattr(pictures, "find_spec", lambda _: object() if is_installed else None)
    options = TrainingOptions("guest.v2.wasm", tmp_path)
    run = RunInfo("r1", "reach", "game", Status.RUNNING, 3, 2, 0)
    outcome = RunOutcome("best", b"a policy", "now", b"the last", [(1, 0.5)], [], {}, run)
    files, errors = write_files(options, outcome, options.stem)
    show(TABLE | {"curve": str(files["curve"]) if is_installed else None}, is_new=True)
    told = " ".join(capsys.readouterr().out.split())

    assert errors == []
    assert (tmp_path / "learning_curve.png").exists() == is_installed
    assert ("pip install matplotlib draws it" in told) == (not is_installed)
    assert ("arkml report" in told) == (not is_installed)


@pytest.fixture
def said_of(hive, capsys):
    """What a training says on the terminal when its run, which learned, is like this one."""

    def say(run):
        hive.scripts = {
            "runs": [raw(told({"run": RUN.as_json()}))],
            "r1": [raw(told({"run": one.as_json()})) for one in (RUN, run)],
            "metrics": [raw(b'{"metrics": []}')],
            "series": [raw(b'{"series": []}')],
        }
        with Host(hive=HiveGrant(f"127.0.0.1:{hive.port}", shared=True)) as host:
            hives = hives_of(host)
            hives.start(hives.client(), RunRequest("run", "game", Settings(3, 2))).result(300)
            display = TrainingDisplay()
            with RunMonitor(hives, lambda _: None, display) as monitor:
                eventually(lambda: len(hive.times.get("metrics", [])) > 1)
            display.warn_rest(monitor.warnings)
        return capsys.readouterr().err

    return say


def test_what_a_hive_says_of_a_learner_cannot_write_over_the_terminal(said_of):
    said = said_of(replace(RUN, status=Status.UNHEALTHY, reason="killed\x1b[2J\x07"))

    assert said == "the learner ended, another one starts: killed\\x1b[2J\n"


def test_a_run_that_ends_because_of_its_time_is_not_told_as_a_learner_that_ended(said_of):
    assert said_of(replace(RUN, status=Status.STOPPED, reason="it has lasted the 3 s")) == ""


@pytest.mark.parametrize(
    ("metrics", "shown"),
    [
        ({"hive/updates_per_row": 0.4381, "hive/updates_per_row_wanted": 1.0}, "0.438 of 1"),
        ({"hive/updates_per_row": 12.0}, "12"),
        ({}, ""),
    ],
)
def test_updates_for_each_row_are_shown_as_reached_and_wanted(metrics, shown):
    assert pace_of(metrics) == shown


def test_a_continued_training_shows_the_rate_of_its_own_updates(monkeypatch, capsys):
    times = iter((0.0, 1.0, 11.0))
    clock = SimpleNamespace(monotonic=lambda: next(times))
    monkeypatch.setattr(training_display, "time", clock)
    display = TrainingDisplay()
    for frames, updates in ((1, 40_000), (100, 41_000)):
        metrics = {"train/n_updates": float(updates)}
        display(TrainingProgress("r1", frames, 0.0, 0, 0, 0, None, None, metrics, (), ()))

    assert capsys.readouterr().err == "100 frames, 9/s | 41,000 updates, 100/s\n"


ON_A_TERMINAL = """
import logging
from arkml.cli import training_display
from arkml.cli.logs import LogOptions
from arkml.training.results import TrainingProgress

LogOptions().start()
training_display._INTERVAL_TERMINAL = 0
with training_display.TrainingDisplay() as display:
    for frames, warnings in ((1, ()), (2, ("beware",)), (3, ())):
        display(TrainingProgress("r1", frames, 0.0, 0, 0, 0, None, None, {}, (), warnings))
        logging.getLogger("arkml.guest.npc").info("a line of [bold] after %d", frames)
print("the table")
"""


def test_what_others_write_on_a_terminal_comes_above_the_line_of_a_training():
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", ON_A_TERMINAL],
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "80"},
    )
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # at its end
        while part := os.read(ours, 4_096):
            said += part
    os.close(ours)
    lines = [after_erasures(line) for line in said.decode().split("\n")]
    *above, line, table = filter(None, lines)

    assert process.wait() == 0
    assert above == [
        "INFO    npc: a line of [bold] after 1",
        "beware",
        "INFO    npc: a line of [bold] after 2",
        "INFO    npc: a line of [bold] after 3",
    ]
    assert re.fullmatch(r"3 frames, [\d,]+/s", line)
    assert table == "the table"


def after_erasures(line):
    """What a line of a terminal shows that was written over."""
    shown = line.rpartition("\x1b[2K")[2]
    return re.sub(r"\x1b\[[?0-9;]*[a-z]", "", shown).strip("\r")


PACE = {"hive/updates_per_row": 0.25, "hive/updates_per_row_wanted": 1.0}


@pytest.mark.parametrize(
    ("is_new", "metrics", "shown"),
    [
        (True, PACE, "80 (40/s, 0.5 of 1 a row)"),
        (False, PACE, "80 (0.25 of 1 a row)"),
        (False, {}, "80"),
    ],
)
def test_the_table_has_no_rate_of_updates_that_another_training_has_made(
    capsys, is_new, metrics, shown
):
    show(TABLE | {"metrics": metrics}, is_new=is_new)
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if "updates" in line]

    assert not any("play it" in line for line in lines)  # there is nothing to play
    assert line.split("updates")[1].strip() == shown


@pytest.mark.parametrize(
    ("guest", "policy", "options", "words"),
    [
        (
            "my guests/a b.wasm",
            "it's/a.onnx",
            {},
            ["my guests/a b.wasm", "--policy", "it's/a.onnx"],
        ),
        ("-a.wasm", "a.onnx", {}, ["./-a.wasm", "--policy", "a.onnx"]),
        (
            "a.wasm",
            "a.onnx",
            {"arguments": "to there"},
            ["a.wasm", "--policy", "a.onnx", "--cmdlet", "to there"],
        ),
        (
            "a.wasm",
            "a.onnx",
            {"limits": Limits(rows=9, run_seconds=None)},
            ["a.wasm", "--policy", "a.onnx", "--limit", "rows=9", "--limit", "run_seconds=none"],
        ),
        ("a.wasm", "a.onnx", {"wasi": True}, ["a.wasm", "--policy", "a.onnx", "--wasi"]),
    ],
    ids=["blanks", "a dash", "arguments", "limits", "wasi"],
)
def test_the_command_that_plays_a_policy_can_be_pasted(guest, policy, options, words):
    given = TrainingOptions("a.wasm", Path("out"), **options)

    command = command_to_play(Path(guest), [policy], given, infers=True)

    assert shlex.split(command) == ["arkml", "run", *words]


@pytest.mark.parametrize(
    ("limit", "words"), [(None, []), (200, ["--max-episode-steps", "200"])], ids=["", "limit"]
)
def test_a_guest_that_only_trains_is_played_by_evaluate(limit, words):
    given = TrainingOptions("a.wasm", Path("out"), max_episode_steps=limit)
    command = command_to_play(Path("b/a.wasm"), ["a.onnx"], given, infers=False)
    shown = ["b/a.wasm", "--policy", "a.onnx"]

    assert shlex.split(command) == ["arkml", "evaluate", *shown, *words]


@pytest.mark.parametrize(("name", "does"), [("c_pendulum", True), ("c_walkers", False)])
def test_a_guest_infers_if_it_imports_a_function_for_it(host, name, does):
    assert infers(host.compile(GUESTS / f"{name}.wasm").info) is does


def test_what_a_hive_says_in_a_log_line_cannot_write_over_the_terminal():
    said = ("the hive is gone: %s", ("killed\x1b[2J",))
    record = logging.LogRecord("arkml.hive", logging.WARNING, "", 0, *said, None)

    assert logs._Lines(debug=False).format(record).endswith("the hive is gone: killed\\x1b[2J")
