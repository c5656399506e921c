"""Rows with images in two columns, on the wire, in the log and in a learner's memory."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkml.abi.codes import EpisodeState
from arkml.errors import ProtocolError
from arkml.hive.outbox import Outbox
from arkml.hive.protocol.parts import Part
from arkml.hive.protocol.row_split import RowSplit
from arkml.hive.protocol.rows import (
    HEADER_SIZE,
    RowColumns,
    decode,
    encode,
    frame,
    parse_header,
    read_record,
)
from arkml.hive.protocol.settings import Settings
from arkml.learning.experience import Experience
from arkml.learning.normalizer import Normalizer
from arkml.learning.ppo import Ppo
from arkml.learning.sac import Sac
from arkml.server.bodies import check_rows

ME, VIEW, TILES = Part("me", (2,)), Part("view", (2, 2, 1), "image"), Part("it", (2, 1), "entities")
PARTS = ME, VIEW, TILES, Part("map", (1, 3, 1), "image")
FEATURES, IMAGES = 12, 7
SPLIT = RowSplit(FEATURES, PARTS)


def test_each_part_goes_to_its_column_in_the_order_of_the_row():
    rows = np.arange(24, dtype=np.float32).reshape(2, 12)
    numbers, images, outside = SPLIT.split(rows)

    assert numbers.tolist() == [[0, 1, 6, 7, 8], [12, 13, 18, 19, 20]]
    assert images.tolist() == [[2, 3, 4, 5, 9, 10, 11], [14, 15, 16, 17, 21, 22, 23]]
    assert (numbers.dtype, images.dtype, outside) == (np.float32, np.uint8, 0)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_values_are_rounded_and_those_outside_are_clipped_and_counted(values):
    rows = np.array(values, np.float32)[:, None]
    _, images, outside = RowSplit(1, (Part("view", (1, 1, 1), "image"),)).split(rows)

    assert images[:, 0].tolist() == [round(min(max(value, 0.0), 255.0)) for value in values]
    assert outside == sum(not 0.0 <= value <= 255.0 for value in values)


def test_rows_without_images_stay_as_they_are():
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    for split in (RowSplit(3), RowSplit(3, (Part("me", (3,)),))):
        numbers, images, _ = split.split(rows)
        np.testing.assert_array_equal(numbers, rows)
        assert images.shape == (2, 0)


def test_parts_of_other_rows_are_refused():
    with pytest.raises(ProtocolError, match="have 12 features, and it has 5"):
        RowSplit(5, PARTS)


def columns(count=4):
    made = RowColumns.empty(count, FEATURES, 1, images=IMAGES)
    made.state[:] = EpisodeState.RUNNING
    made.step[:] = np.arange(count)
    made.features[:] = np.random.default_rng(0).standard_normal(made.features.shape)
    made.images[:] = np.random.default_rng(1).integers(0, 256, made.images.shape)
    return made


def test_a_body_has_a_byte_for_each_value_of_an_image():
    made = columns(800)
    body = encode(made, seq=1, outside=9)
    header = parse_header(body)
    found = decode(header, body[HEADER_SIZE:])

    assert (header.features, header.images, header.outside) == (FEATURES, IMAGES, 9)
    assert len(body) < 800 * (8 + 4 + 4 + 4 + 1 + 4 * 5 + IMAGES + 4) + 200
    for one, other in zip(found.arrays(), made.arrays(), strict=True):
        np.testing.assert_array_equal(one, other)
    record = read_record(memoryview(frame(body, session=0, first=0)), 0)
    np.testing.assert_array_equal(record.columns.images, made.images)


def test_a_body_whose_header_lies_about_its_bytes_is_refused():
    body = bytearray(encode(columns(), seq=1))
    for images in (0, IMAGES - 1, FEATURES + 1, 1 << 31):
        body[44:48] = images.to_bytes(4, "little")
        with pytest.raises(ProtocolError):
            parse_header(bytes(body))


def test_a_row_that_is_not_finite_is_refused_and_the_images_of_others_stay():
    made = columns()
    made.features[1, 0] = np.nan
    body = encode(made, seq=1, outside=5)
    checked = check_rows(parse_header(body), body, 0)
    kept = decode(checked.header, checked.body[HEADER_SIZE:])

    assert (checked.refused, checked.header.outside) == (1, 5)
    np.testing.assert_array_equal(kept.images, made.images[[0, 2, 3]])


def outbox():
    made = Outbox(FEATURES, 1, wake=lambda: None, pause=lambda: None, rows=16)
    made.narrow(PARTS)
    return made


def append(made, rows, keep=None):
    count = len(rows)
    agents = np.arange(count, dtype=np.uint64)
    made.append(
        agents, agents, 1, np.zeros(count, np.float32), np.zeros(count, np.uint32), rows,
        np.zeros((count, 1), np.float32), keep,
    )  # fmt: skip


def test_an_outbox_keeps_bytes_and_counts_what_it_clips():
    made = outbox()
    rows = np.random.default_rng(0).integers(0, 256, (40, FEATURES)).astype(np.float32)
    rows[3, 2], rows[30, 11] = -4.0, 300.0
    append(made, rows)
    _, taken = made.take(partial=True)

    np.testing.assert_array_equal(taken.images, SPLIT.split(rows[:16])[1])
    np.testing.assert_array_equal(taken.features, SPLIT.split(rows[:16])[0])
    assert (made.take_outside(), made.take_outside()) == (2, 0)


def test_rows_that_are_left_out_clip_nothing():
    made = outbox()
    rows = np.full((2, FEATURES), 999.0, np.float32)
    append(made, rows, np.array([False, False]))

    assert made.take_outside() == 0


def test_an_outbox_holds_more_rows_of_bytes():
    parts = (Part("view", (84, 84, 3), "image"),)
    plain, narrow = (Outbox(21_168, 1, wake=print, pause=print) for _ in range(2))
    narrow.narrow(parts)

    assert narrow.max_rows > 3.9 * plain.max_rows
    assert narrow.body_rows > 3.9 * plain.body_rows or narrow.body_rows == 512


def of_images(**changes):
    return Settings(FEATURES, 1, parts=PARTS, hidden=8, rollout_rows=2, **changes)


class Log:
    def __init__(self, *bodies):
        self.records = []
        for body in bodies:
            self.records.append(read_record(memoryview(frame(body, session=0, first=0)), 0))

    def read(self, _rows):
        return self.records


@pytest.mark.parametrize("come_as", ["bytes", "numbers"])
def test_a_learner_holds_bytes_in_whatever_form_they_come(come_as):
    rows = np.random.default_rng(0).integers(0, 256, (4, FEATURES)).astype(np.float32)
    made = RowColumns.empty(4, FEATURES, 1, images=IMAGES if come_as == "bytes" else 0)
    made.step[:], made.version[:] = np.arange(4), 1
    made.state[:] = [EpisodeState.INITIAL, *[EpisodeState.RUNNING] * 3]
    if come_as == "bytes":
        SPLIT.write(rows, made.features, made.images)
    else:
        made.features[:] = rows
    settings = of_images()
    normalizer = Normalizer(FEATURES, PARTS, active=True)
    learner = Ppo(settings, normalizer)
    learner.published(1)
    seen = Experience(settings, Log(encode(made, seq=1)), learner.buffer, normalizer)
    seen.ingest(4)
    rollout = learner.buffer.take()

    np.testing.assert_array_equal(rollout.images, SPLIT.split(rows)[1])
    np.testing.assert_array_equal(rollout.features, SPLIT.split(rows)[0])


@pytest.mark.parametrize("algorithm", [Ppo, Sac])
def test_a_body_of_which_all_rows_were_refused_teaches_nothing(algorithm):
    settings = Settings(FEATURES, 1, rollout_rows=2)
    rows = RowColumns.empty(3, FEATURES, 1)
    rows.step[:], rows.version[:] = np.arange(3), 1
    rows.state[:] = [EpisodeState.INITIAL, EpisodeState.RUNNING, EpisodeState.TERMINAL]
    rows.reward[:] = 2.0
    normalizer = Normalizer(FEATURES, active=True)
    learner = algorithm(settings, normalizer)
    learner.published(1)
    none = RowColumns.empty(0, FEATURES, 1)
    log = Log(
        encode(none, seq=1, non_finite=5), encode(rows, seq=2), encode(none, seq=3, non_finite=4)
    )
    seen = Experience(settings, log, learner.buffer, normalizer)
    seen.ingest(3)

    points = dict(seen.statistics.points())
    assert (seen.take_new_rows(), learner.buffer.transitions) == (3, 2)
    assert (points["rollout/ep_rew_mean"], points["features/non_finite"]) == (4.0, 9.0)


def test_a_learner_refuses_rows_with_other_images():
    made = RowColumns.empty(1, FEATURES, 1, images=3)
    settings, normalizer = of_images(), Normalizer(FEATURES, PARTS, active=True)
    seen = Experience(
        settings, Log(encode(made, seq=1)), Ppo(settings, normalizer).buffer, normalizer
    )
    with pytest.raises(ProtocolError, match="images of 3 values, the run has 7"):
        seen.ingest(1)
