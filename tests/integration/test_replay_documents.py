"""Documents of replays: what a page shows of a trace, within bounds."""

import base64
import gzip
import json
import logging

import numpy as np
import pytest
from msgspec.structs import replace
from tests.integration.guest_text import ACTOR, GUESTS, LOG, function, logging_of, module
from tests.integration.test_replay import COUNTING, changed, failure_of

import arkml
from arkml.errors import InvalidSpec, ProtocolError, UsageError
from arkml.guests.trace_player import ReplayedSubmit
from arkml.hive.protocol.replay_messages import (
    MAX_PACKED_REPLAY_BYTES,
    MAX_REPLAY_BYTES,
    ReplayDocument,
)
from arkml.replays import documents, shown_rows
from arkml.replays.documents import document_of
from arkml.replays.replay import ReplayedFrame

PLANE = {
    "observations": [
        {"name": "x", "shape": [1]},
        {"name": "y", "shape": [1], "low": -2, "high": 3},
    ],
    "positions": [1, 0],
}
GALLERY = GUESTS / "c_gallery.wasm"
HOSTILE = "</script><script>alert(1)</script>\x1b[31m\u202e"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "guest.trace"


def recorded(path, source, frames, behavior, width, **options):
    """A trace of a training guest whose agents act by zeros."""
    arkml.record(
        source,
        lambda rows: np.zeros((len(rows), width), np.float32),
        path.with_suffix(".npz"),
        behavior=behavior,
        frames=frames,
        trace=path,
        **options,
    )


def declaring(source, behaviors):
    """A module in WAT with a section arkml.spec."""
    text = json.dumps({"behaviors": behaviors}).replace('"', '\\"')
    return source.rstrip().removesuffix(b")") + f'(@custom "arkml.spec" "{text}"))'.encode()


def acted(make_host, path, frames, rows=3, source=ACTOR):
    """A trace of a guest that submits `rows` rows in each frame but the first."""
    host = make_host(trace=path)
    guest = host.load(source, name="actor")
    guest.call("open")
    for _ in range(frames - 1):
        guest.call("step", rows)
    host.close()


def frame_of(rows):
    """A frame with one submit of rows: agent, state and reward."""
    kind = [("id", np.uint64), ("state", np.uint32), ("reward", np.float32)]
    none = np.zeros((len(rows), 0), np.float32)
    values = np.zeros(len(rows), np.float32)
    submit = ReplayedSubmit(1, True, np.array(rows, kind), none, none, values, 0)
    return ReplayedFrame(1, "step", (), None, (submit,), (), None, "", (), b"")


def test_rows_have_the_names_and_positions_that_the_module_declares(make_host, path):
    source = declaring(ACTOR, {"actor": PLANE, "other": {"observations": [{"shape": [3]}]}})
    acted(make_host, path, 3, source=source)
    document = document_of(path, source)

    (behavior,) = document.behaviors
    assert behavior.name == "actor"
    assert behavior.positions == [1, 0]
    assert [(part.name, part.shape) for part in behavior.observations] == [("x", [1]), ("y", [1])]
    assert [part.low for part in behavior.observations] == [[None], [-2]]
    assert [part.high for part in behavior.observations] == [[None], [3]]
    assert (behavior.low, behavior.high, behavior.branches) == ([-1], [1], [])
    assert document.frames[-1].submits[0].behavior == 0


def test_a_declaration_that_is_given_comes_first_and_one_that_cannot_be_read_is_refused(
    make_host, path
):
    source = declaring(ACTOR, {"actor": PLANE})
    acted(make_host, path, 3, source=source)
    spec = {"observations": [{"name": "mine", "shape": [2]}]}

    (behavior,) = document_of(path, source, spec=spec).behaviors
    assert [part.name for part in behavior.observations] == ["mine"]
    assert (behavior.name, behavior.positions) == ("", [])
    with pytest.raises(InvalidSpec, match="shap"):
        document_of(path, source, spec={"observations": [{"shap": [2]}]})


