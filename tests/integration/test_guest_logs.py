import logging
import time

import pytest
from tests.integration.guest_text import (
    LOG,
    PANIC,
    POINTMASS,
    START,
    STOP,
    data,
    function,
    i32,
    logging_of,
    module,
)
from tests.integration.training_guest import V1, TrainingGuest

from arkml import GuestTrap, HiveGrant
from arkml.limits import Limits
from arkml.policies.cervo import pack_onnx

ADD, REMOVE = "ark-core-v4.core__add_debug_context", "ark-core-v4.core__remove_debug_context"
LONG, MIB = 65_536, 1 << 20
TIMES = 10_000


def repeated(name, call):
    """A function that makes a call many times."""
    return function(
        name,
        f"""(local $count i32)
        (loop $more {call}
          (local.set $count (i32.add (local.get $count) (i32.const 1)))
          (br_if $more (i32.lt_u (local.get $count) (i32.const {TIMES}))))""",
    )


def text(length=MIB):
    return f"{i32(LONG)} {i32(length)}"


FLOOD = module(
    function("fill", f"(memory.fill {i32(LONG)} (local.get 0) {i32(MIB)})", "(param i32)"),
    repeated("short", f"(call ${ADD} {text(8)} {text(8)}) (call ${REMOVE} {text(8)})"),
    repeated("log", f"(drop (call ${LOG} {i32(2)} {text()}))"),
    repeated("panic", f"(drop (call ${PANIC} {text()} {text()} {i32(1)} {i32(2)}))"),
    repeated("context", f"(call ${ADD} {text()} {text()}) (call ${REMOVE} {text()})"),
    function("trap", f"(drop (call ${PANIC} {text()} {text(8)} {i32(1)} {i32(2)})) unreachable"),
    uses=(LOG, PANIC, ADD, REMOVE),
    memory='(memory (export "memory") 17)',
)


def test_refused_imports_are_traced_at_the_rate_of_the_log(host, caplog):
    guest = host.load(
        module(repeated("ask", f"(drop (call ${STOP} (i64.const 77)))"), uses=(STOP,))
    )
    caplog.set_level(logging.DEBUG, logger="arkml.runtime")
    started = time.monotonic()
    guest.call("ask", budget=None)
    seconds = time.monotonic() - started
    lines = [one for one in caplog.records if one.name == "arkml.runtime.linker"]

    assert guest.statistics.errors["NOT_FOUND"] == TIMES
    assert 500 < len(lines) < 1_010 + 1_000 * seconds
    assert "ml__stop_inference: handles: 0x4d is not" in lines[0].getMessage()


@pytest.mark.parametrize("flood", ["log", "panic", "context"])
@pytest.mark.parametrize("byte", [ord("a"), 0x1B, 0xFF], ids=["plain", "escapes", "not UTF-8"])
def test_a_flood_of_long_texts_costs_little(host, flood, byte):
    guest = host.load(FLOOD)
    guest.call("fill", byte)
    started = time.process_time()
    guest.call("short", budget=None)
    between = time.process_time()
    guest.call(flood, budget=None)

    # Twice as long when measured; 100 to 4,000 times when all of it was read.
    assert time.process_time() - between < 50 * (between - started)


def test_the_panic_of_a_trap_is_read_as_far_as_it_is_shown(host):
    guest = host.load(FLOOD)
    guest.call("fill", ord("a"))
    with pytest.raises(GuestTrap) as trapped:
        guest.call("trap")

    cut = MIB - Limits().log_bytes
    assert trapped.value.panic == f"{'a' * Limits().log_bytes}… [{cut} bytes cut], aaaaaaaa:1:2"


def test_a_character_at_the_cut_is_left_out_whole(make_host, caplog):
    caplog.set_level("INFO")
    content = "å" * 200
    at, say = logging_of(content, at=1000)
    long = module(at, function("say", say), uses=(LOG,))
    make_host(limits=Limits(log_bytes=7)).load(long).call("say")

    assert caplog.messages == ["ååå… [394 bytes cut]"]


class Raising(logging.Handler):
    """A handler of an embedder, whose exceptions leave `emit`."""

    def emit(self, record):
        raise ZeroDivisionError(record.getMessage())


@pytest.fixture
def raising():
    """Every record of this package meets a handler that raises."""
    handler, logger = Raising(), logging.getLogger("arkml")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield
    logger.removeHandler(handler)
    logger.setLevel(level)


SAID, SAY = logging_of("hello")
TALKER = module(
    SAID,
    data(2048, POINTMASS),
    function("talk", f"{SAY} {i32(7)}", result="i32"),
    function(
        "refused",
        f"(call ${START} {i32(2)} {i32(1)} {i32(2048)} {i32(3)} {i32(0)} {i32(8)})",
        result="i32",
    ),
    function("frame", SAY),
    uses=(LOG, START),
)


@pytest.mark.usefixtures("raising")
def test_a_log_handler_that_raises_harms_no_guest_of_a_fleet(host):
    with host.fleet(TALKER, 3) as fleet:
        result = fleet.call("talk")
        frames = [fleet.call("frame") for _ in range(3)]
        failures = [guest.failure for guest in fleet.guests]

    assert result.values == [7, 7, 7]
    assert [call.failures for call in (result, *frames)] == [{}] * 4
    assert failures == [None] * 3


