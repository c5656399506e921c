"""Option values, paced frames and what is made of their times."""

import errno
import shlex

import pytest
import typer

from arkml.cli.application import application
from arkml.cli.exits import exit_code, sentence
from arkml.cli.timing import Steps, Timings
from arkml.cli.units import counted, duration, size
from arkml.cli.values import (
    LAST_PORT,
    check_words,
    evaluation_interval,
    read_directory,
    read_limits,
    read_numbers,
    whole_number,
)
from arkml.errors import UsageError
from arkml.limits import Limits
from arkml.training.pacer import Pacer


def _commands(command, path=()):
    """All commands of an application, each with the words before its options."""
    for name, one in getattr(command, "commands", {}).items():
        yield from _commands(one, (*path, name))
    yield path, command


def _parse(command, words):
    """Have the commands of a line read its words, without running them."""
    context = None
    while True:
        context = command.make_context("arkml", words, parent=context)
        if not hasattr(command, "commands"):
            return
        _, command, words = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )


def test_every_example_of_a_help_text_is_a_command_with_options_that_it_takes():
    application_ = typer.main.get_command(application())
    lines = [
        line.strip()
        for _, command in _commands(application_)
        for line in (command.epilog or "").splitlines()
        if line.startswith("arkml ")
    ]
    for line in lines:
        words = shlex.split(line, comments=True)[1:]
        _parse(application_, words[: words.index("<")] if "<" in words else words)

    assert len(lines) > 100


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("4096", 4096),
        ("4_096", 4096),
        ("64KiB", 64 << 10),
        ("64 MiB", 64 << 20),
        ("1g", 1 << 30),
        ("1.5k", 1536),
        ("2MB", 2_000_000),
        ("7b", 7),
    ],
)
def test_a_size_has_a_unit_or_none(text, count):
    assert read_limits([f"memory_bytes={text}"]).memory_bytes == count


@pytest.mark.parametrize(
    ("text", "seconds"), [("0.5", 0.5), ("2s", 2.0), ("20ms", 0.02), ("none", None), ("OFF", None)]
)
def test_a_time_has_a_unit_or_none(text, seconds):
    assert read_limits([f"run-seconds={text}"]).run_seconds == seconds


def test_limits_that_are_not_named_stay():
    assert read_limits([]) == Limits()
    assert read_limits(["rows=5", "handles=6"]) == Limits(rows=5, handles=6)


@pytest.mark.parametrize(
    "setting",
    ["rows=0", "rows=1e400", "rows=1e400GiB", "rows=-1e400", "rows=1.5", "rows=ten",
     "rows=5parsecs", "rows=", "run_seconds=-1", "run_seconds=x", "run_seconds=nan",
     "run_seconds=inf", "=5"],
)  # fmt: skip
def test_a_limit_that_makes_no_sense_is_refused(setting):
    with pytest.raises(UsageError):
        read_limits([setting])


@pytest.mark.parametrize(
    ("text", "guest", "writable"),
    [("{}", "{}", True), ("{}:ro", "{}", False), ("{}:/data", "/data", True),
     ("{}:/data:ro", "/data", False)],
)  # fmt: skip
def test_a_directory_has_a_name_in_the_guest_and_may_be_read_only(tmp_path, text, guest, writable):
    directory = read_directory(text.format(tmp_path))

    assert directory.host == str(tmp_path)
    assert directory.guest == guest.format(tmp_path)
    assert directory.writable is writable


@pytest.mark.parametrize("text", ["0", "65536", "80000", "-1", "port"])
def test_a_port_that_there_is_not_is_refused(text):
    with pytest.raises(
        UsageError, match=rf"--port {text}: it takes a whole number from 1 to 65535"
    ):
        whole_number("--port", 1, LAST_PORT)(text)


@pytest.mark.parametrize(
    ("error", "text", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device", 2),
        (OSError(errno.EROFS, "Read-only file system", "a/b"), "a/b: Read-only file system", 2),
        (OSError(errno.EBADF, "Bad file descriptor"), "a bug of the host: ", 1),
        (ValueError("no"), "a bug of the host: ", 1),
    ],
)
def test_a_disk_that_refuses_is_no_bug_of_the_host(error, text, code):
    assert sentence(error).startswith(text)
    assert exit_code(error) == code


@pytest.mark.parametrize("text", ["", ":ro", "/tmp::ro", "/tmp:a:b:ro", "/tmp:a:b"])
def test_a_directory_that_makes_no_sense_is_refused(text):
    with pytest.raises(UsageError, match="it takes HOST"):
        read_directory(text)


def test_numbers_are_read_by_their_wasm_type():
    assert read_numbers(["-5", "0x10", "2", "-inf"], ["i32", "i64", "f64", "f32"], "f") == (
        -5, 16, 2.0, float("-inf")
    )  # fmt: skip
    with pytest.raises(UsageError, match="which cannot be given as text"):
        read_numbers(["1"], ["externref"], "f")


