"""Frames of grpc-web and messages of grpc-websockets, in any parts and with any bytes."""

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkml.trials.server.web.frames import (
    CallHeaders,
    CallRefused,
    CallStatus,
    FrameDecoder,
    HalfClose,
    SocketDecoder,
    data_frame,
    headers_frame,
    ids_in,
    parsed,
    trailers_frame,
)
from arkml.trials.wire.actor_pb2 import ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import SerializedMessage

LIMIT = 100
contents = st.lists(st.binary(max_size=LIMIT), max_size=8)


def frame(content, flag=0):
    return bytes([flag]) + len(content).to_bytes(4, "big") + content


@st.composite
def parts(draw, source):
    """Bytes cut anywhere, with empty parts among them."""
    data = draw(source)
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@given(st.data(), contents)
def test_any_parts_of_a_stream_have_the_same_messages(data, messages):
    stream = b"".join(frame(one) for one in messages)
    decoder = FrameDecoder(LIMIT)
    decoded = [one for part in data.draw(parts(st.just(stream))) for one in decoder.feed(part)]
    decoder.finish()

    assert decoded == messages


def outcome(feed, pieces):
    """The contents of pieces, and the first error of them."""
    decoded = []
    for piece in pieces:
        try:
            decoded += feed(piece)
        except CallRefused as refusal:
            return decoded, (str(refusal), refusal.status)
    return decoded, None


@given(st.binary(max_size=400), st.data())
def test_garbage_gives_one_error_however_it_is_cut(garbage, data):
    pieces = data.draw(parts(st.just(garbage)))
    _, byte_by_byte = outcome(FrameDecoder(LIMIT).feed, [bytes([one]) for one in garbage])
    _, cut = outcome(FrameDecoder(LIMIT).feed, pieces)

    assert cut == byte_by_byte


@given(st.binary(max_size=200))
def test_a_decoder_that_refused_refuses_all_that_follows(garbage):
    decoder = FrameDecoder(LIMIT)
    with pytest.raises(CallRefused) as first:
        decoder.feed(b"\x07" + bytes(4))
    with pytest.raises(CallRefused) as second:
        decoder.feed(garbage)

    assert second.value is first.value


@pytest.mark.parametrize(
    ("stream", "status", "text"),
    [
        (frame(b"", 0x80), CallStatus.INVALID_ARGUMENT, "flag 0x80"),
        (frame(b"", 0x01), CallStatus.UNIMPLEMENTED, "compressed"),
        (
            b"\0\xff\xff\xff\xff",
            CallStatus.RESOURCE_EXHAUSTED,
            "4294967295 bytes is longer than 100",
        ),
        (frame(bytes(LIMIT + 1)), CallStatus.RESOURCE_EXHAUSTED, "101 bytes is longer than 100"),
    ],
)
def test_a_frame_that_is_not_read_is_named(stream, status, text):
    with pytest.raises(CallRefused, match=text) as refused:
        FrameDecoder(LIMIT).feed(stream)

    assert refused.value.status == status


def test_a_stream_that_ends_within_a_frame_is_refused():
    decoder = FrameDecoder(LIMIT)
    decoder.feed(frame(b"whole") + b"\0\0\0")

    with pytest.raises(CallRefused, match="after 3 bytes of a frame"):
        decoder.finish()


@given(st.lists(st.binary(max_size=120), max_size=10))
def test_any_messages_of_a_websocket_are_read_or_refused(messages):
    decoder = SocketDecoder(LIMIT)
    events, _ = outcome(decoder.receive, messages)

    assert all(isinstance(event, CallHeaders | HalfClose | bytes) for event in events)


@given(st.data(), contents)
def test_frames_may_be_split_over_messages_of_a_websocket(data, sent):
    stream = b"".join(frame(one) for one in sent)
    pieces = data.draw(parts(st.just(stream)))
    decoder = SocketDecoder(LIMIT)
    messages = [b"trial-id: a\r\n", *(b"\0" + piece for piece in pieces), b"\x01"]
    events, refusal = outcome(decoder.receive, messages)

    assert (events, refusal) == ([CallHeaders({"trial-id": "a"}), *sent, HalfClose()], None)


def test_headers_of_a_websocket_are_joined_by_name():
    decoder = SocketDecoder(LIMIT)
    block = b"Trial-Id: a, b\r\nx-grpc-web:1\r\ntrial-id: c\r\nempty: \r\n"

    (headers,) = decoder.receive(block)
    assert headers == CallHeaders({"trial-id": "a, b, c", "x-grpc-web": "1", "empty": ""})
    assert ids_in([headers.values["trial-id"]]) == ["a", "b", "c"]


@pytest.mark.parametrize("block", [b"no header", b"a b: c", b"caf\xc3\xa9: 1", b"x: \x00", b":"])
def test_a_websocket_without_headers_is_refused(block):
    with pytest.raises(CallRefused, match="is not a header"):
        SocketDecoder(LIMIT).receive(block)


def test_long_headers_of_a_websocket_are_refused():
    with pytest.raises(CallRefused, match="8193 bytes, more than 8192"):
        SocketDecoder(LIMIT).receive(b"a: " + b"b" * 8190)


def test_nothing_comes_after_the_end_of_a_half():
    decoder = SocketDecoder(LIMIT)
    decoder.receive(b"")
    decoder.receive(b"\x01")

    with pytest.raises(CallRefused, match="after the end"):
        decoder.receive(b"\0" + frame(b"late"))


@given(st.text(max_size=300))
def test_the_message_of_a_trailer_is_ascii_and_read_back(text):
    content = trailers_frame(CallStatus.FAILED_PRECONDITION, text)
    flag, size, rest = content[0], int.from_bytes(content[1:5], "big"), content[5:]
    first, second, end = rest.decode("ascii").split("\r\n")

    assert (flag, size, first, end) == (0x80, len(rest), "grpc-status: 9", "")
    message = second.removeprefix("grpc-message: ")
    assert unquote(message) == text
    assert message.isprintable()


def test_the_headers_of_an_answer_are_a_frame_of_trailers():
    assert headers_frame() == frame(b"content-type: application/grpc-web+proto\r\n", 0x80)


def test_a_message_is_a_frame_even_if_it_is_empty():
    assert data_frame(SerializedMessage()) == frame(b"")
    assert data_frame(SerializedMessage(content=b"a")) == frame(b"\n\1a")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(content):
    message, refusal = outcome(lambda one: [parsed(ActorRunTrialOutput, one)], [content])

    text = f"{len(content)} bytes are not the message ActorRunTrialOutput"
    assert message or refusal == (text, CallStatus.INVALID_ARGUMENT)
