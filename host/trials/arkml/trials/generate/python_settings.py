"""Python files of a project: cog_settings.py and its message modules."""

from __future__ import annotations

import keyword

from arkml.trials.generate.message_types import Compiled, MessageType
from arkml.trials.generate.spec_file import ActorClassEntry, SpecFile

MODULE = "cog_settings.py"

_TEXT = '''\
"""The settings of the trials that {spec} specifies."""

# Written by `arkml trials generate`. Do not edit.

from types import SimpleNamespace

from arkml.trials import ActorClass, ActorClassList

{imports}

actor_classes = ActorClassList({actor_classes})

trial = SimpleNamespace(config_type={trial})

environment = SimpleNamespace(config_type={environment})
'''


def python_files(spec: SpecFile, compiled: Compiled) -> dict[str, str]:
    """Return the texts of all Python modules of a project by path within one folder."""
    named = compiled.named(spec)
    protos = sorted({kind.proto for kind in named.values()})
    expressions = {name: _expression(kind) for name, kind in named.items()}
    text = _TEXT.format(
        spec=spec.path.name,
        imports="\n".join(map(_import, protos)),
        actor_classes="".join(_actor_class(each, expressions) for each in spec.actor_classes)
        + "\n" * bool(spec.actor_classes),
        trial=expressions.get(spec.trial_config or ""),
        environment=expressions.get(spec.environment_config or ""),
    )
    return {**compiled.python, MODULE: text}


def _actor_class(actor_class: ActorClassEntry, expressions: dict[str, str]) -> str:
    return (
        "\n    ActorClass("
        f"\n        name={actor_class.name!r},"
        f"\n        config_type={expressions.get(actor_class.config_type or '')},"
        f"\n        action_space={expressions[actor_class.action_space]},"
        f"\n        observation_space={expressions[actor_class.observation_space]},"
        "\n    ),"
    )


def _import(proto: str) -> str:
    return f"import {_module(proto)} as {_alias(proto)}"


def _module(proto: str) -> str:
    return proto.removesuffix(".proto").replace("-", "_").replace("/", ".") + "_pb2"


def _alias(proto: str) -> str:
    return _module(proto).replace(".", "_").removesuffix("2")


def _expression(kind: MessageType) -> str:
    expression = _alias(kind.proto)
    for part in kind.parts:
        is_name = not keyword.iskeyword(part)
        expression = f"{expression}.{part}" if is_name else f"getattr({expression}, {part!r})"
    return expression