def test_only_numbers_may_begin_with_a_dash():
    check_words(["guest.wasm", "-1", "-0.5", "-0x1F", "-inf"], ["--frames"])
    with pytest.raises(UsageError, match=r"no option --frams=3: did you mean --frames\?"):
        check_words(["--frams=3"], ["--frames", "--fps"])


class Time:
    """A clock that runs when somebody sleeps."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def test_frames_start_when_they_are_due():
    time = Time()
    pacer = Pacer(10, clock=time, sleep=time.sleep)
    pacer.begin()
    starts = []
    for _ in range(3):
        starts.append(time.now)
        time.now += 0.04
        pacer.wait()

    assert starts == pytest.approx([100.0, 100.1, 100.2])
    assert pacer.late == 0


def test_a_late_frame_is_counted_once_and_not_made_up_for():
    time = Time()
    pacer = Pacer(10, clock=time, sleep=time.sleep)
    pacer.begin()
    starts = []
    for seconds in (0.25, 0.04, 0.04):
        starts.append(time.now)
        time.now += seconds
        pacer.wait()

    assert starts == pytest.approx([100.0, 100.25, 100.35])
    assert pacer.late == 1


def test_steps_that_are_done_count_even_if_the_next_one_fails():
    done = []

    def step():
        done.append(1)
        if len(done) == 3:
            raise ValueError

    steps = Steps(step)
    with pytest.raises(ValueError, match=r"^$"):
        steps.run(5)

    assert len(steps.timings) == 2


def test_quantiles_are_times_that_were_measured():
    timings = Timings([4.0, 1.0, 3.0, 2.0])

    assert timings.quantiles(0.25, 0.5, 0.75, 0.99, 1.0) == [1.0, 2.0, 3.0, 4.0, 4.0]
    assert timings.total == 10.0
    assert Timings().quantiles(0.5) == [0.0]


def test_a_run_of_days_keeps_an_even_sample_of_its_durations(monkeypatch):
    monkeypatch.setattr("arkml.cli.timing._MOST_KEPT", 100)
    timings = Timings(range(1, 100_001))

    assert len(timings._kept) <= 100
    assert len(timings) == 100_000
    assert timings.total == 5_000_050_000
    assert (timings.shortest, timings.longest) == (1, 100_000)
    assert timings.quantiles(0.25, 0.5, 0.75) == pytest.approx([25_000, 50_000, 75_000], rel=0.05)


def test_units_read_well():
    assert [duration(s) for s in (0, 5.63e-6, 0.0123, 2.5, 5000)] == [
        "0 µs", "5.63 µs", "12.3 ms", "2.5 s", "5,000 s"
    ]  # fmt: skip
    assert [size(n) for n in (999, 2048, 3 << 20, 5 << 30)] == [
        "999 bytes", "2.0 KiB", "3.0 MiB", "5.0 GiB"
    ]  # fmt: skip
    assert [counted(n, "guest") for n in (0, 1, 2000)] == ["0 guests", "1 guest", "2,000 guests"]


def test_each_command_comes_alone_and_the_help_has_all():
    everything = set(typer.main.get_command(application()).commands)

    assert "run" in everything
    for name in everything:
        assert set(typer.main.get_command(application([name, "--help"])).commands) == {name}
    assert set(typer.main.get_command(application(["rnu"])).commands) == everything


def job_of(*words):
    """What a command line would run."""
    return application(words)(args=list(words), prog_name="arkml", standalone_mode=False)


@pytest.mark.parametrize(
    ("words", "interval"),
    [
        ([], "auto"),
        (["--eval-every", "auto"], "auto"),
        (["--eval-every", "never"], None),
        (["--eval-every", "300"], 300),
    ],
)
def test_a_training_is_evaluated_every_so_many_frames_at_a_pace_or_never(words, interval):
    _, options, _ = job_of("train", __file__, *words).args

    assert options.eval_every == interval


@pytest.mark.parametrize("text", ["0", "-3", "2.5", "always", "", "None"])
def test_an_interval_of_evaluations_is_nothing_else(text):
    with pytest.raises(UsageError, match=r"--eval-every .*whole number from 1, auto or never"):
        evaluation_interval(text)


def evaluation_words(options):
    """The words of `arkml train` for the evaluations of several trainings."""
    return [word for word in options.words if word.startswith("--eval")]


@pytest.mark.parametrize(
    ("words", "shared"),
    [([], "--eval-every=never"), (["--eval-every", "300"], "--eval-every=300")],
)
def test_trials_of_a_sweep_are_all_rated_alike(tmp_path, words, shared):
    (options,) = job_of("sweep", __file__, "--space", __file__, "-o", tmp_path, *words).args

    assert evaluation_words(options) == [shared]


@pytest.mark.parametrize("interval", ["never", "auto", "300"])
def test_trainings_with_several_seeds_have_the_interval_of_the_command(tmp_path, interval):
    words = ("--seeds", "2", "--out", tmp_path, "--eval-every", interval)
    (options,) = job_of("train", __file__, *words).args

    assert evaluation_words(options) == [f"--eval-every={interval}"]