@pytest.mark.usefixtures("raising")
def test_a_log_handler_that_raises_changes_no_code_of_an_import(host):
    guest = host.load(TALKER)

    assert guest.call("talk") == 7
    assert guest.call("refused") == 5  # InvalidArguments: no model has three bytes
    assert guest.failure is None


CONTAINER = pack_onnx(POINTMASS)
LOADER = module(
    data(2048, CONTAINER),
    function(
        "load",
        f"""(drop (call ${START} {i32(2)} {i32(1)} {i32(2048)} {i32(len(CONTAINER))} {i32(0)}
            {i32(8)}))
        (call ${STOP} (i64.load {i32(8)}))""",
        result="i32",
    ),
    uses=(START, STOP),
)


def test_a_container_that_is_declared_as_onnx_is_told_once(host, caplog):
    caplog.set_level("INFO")
    guest = host.load(LOADER)
    codes = [guest.call("load") for _ in range(3)]

    assert codes == [0, 0, 0]
    told = "a snapshot declared as ONNX is a Cervo container"
    assert caplog.messages.count(told) == 1


def test_hives_that_are_not_allowed_are_told_ten_times_a_second(make_host, caplog):
    caplog.set_level("INFO")
    guest = TrainingGuest(make_host(hive=HiveGrant(hive="localhost:1")))
    for _ in range(100):
        guest.handle(V1, "can_connect_to_hive", "elsewhere", 1)
    told = [line for line in caplog.messages if "elsewhere:1 is not allowed here" in line]

    assert 10 <= len(told) < 100


LEVELS = {0: "ERROR", 1: "WARNING", 2: "INFO", 3: "DEBUG", 4: "TRACE", 77: "ERROR"}
_SAYS = [logging_of(f"line {level}", at=900 + 16 * level % 256, level=level) for level in LEVELS]
SPEAKER = module(
    *(text for text, _ in _SAYS),
    function("speak", " ".join(call for _, call in _SAYS)),
    function("ark_applet_update", " ".join(call for _, call in _SAYS)),
    uses=(LOG,),
    memory='(memory (export "memory") 1)',
)
"""A guest that logs a line of each level, and of a level that is none."""


def heard(caplog, *names):
    """The levels of the lines that guests of these names logged, and forgets them."""
    found = [r.levelname for r in caplog.records if r.name in [f"arkml.guest.{n}" for n in names]]
    caplog.clear()
    return found


@pytest.mark.parametrize("name", ["ERROR", "WARNING", "INFO", "DEBUG"])
def test_lines_of_levels_that_are_off_stay_in_the_shim(host, caplog, name):
    guest = host.load(SPEAKER, name="npc")
    least = getattr(logging, name)
    caplog.set_level(least, logger="arkml.guest")
    guest.call("speak")
    wanted = [each for each in LEVELS.values() if logging.getLevelName(each) >= least]

    assert heard(caplog, "npc") == wanted


def test_a_line_that_is_off_suspends_no_guest(host, caplog):
    caplog.set_level(logging.CRITICAL, logger="arkml.guest")
    guest, fleet = host.load(SPEAKER), host.fleet(SPEAKER, 3)
    for _ in range(3):
        guest.call("speak")
        fleet.update()
        fleet.call("speak")

    assert guest.account.import_seconds == fleet.account.import_seconds == 0.0


def test_a_change_of_levels_counts_from_the_next_call_on(host, caplog):
    guest, fleet = host.load(SPEAKER, name="npc"), host.fleet(SPEAKER, 2, name="crowd")
    names = ("npc", "crowd#0", "crowd#1")
    counts = []
    for least in (logging.ERROR, logging.DEBUG, logging.CRITICAL, logging.INFO):
        caplog.set_level(least, logger="arkml.guest")
        guest.call("speak")
        fleet.update()
        counts.append(len(heard(caplog, *names)))

    assert counts == [3 * 2, 3 * 5, 0, 3 * 4]


def test_the_level_of_one_guest_of_a_fleet_is_its_own(host, caplog):
    fleet = host.fleet(SPEAKER, 3, name="a.crowd")
    caplog.set_level(logging.ERROR, logger="arkml.guest")
    fleet.update()
    before = len(heard(caplog, *(f"a.crowd#{number}" for number in range(3))))
    caplog.set_level(logging.DEBUG, logger="arkml.guest.a.crowd#1")
    fleet.update()
    own = [heard(caplog, f"a.crowd#{number}") for number in (1,)]
    caplog.set_level(logging.INFO, logger="arkml.guest.a")
    caplog.set_level(logging.NOTSET, logger="arkml.guest.a.crowd#1")
    fleet.update()

    assert before == 6
    assert [len(lines) for lines in own] == [5]
    assert len(heard(caplog, *(f"a.crowd#{number}" for number in range(3)))) == 12


def test_levels_that_are_disabled_for_all_are_off(host, caplog):
    guest = host.load(SPEAKER, name="npc")
    caplog.set_level(logging.DEBUG, logger="arkml.guest")
    logging.disable(logging.INFO)
    try:
        guest.call("speak")
        quiet = heard(caplog, "npc")
    finally:
        logging.disable(logging.NOTSET)
    guest.call("speak")

    assert quiet == ["ERROR", "WARNING", "ERROR"]
    assert len(heard(caplog, "npc")) == 5
