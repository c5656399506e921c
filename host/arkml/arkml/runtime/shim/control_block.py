"""
Layout of the words that a guest's shim shares with the host: a control block, a record per session.

Each guest has one control block, and a record for each session; both lie in column memory. The shim
writes the reason of a suspension and its arguments, the host writes the answer; nothing else passes
between them. Offsets are bytes, fields are u32 unless a comment says otherwise.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag, unique

CONTROL_SIZE = 512
ANSWER = 0  # zero while the host has not answered, then 1 + code; wasmtime asks it by strlen
REASON = 4  # why the guest suspended; zero when it did not
VALUE = 8  # the answer of an import whose result is a value and no code
PAGES = 12  # size of the guest's memory when it suspended
CONTINUATION = 16  # u64 strlen, u64 address of ANSWER: what wasmtime calls to ask whether to resume
RECORDS = 32  # where the session records lie
RECORD_COUNT = 36
BAD_ACTIONS = 40  # non-finite actions and values that were answered as zero
RECORD = 44  # SUBMIT, GROW: index of the session's record
WANTED_ROWS = 48  # GROW
WANTED_BYTES = 52  # GROW: of metadata
FRAMES = 56  # that have ended in the shim's loop of frames; it wraps around
FRAMES_AHEAD = 60  # that the loop runs on, without a suspension, after the present one
ARGUMENTS = 64  # 16 slots of 8 bytes
ERRORS = 192  # calls that the shim refused, counted by code 0..8
ERROR_CODES = 9
TURN = 228  # ticks of the guest's turns
SUBMITS = 232  # submits that were answered
ANSWERED_ROWS = 236  # rows in them
TRAP = 240  # u64, the wasm_trap_t that the last call left, or zero; wasmtime writes it
ERROR = 248  # u64, the wasmtime_error_t likewise
NOTED = 256  # news for the host, which clears it: the last `RefusalReason`, and NON_FINITE
LOGGED = 260  # zero: ask the host; else 1 and the number of log levels that are on, from ERROR on
REFUSALS = 264  # by `RefusalReason`, from 1 on, REFUSAL_SIZE bytes each, the last one of each
REFUSAL_SIZE = 24
REFUSED_COUNT = 0
REFUSED_FUNCTION = 4  # its number among `render.noted`
REFUSED_GIVEN = 8  # u64, what the guest gave
REFUSED_WANTED = 16  # u64, what is right
DEADLINE = 504  # u64, see `epochs`: zero, `epochs.SUSPENDED`, or the address of an error
NON_FINITE = 1 << 31  # in NOTED: an action or value that is not finite was answered as zero

RECORD_SIZE = 128
HANDLE = 0  # u64; zero: the record names no session
KIND = 8
NUM_FEATURES = 12
NUM_ACTIONS = 16
CAPACITY = 20  # rows the region holds
COUNT = 24  # rows pushed since the last submit
ENDED = 28  # of them Terminal or Interrupted
ROWS = 32  # where the region's columns begin
FEATURES = 36
ACTIONS = 40
VALUES = 44
GIVEN = 48
METADATA = 52
METADATA_CAPACITY = 56  # bytes
METADATA_USED = 60  # bytes
SUSPECT = 64  # not zero: a feature of these rows may not be finite
FOLLOWED = 68  # rows of the submit before with which the pushed ones are compared, for `moved`
LIST = 72  # where to list the rows of the next submit, zero for nowhere
SAID = 76  # number of the name of the log's entries, if each is one item and not NaN; else zero
SAID_VALUE = 80  # f32, of the last entry

LIST_HEADER = 48
LISTED = 0  # SUBMITS in the submit whose rows are listed, plus one
LIST_BEGUN = 4  # number of rows that start
LIST_OVER = 8  # number of rows after which no agent is live
LIST_REWARDED = 12  # zero if no row that starts has a reward
LIST_HIGHEST = 16  # u64: new agents have higher ids
LIST_RULES = (24, 28, 32, 36, 40)  # `region.Rules`: sets of numbers of transitions

METADATA_HEADER = 16  # u32 row, u32 items, u32 bytes an item, u32 zero; then the items


def list_columns(capacity: int) -> tuple[int, int, int, int]:
    """
    Return the byte offsets of four arrays in a list of `capacity` rows.

    They are the rewards, the rows that start an episode, the rows after which no agent is live, and
    the reports.
    """
    numbers = [LIST_HEADER + 4 * capacity * column for column in range(4)]
    return numbers[0], numbers[1], numbers[2], numbers[3]


@unique
class Moved(IntFlag):
    """
    Bits of a row's field `moved`, beside two for its state; none is set if its agent continues.
    """

    ABSENT = 4  # the agent of the row before is not live, or it has another id
    NEW = 8  # the row before has another id, or is not followed
    LEFT = 16  # it may be that its agent is live, and is not that of this row


@unique
class Kind(IntEnum):
    """Kinds of sessions, as a session record names them."""

    INFERENCE = 1
    TRAINING = 2


@unique
class RefusalReason(IntEnum):
    """Reasons why the shim refuses a push or a submit, each with two numbers that explain it."""

    SESSION = 1  # the handle; 0
    KIND = 2  # the handle; the kind of session that the function takes
    STATE = 3  # the state; the last one that there is
    FEATURES = 4  # the features; those of the session
    GIVEN = 5  # the supplied actions; those of the session
    METADATA = 6  # the items; the most
    OUTSIDE = 7  # the end of an argument; the size of the memory
    ACTIONS = 8  # the room for actions; what the rows need
    VALUES = 9  # the room for values; the rows
    HOST = 10  # 0; 0: the host refused, with an error of its own


@unique
class Reason(IntEnum):
    """
    Reasons why the shim suspends its guest.

    A number from FIRST_IMPORT on is an import that Python answers: 18, for example, is the import
    of index 2. A number from FIRST_GAME on is a function of the embedder's game, by its index in
    `Linkage.game`.
    """

    RUNNING = 0
    SUBMIT = 1
    SUBMIT_NON_FINITE = 2  # a submit in which a feature is not finite
    GROW = 3
    FRAME_END = 4  # between two frames of the loop; nothing of the next one has run
    FIRST_IMPORT = 16
    FIRST_GAME = 1 << 16
