"""Message types of actor classes, read from the spec file of a project."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from arkml.trials.core.error import TrialError


class Spaces(NamedTuple):
    """The observation and action types of an actor class."""

    observation: type[Message]
    action: type[Message]


def read_spaces(spec: Path) -> dict[str, Spaces]:
    """
    Return the message types of each actor class in a spec file, `cogment.yaml`.

    The types are built in a descriptor pool of their own, without writing files. Raises TrialError
    if the spec file or a .proto file is missing or invalid.
    """
    from arkml.trials.generate.message_types import compile_messages
    from arkml.trials.generate.spec_file import read_spec

    read = read_spec(spec)
    compiled = compile_messages(spec.parent, read.protos)
    compiled.named(read)
    pool = DescriptorPool()
    try:
        for file in compiled.files.values():  # imported ones come first
            pool.AddSerializedFile(file.SerializeToString())
    except TypeError as error:
        raise TrialError(f"{spec}: its .proto files cannot be used: {error}") from None

    def found(name: str) -> type[Message]:
        kind: type[Message] = GetMessageClass(pool.FindMessageTypeByName(name))
        return kind

    return {
        one.name: Spaces(found(one.observation_space), found(one.action_space))
        for one in read.actor_classes
    }
