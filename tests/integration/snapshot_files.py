"""Files of states that were altered, with the right checksum."""

import hashlib
import zlib

import msgspec

_HEAD = len(b"arkml-state\n") + 1  # and a digest


def altered(state, change):
    """The contents of the file of a state, after `change` was called with its first guest."""
    data = bytes(state)
    body = msgspec.msgpack.decode(zlib.decompress(data[_HEAD + 32 :]))
    change(body["guests"][0])
    content = zlib.compress(msgspec.msgpack.encode(body))
    return data[:_HEAD] + hashlib.sha256(content).digest() + content