@pytest.mark.parametrize(
    ("behaviors", "words"),
    [
        ({"x": PLANE, "y": {"observations": [{"shape": [2]}]}}, "'x', 'y'"),
        ({"x": {**PLANE, "positions": [0, 2]}}, "positions"),
        ({"x": {"hidden": 1}}, "hidden"),
        ({"x": {"observations": [{"shape": [3]}]}}, "declares 'x' with other widths"),
    ],
)
def test_a_declaration_that_does_not_tell_names_nothing_and_a_note_says_so(
    make_host, path, behaviors, words
):
    source = declaring(ACTOR, behaviors)
    acted(make_host, path, 3, source=source)
    document = document_of(path, source)

    (behavior,) = document.behaviors
    assert (behavior.name, behavior.positions, behavior.low) == ("", [], [None])
    assert [part.name for part in behavior.observations] == ["obs_0"]
    assert any(words in note for note in document.notes)


def test_returns_are_sums_over_all_frames_also_over_those_left_out(path, monkeypatch):
    source = GUESTS / "c_pendulum.wasm"
    recorded(path, source, 210, None, 1)
    whole = document_of(path, source)
    monkeypatch.setattr(documents, "_MOST_NUMBERS", 5_000)
    thinned = document_of(path, source)

    assert whole.every == 1
    assert thinned.every > 1
    assert any("one of every" in note for note in thinned.notes)
    by_frame = {frame.frame: frame.submits[0] for frame in whole.frames}
    for frame in thinned.frames:
        assert by_frame[frame.frame].first(8) == frame.submits[0]
    assert (thinned.frames[0].frame, thinned.frames[-1].frame) == (1, 210)
    rewards = sum(frame.submits[0].rewards[0] for frame in whole.frames[1:150])
    assert whole.frames[149].submits[0].returns[0] == pytest.approx(rewards, rel=1e-6)
    assert any(mark.kind == "episode" for mark in thinned.marks)


def test_an_agent_keeps_its_return_in_other_rows_and_while_it_does_not_submit(monkeypatch):
    run, begin, end = 0, 3, 1
    frames = [
        [(5, begin, 9.0), (6, begin, 9.0)],
        [(6, run, 1.0), (5, run, 10.0)],
        [(7, begin, 9.0)],
        [(5, run, 10.0), (7, run, 100.0), (6, end, 1.0)],
        [(5, run, 10.0), (7, run, 100.0), (6, begin, 4.0)],
        [(5, run, 10.0), (6, run, 0.5)],
    ]
    returns = shown_rows.EpisodeReturns()
    found = [returns.add(frame_of(rows).submits)[0].tolist() for rows in frames]

    assert found == [[0, 0], [1, 10], [0], [20, 100, 2], [30, 200, 0], [40, 0.5]]
    returns.add(frame_of([(5, end, 2.0)]).submits)
    assert returns.ended == [(0, 5, end, 42.0)]
    monkeypatch.setattr(shown_rows, "_MOST_AGENTS", 2)
    for agent in range(10):
        returns.add(frame_of([(agent, run, 1.0)]).submits)
    assert len(returns._others) <= 2


def test_numbers_are_equal_to_those_of_the_replay(make_host, path):
    acted(make_host, path, 4)
    document = document_of(path, ACTOR)
    again = ReplayDocument.unpack(document.pack())

    assert again == document
    with arkml.Replay(path, ACTOR) as replay:
        for shown, frame in zip(document.frames, replay, strict=True):
            for one, submit in zip(shown.submits, frame.submits, strict=True):
                assert np.array_equal(np.float32(one.observations), submit.observations)
                assert np.array_equal(np.float32(one.actions), submit.actions)
                assert one.agents == [str(agent) for agent in submit.rows["id"]]
                assert one.values == []


def test_numbers_that_json_has_not_are_words(path):
    source = GUESTS / "c_pendulum_nan_features.wasm"
    recorded(path, source, 40, None, 1)
    document = document_of(path, source)

    values = [
        value
        for frame in document.frames
        for submit in frame.submits
        for row in submit.observations
        for value in row
    ]
    assert "NaN" in values
    json.loads(document.as_bytes(), parse_constant=pytest.fail)


