"""The requests of a guest to hives: how many there may be, and what they hold."""

import signal
import sys
import threading
from concurrent.futures import Future

import pytest
from tests.waiting import eventually

from arkml.errors import GuestMemoryFull, TooManyFutures, TooManyRequests, Unavailable
from arkml.limits import Limits
from arkml.runs.request_line import RequestLine
from arkml.sessions import results
from arkml.sessions.guest_run import mapped, settled
from arkml.sessions.pending_requests import REQUEST_BYTES, PendingRequests
from arkml.sessions.services import Services
from arkml.sessions.session_table import TrainingStart
from arkml.sessions.state import FreeWork
from arkml.testing import ConstantPolicy, MemoryQueue, RecordingPolicies, RecordingSink

START = ("", 0, "game", "run", 3, 2, 0)


class SlowHive:
    """A gateway whose answers a test gives: `asked` has the pending ones, in their order."""

    def __init__(self):
        self.asked = []
        self.error = None

    def _ask(self, *_):
        if self.error is not None:
            raise self.error
        self.asked.append(Future())
        return self.asked[-1]

    answers = experiments = start = connect = _ask

    def find(self, *_):
        return SlowRun(self._ask)


class SlowRun:
    """A run of it."""

    def __init__(self, ask):
        self.configuration = self.snapshot = self.metrics = ask
        self._ask = ask

    @property
    def shape(self):
        return self._ask()


class Charged(FreeWork):
    """An account of a guest that may have `room` bytes of results, and `more` of requests."""

    def __init__(self):
        self.room = self.more = 1 << 30

    def require_bytes(self, size):
        if size > self.more:
            raise GuestMemoryFull(f"{size} bytes")

    def admit(self, size):
        return size <= self.room


class Guest:
    """Services of a guest whose hive is slow."""

    def __init__(self, **limits):
        self.hive, self.account = SlowHive(), Charged()
        self.services = Services(
            "npc",
            1,
            limits=Limits(**limits),
            library=RecordingPolicies(),
            queues=self,
            stopwatch=lambda: 0.0,
            hives=self.hive,
            account=self.account,
        )
        self.v1, self.v2, self.v4 = (self.services.handler(f"ark-ml-v{n}") for n in (1, 2, 4))

    def open_queue(self, _handle, *, num_features, num_actions, **_):
        return MemoryQueue(num_features, num_actions)

    @property
    def held(self):
        return self.services.requests.held


@pytest.fixture
def guest():
    return Guest()


class Alarm(Exception):
    """What a signal handler of the embedder raises."""


@pytest.fixture
def alarm():
    def ring(*_):
        raise Alarm

    before = signal.signal(signal.SIGUSR1, ring)
    yield lambda *_: signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def test_what_a_signal_handler_raises_as_a_request_is_settled_is_no_fault_of_it(
    guest, alarm, caplog
):
    class Answer:
        __sizeof__ = alarm

    guest.hive.answers = lambda *_: settled(Answer())
    with pytest.raises(Alarm):
        guest.v1.can_connect_to_hive("", 0)

    assert len(guest.services.requests) == 0
    assert caplog.text == ""


def test_what_a_signal_handler_raises_before_a_request_is_settled_is_not_dropped(
    guest, alarm, caplog, monkeypatch
):
    guest.hive.answers = lambda *_: settled(value=True)
    monkeypatch.setattr(PendingRequests, "end", alarm)
    with pytest.raises(Alarm):
        guest.v1.can_connect_to_hive("", 0)

    assert caplog.text == ""


def test_what_a_signal_handler_raises_in_a_change_of_a_result_is_no_result(alarm):
    with pytest.raises(Alarm):
        mapped(settled(1), alarm)


def test_a_request_counts_until_it_is_done_and_not_until_it_is_dropped():
    guest = Guest(requests=2)
    for _ in range(2):
        guest.v1.drop_future(guest.v2.start_training(*START, ""))

    with pytest.raises(TooManyRequests):
        guest.v2.start_training(*START, "")
    guest.hive.asked[0].set_exception(Unavailable("the hive is gone"))
    guest.v2.start_training(*START, "")
    assert len(guest.hive.asked) == 3


def test_a_question_whose_future_is_dropped_is_withdrawn_and_makes_room():
    guest = Guest(requests=1)
    for _ in range(3):
        guest.v1.drop_future(guest.v1.can_connect_to_hive("", 0))

    assert [asked.cancelled() for asked in guest.hive.asked] == [True] * 3
    assert (len(guest.services.requests), guest.held) == (0, 0)


def test_a_question_that_has_begun_is_not_withdrawn_and_its_answer_not_kept(guest):
    future = guest.v1.can_connect_to_hive("", 0)
    guest.hive.asked[0].set_running_or_notify_cancel()
    guest.v1.drop_future(future)
    before = len(guest.services.requests)
    guest.hive.asked[0].set_result(True)

    assert before == 1
    assert (len(guest.services.requests), guest.held) == (0, 0)


def test_a_start_whose_future_is_dropped_takes_place_and_its_run_is_left(guest):
    sink = RecordingSink()
    guest.v1.drop_future(guest.v2.start_training(*START, ""))
    withdrawn = guest.hive.asked[0].cancelled()
    guest.hive.asked[0].set_result(TrainingStart(ConstantPolicy(3, 2), 3, 2, sink))

    assert not withdrawn
    assert sink.left == [False]
    assert guest.held == 0


