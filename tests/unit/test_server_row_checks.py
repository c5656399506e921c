"""Which rows of a body are taken, and which bodies are."""

import asyncio

import numpy as np
import pytest

from arkml.abi.codes import EpisodeState
from arkml.errors import HiveRefused, ProtocolError
from arkml.hive.protocol.rows import HEADER_SIZE, MAX_BODY, META, RowColumns, encode, parse_header
from arkml.hive.protocol.rows import decode as decode_rows
from arkml.server.bodies import check_rows, read_rows


def columns(count=6):
    made = RowColumns.empty(count, 3, 2)
    made.agent[:] = np.arange(count)
    made.step[:] = 5
    made.features[:] = 1.0
    return made


def taken(made, names=0):
    body = encode(made, seq=1, dropped=3, sent_ns=9)
    return check_rows(parse_header(body), body, names)


def kept(found):
    return decode_rows(found.header, found.body[HEADER_SIZE:])


def test_a_body_without_fault_is_kept_byte_for_byte():
    body = encode(columns(), seq=1)
    found = check_rows(parse_header(body), body, 0)

    assert found.body is body
    assert (found.refused, found.reasons) == (0, [])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", ["features", "action", "reward"])
def test_rows_that_are_not_finite_are_refused(column, value):
    made = columns()
    getattr(made, column)[2] = value
    found = taken(made)

    assert found.reasons == [(2, "not finite")]
    assert kept(found).agent.tolist() == [0, 1, 3, 4, 5]
    assert (found.header.seq, found.header.dropped, found.header.sent_ns) == (1, 3, 9)


def test_numbers_whose_sum_is_too_large_are_finite_all_the_same():
    made = columns()
    made.features[:] = np.finfo(np.float32).max
    found = taken(made)

    assert found.refused == 0


def test_infinities_that_cancel_out_are_found():
    made = columns()
    made.features[1, 0], made.features[3, 0] = np.inf, -np.inf

    assert [row for row, _ in taken(made).reasons] == [1, 3]


def test_rows_out_of_order_are_refused():
    made = columns()
    made.agent[:] = [1, 2, 1, 2, 1, 2]
    made.step[:] = [5, 5, 6, 5, 5, 6]

    assert taken(made).reasons == [(3, "out of order"), (4, "out of order")]


def test_an_agent_may_begin_anew():
    made = columns(3)
    made.agent[:] = 1
    made.step[:] = [7, 8, 0]
    made.state[:] = [EpisodeState.RUNNING, EpisodeState.TERMINAL, EpisodeState.INITIAL]

    assert taken(made).refused == 0


def test_states_that_nobody_knows_are_refused():
    made = columns()
    made.state[4] = 4

    assert taken(made).reasons == [(4, "no such state")]


def test_only_the_first_refused_rows_are_told():
    made = columns(200)
    made.reward[:] = np.nan
    found = taken(made)

    assert found.refused == 200
    assert len(found.reasons) == 64
    assert len(kept(found)) == 0


def test_metrics_need_a_name():
    made = columns()
    made.meta = np.array([(0, 2, 1.0)], META)

    assert taken(made, names=3).refused == 0
    with pytest.raises(ProtocolError, match="metric 2"):
        taken(made, names=2)


def test_a_damaged_body_is_refused():
    body = bytearray(encode(columns(), seq=1))
    body[-1] ^= 1

    with pytest.raises(ProtocolError, match="checksum"):
        check_rows(parse_header(bytes(body)), bytes(body), 0)


def test_an_empty_body_is_taken():
    assert taken(columns(0)).refused == 0


class Parts:
    """Hands out the parts of a body, and counts those that were asked for."""

    def __init__(self, *parts):
        self.parts = list(parts)
        self.asked = 0

    async def __call__(self):
        self.asked += 1
        part = self.parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(self.parts)}


def read(parts, declared=None):
    return asyncio.run(read_rows(declared, parts))


@pytest.mark.parametrize("size", [1, 63, 64, 65, 10_000])
def test_a_body_comes_in_parts_of_any_size(size):
    body = encode(columns(), seq=1)
    parts = [body[at : at + size] for at in range(0, len(body), size)]

    assert read(Parts(*parts)) == (parse_header(body), body)


def test_a_body_that_says_it_is_too_large_is_not_read():
    parts = Parts(b"")
    with pytest.raises(HiveRefused) as refused:
        read(parts, MAX_BODY + 1)

    assert refused.value.status == 413
    assert parts.asked == 0


def test_sizes_are_checked_before_the_body_is_read():
    body = encode(columns(), seq=1)
    parts = Parts(body[:64], body[64:])
    with pytest.raises(HiveRefused) as refused:
        read(parts, len(body) + 8)

    assert refused.value.status == 400
    assert parts.asked == 1


def test_a_header_with_sizes_beyond_64_bits_is_refused():
    body = bytearray(encode(columns(), seq=1))
    body[16:32] = b"\xff" * 16

    with pytest.raises(ProtocolError):
        read(Parts(bytes(body)))


@pytest.mark.parametrize("change", [-1, 1, 4_096])
def test_a_body_of_another_length_is_refused(change):
    body = encode(columns(), seq=1)
    body = body[:change] if change < 0 else body + bytes(change)
    with pytest.raises(HiveRefused) as refused:
        read(Parts(body))

    assert refused.value.status == 400