def test_rows_and_submits_are_bounded_and_notes_say_so(make_host, path):
    acted(make_host, path, 3, rows=100)
    document = document_of(path, ACTOR)

    (submit,) = document.frames[-1].submits
    assert (submit.rows, len(submit.agents), len(submit.observations)) == (100, 64, 64)
    assert document.notes == ["the first 64 rows of submits are shown, and fewer of wide ones"]


def test_rows_are_left_out_before_frames(make_host, path, monkeypatch):
    acted(make_host, path, 21, rows=100)
    monkeypatch.setattr(documents, "_MOST_NUMBERS", 20 * 8 * 7)
    document = document_of(path, ACTOR)

    assert document.every == 1
    assert {len(frame.submits[0].agents) for frame in document.frames[1:]} == {8}
    assert all(
        len(one) == 8
        for one in (
            document.frames[1].submits[0].observations,
            document.frames[9].submits[0].returns,
        )
    )


def test_parts_have_their_kinds_and_images_are_bytes(path):
    parts = [
        {"name": "board", "kind": "grid", "shape": [10, 10], "categories": 256},
        {"name": "eye", "kind": "image", "shape": [64, 63, 3]},
        {"name": "rocks", "kind": "entities", "shape": [13, 7]},
    ]
    recorded(path, GALLERY, 2, None, 1)
    document = document_of(path, GALLERY, spec={"observations": parts})

    with arkml.Replay(path, GALLERY) as replay:
        row = list(replay)[-1].submits[0].observations[0]
    (behavior,) = document.behaviors
    submit = document.frames[-1].submits[0]
    assert [(part.name, part.kind, part.categories) for part in behavior.observations] == [
        ("board", "grid", 256), ("eye", "image", 0), ("rocks_count", "vector", 0),
        ("rocks", "entities", 0),
    ]  # fmt: skip
    assert submit.observations[0] == [*row[:100].tolist(), *row[-92:].tolist()]
    assert base64.b64decode(submit.images[0][0]) == row[100:-92].astype(np.uint8).tobytes()
    assert ReplayDocument.unpack(document.pack()) == document


def test_a_document_has_many_more_images_than_it_would_have_as_numbers(path):
    recorded(path, GALLERY, 60, None, 1)
    document = document_of(path, GALLERY)

    images = sum(len(submit.images) for frame in document.frames for submit in frame.submits)
    assert images > 5 * documents._MOST_NUMBERS // (64 * 64 * 3)
    assert len(document.as_bytes()) < MAX_REPLAY_BYTES