def test_the_configuration_of_a_request_counts_until_it_is_done(guest):
    configuration = '"' + "x" * 100_000 + '"'
    guest.v2.start_training(*START, configuration)
    waiting = guest.held
    guest.hive.asked[0].set_exception(Unavailable("the hive is gone"))

    assert waiting > 2 * 100_000 + REQUEST_BYTES
    assert guest.held == 0


@pytest.mark.parametrize("end", ["take", "drop"])
def test_a_result_counts_until_it_is_taken_or_dropped(guest, end):
    handle = guest.v4.raw_experiment_config_from_registry("", 0, "run")
    guest.hive.asked[0].set_result("x" * 100_000)
    ready = guest.held
    if end == "take":
        guest.services.futures.take(handle, results.TEXT)
    else:
        guest.v1.drop_future(handle)

    assert ready == sys.getsizeof("x" * 100_000)
    assert guest.held == 0


def test_a_result_for_which_the_guest_has_no_room_is_not_kept(guest):
    guest.account.room = 1_000
    handle = guest.v2.download_snapshot_from_registry("", 0, "run")
    guest.hive.asked[0].set_result(bytes(2_000))

    assert guest.held == 0
    with pytest.raises(GuestMemoryFull, match="byte vector"):
        guest.services.futures.take(handle, results.BYTES)


def test_a_run_for_whose_session_there_is_no_room_is_left(guest):
    guest.account.room = 0
    sink = RecordingSink()
    guest.v2.start_training(*START, "")
    guest.hive.asked[0].set_result(TrainingStart(ConstantPolicy(3, 2), 3, 2, sink))

    assert sink.left == [False]


def test_a_request_for_which_the_guest_has_no_room_is_not_sent(guest):
    guest.account.more = 50_000

    with pytest.raises(GuestMemoryFull):
        guest.v2.start_training(*START, '"' + "x" * 100_000 + '"')
    assert guest.hive.asked == []
    assert len(guest.services.requests) == 0


@pytest.mark.parametrize("refusal", ["futures", "hive"])
def test_a_request_that_is_refused_counts_no_longer(refusal):
    guest = Guest(futures=0 if refusal == "futures" else 8)
    guest.hive.error = Unavailable("not allowed")

    with pytest.raises(TooManyFutures if refusal == "futures" else Unavailable):
        guest.v1.can_connect_to_hive("", 0)
    assert (len(guest.services.requests), guest.held) == (0, 0)


def test_a_configuration_comes_as_bytes_and_both_of_its_questions_are_withdrawn(guest):
    handles = guest.v2.experiment_config_from_registry("", 0, "run")
    guest.hive.asked[1].set_result("å")
    data = guest.services.futures.take(handles["module_config"], results.BYTES)
    guest.v1.drop_future(handles["ark_config"])

    assert data == "å".encode()
    assert guest.hive.asked[0].cancelled()


def test_the_failures_of_many_requests_are_told_at_the_rate_of_the_guest(guest, caplog):
    for _ in range(1_500):
        guest.v1.can_connect_to_hive("", 0)
        guest.hive.asked.pop().set_exception(Unavailable("the hive is gone"))
        if len(guest.services.futures) == 1_000:
            guest.services.futures.clear()

    assert caplog.messages.count("the hive is gone") == 1_000


def test_a_guest_that_is_closed_says_nothing_of_its_requests(guest, caplog):
    guest.v2.connect_to_experiment("", 0, "run")
    guest.services.close()
    guest.hive.asked.pop().set_exception(Unavailable("the client of the hive is closed"))

    assert caplog.messages == []


# The line before the threads


@pytest.fixture
def line():
    made = RequestLine(1)
    yield made
    made.close()


class Gate:
    """Work that begins, and then waits until it may go on."""

    def __init__(self):
        self.has_begun, self._may_end = threading.Event(), threading.Event()

    def __call__(self):
        self.has_begun.set()
        self._may_end.wait(300)

    def open(self):
        self._may_end.set()


def test_work_is_done_in_its_order(line):
    gate, done = Gate(), []
    line.submit(gate)
    pending = [line.submit(lambda number=number: done.append(number)) for number in range(5)]
    gate.open()
    for future in pending:
        future.result(300)

    assert done == [0, 1, 2, 3, 4]


def test_work_that_is_cancelled_is_forgotten_at_once(line):
    gate, done = Gate(), []
    line.submit(gate)
    assert gate.has_begun.wait(300)
    for _ in range(100):
        line.submit(lambda: done.append(1)).cancel()
    waiting = len(line)
    gate.open()
    line.submit(int).result(300)

    assert (waiting, done) == (0, [])


def test_an_error_of_work_is_raised_to_whoever_asked_and_the_line_goes_on(line):
    failed, after = line.submit(lambda: 1 // 0), line.submit(int)

    with pytest.raises(ZeroDivisionError):
        failed.result(300)
    assert after.result(300) == 0


def test_a_line_that_closes_cancels_what_waits_and_takes_no_more():
    line, gate = RequestLine(1), Gate()
    begun = line.submit(gate)
    assert gate.has_begun.wait(300)
    waiting = line.submit(int)
    line.close()
    gate.open()

    assert waiting.cancelled()
    assert begun.result(300) is None
    with pytest.raises(RuntimeError):
        line.submit(int)


def test_a_line_that_was_idle_serves_again(line):
    line.submit(int).result(300)
    eventually(lambda: line._busy == 0)

    assert line.submit(lambda: 7).result(300) == 7