def test_images_without_any_pattern_are_packed_into_the_bytes_of_a_document(path):
    recorded(path, GALLERY, 2, None, 1)
    document = document_of(path, GALLERY)
    pixels = shown_rows._PIXELS * documents._MOST_NUMBERS
    noise = np.random.default_rng(0).integers(0, 256, (pixels // 12_288, 12_288)).astype(np.float32)
    submit = replace(
        document.frames[-1].submits[0], images=shown_rows._images(noise, [slice(None)])
    )
    frames = [replace(document.frames[-1], submits=[submit])]

    assert len(replace(document, frames=frames).pack()) < MAX_PACKED_REPLAY_BYTES


@pytest.mark.parametrize("image", ["AP8", "AP8=x", "A===", "A\nP8", "-_8=", "=" * 4])
def test_an_image_that_is_not_base64_is_refused(path, image):
    recorded(path, GALLERY, 2, None, 1)
    document = document_of(path, GALLERY)
    submit = replace(document.frames[-1].submits[0], images=[[image]])
    wrong = replace(document, frames=[replace(document.frames[-1], submits=[submit])])

    with pytest.raises(ProtocolError, match="images"):
        ReplayDocument.unpack(wrong.pack())


def test_the_page_opens_at_a_frame_which_is_shown_in_any_case(make_host, path, monkeypatch):
    acted(make_host, path, 41)
    monkeypatch.setattr(documents, "_MOST_NUMBERS", 200)
    document = document_of(path, ACTOR, opens_at=20)

    assert document.opens_at == 20
    assert 20 in [frame.frame for frame in document.frames]
    assert document.every > 1
    assert document_of(path, ACTOR).opens_at == 1
    with pytest.raises(UsageError, match="frame 42 is not in the trace"):
        document_of(path, ACTOR, opens_at=42)


def test_lines_of_every_level_are_in_the_document_and_are_not_logged(make_host, path, caplog):
    text, say = logging_of(f"seen {HOSTILE}", level=4)
    source = module(text, function("ark_applet_update", say), uses=(LOG,))
    host = make_host(trace=path)
    guest = host.load(source)
    for _ in range(3):
        guest.update()
    host.close()
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        document = document_of(path, source)

    assert [(line.frame, line.level) for line in document.lines] == [
        (1, "trace"), (2, "trace"), (3, "trace"),
    ]  # fmt: skip
    assert document.lines[0].text.startswith("seen </script>")
    assert not {"\x1b", "\u202e"} & set(document.lines[0].text)
    assert caplog.records == []


def test_no_line_is_lost_because_a_replay_is_fast(make_host, path):
    text, say = logging_of("again")
    source = module(text, function("ark_applet_update", say * 100), uses=(LOG,))
    host = make_host(trace=path)
    guest = host.load(source)
    for _ in range(30):
        guest.update()
    host.close()

    with arkml.Replay(path, source, log=False) as replay:
        assert [len(frame.lines) for frame in replay] == [100] * 30
        assert len(replay.to(3).lines) == 100


def test_many_lines_are_cut_to_the_last(make_host, path, monkeypatch):
    text, say = logging_of("again")
    source = module(text, function("ark_applet_update", say * 10), uses=(LOG,))
    host = make_host(trace=path)
    guest = host.load(source)
    for _ in range(5):
        guest.update()
    host.close()
    monkeypatch.setattr(documents, "_MOST_LINES", 15)
    document = document_of(path, source)

    assert len(document.lines) == 15
    assert document.lines[-1].frame == 5
    assert any("35 lines" in note for note in document.notes)


def test_a_trap_has_its_backtrace_and_the_memory_around_it(make_host, path):
    host = make_host(trace=path)
    live = failure_of(host.load(COUNTING, name="orc"))
    host.close()
    document = document_of(path, COUNTING)

    failure = document.failure
    assert failure.kind == "GuestTrap"
    assert "out of bounds" in failure.text
    assert [call.function for call in failure.calls] == [one.function for one in live.frames]
    assert bytes.fromhex(failure.memory.data)[-8:-4] == (7).to_bytes(4, "little")
    assert failure.memory.start <= failure.memory.fault
    assert document.opens_at == document.frames[-1].frame == 7
    assert [mark.kind for mark in document.marks] == ["failed"]


def test_a_panic_is_told_once(make_host, path):
    source = GUESTS / "as_abort.wasm"
    host = make_host(trace=path)
    failure_of(host.load(source))
    host.close()

    assert document_of(path, source).failure.text.count("frame 3 is too much") == 1


def test_a_replay_that_differs_is_shown_up_to_there(make_host, path):
    acted(make_host, path, 6)

    def alter(events):
        submits = [event for event in events if event[0] == 7]
        submits[2][4][1] ^= 1  # the checksum of its observations

    changed(path, alter)
    document = document_of(path, ACTOR)

    assert [frame.frame for frame in document.frames] == [1, 2, 3, 4]
    assert document.frames[-1].stopped == document.marks[-1].text
    assert "the observations of a submit of 3 rows are not the same" in document.marks[-1].text
    assert (document.marks[-1].kind, document.marks[-1].frame) == ("differs", 4)
    assert document.opens_at == 4


def test_what_is_packed_otherwise_is_refused(make_host, path):
    acted(make_host, path, 2)
    packed = document_of(path, ACTOR).pack()

    for wrong in (b"", packed[:-9], packed + b"x", gzip.compress(b"{}"), b"\x1f\x8b" + packed[9:]):
        with pytest.raises(ProtocolError):
            ReplayDocument.unpack(wrong)
    with pytest.raises(ProtocolError, match="unpacks to more"):
        ReplayDocument.unpack(gzip.compress(b" " * (MAX_REPLAY_BYTES + 1)))
