"""JavaScript files of a project, such as CogSettings.js, message modules, and their types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from arkml.trials.generate.javascript_codecs import (
    exported,
    import_path,
    module_path,
    module_text,
)
from arkml.trials.generate.message_types import Compiled
from arkml.trials.generate.spec_file import ActorClassEntry, SpecFile
from arkml.trials.generate.typescript_declarations import declaration_path, declaration_text

MODULE = "CogSettings.js"
DECLARATIONS = "CogSettings.d.ts"

SDK = "cogment"
"""Folder of the SDK within the output folder."""

_NOTICE = "Written by `arkml trials generate` from {source}. Do not edit."


def javascript_files(spec: SpecFile, compiled: Compiled) -> dict[str, str]:
    """
    Return the texts of all modules by path, including the SDK.

    Each has a TypeScript declaration file beside it. Raises TrialError for messages that JavaScript
    cannot represent.
    """
    runtime = f"{SDK}/protobuf.js"
    texts = {
        module_path(proto): module_text(
            proto, compiled.files, _NOTICE.format(source=proto), runtime
        )
        for proto in compiled.files
    }
    texts |= {
        declaration_path(proto): declaration_text(
            proto, compiled.files, _NOTICE.format(source=proto), runtime
        )
        for proto in compiled.files
    }
    source = Path(str(files("arkml.trials"))) / "js"
    texts |= {
        f"{SDK}/{path.relative_to(source).as_posix()}": path.read_text(encoding="utf-8")
        for path in sorted((*source.rglob("*.js"), *source.rglob("*.d.ts")))
    }
    texts[MODULE] = _settings(spec, compiled)
    texts[DECLARATIONS] = _declarations(spec, compiled)
    return texts


def _aliases(compiled: Compiled) -> tuple[dict[str, str], dict[str, str]]:
    """Return the names of the imported modules, and the expressions of all types."""
    aliases = {proto: f"pb{index}" for index, proto in enumerate(compiled.files)}
    expressions = {
        name: f"{aliases[kind.proto]}.{exported(compiled.files[kind.proto].package, kind.parts)}"
        for name, kind in compiled.types.items()
    }
    return aliases, expressions


def _declarations(spec: SpecFile, compiled: Compiled) -> str:
    aliases, expressions = _aliases(compiled)
    kinds = {name: f"typeof {expression}" for name, expression in expressions.items()}
    lines = [f"// {_NOTICE.format(source=spec.path.name)}", ""]
    lines += [
        f'import type * as {alias} from "{import_path(MODULE, module_path(proto))}";'
        for proto, alias in aliases.items()
    ]
    lines += [
        f'import type {{ MessageType }} from "./{SDK}/protobuf.js";',
        "",
        "export const cogSettings: {",
        "  messageUrlMap: { [url: string]: MessageType<any> };",
        "  actorClasses: {",
    ]
    for one in spec.actor_classes:
        words = [
            "name: string",
            f"actionSpace: {kinds[one.action_space]}",
            f"observationSpace: {kinds[one.observation_space]}",
        ]
        if one.config_type is not None:
            words.append(f"config: {kinds[one.config_type]}")
        lines.append(f"    {one.name}: {{ {'; '.join(words)} }};")
    sections = {"trial": spec.trial_config, "environment": spec.environment_config}
    lines.append("  };")
    for section, name in sections.items():
        lines.append(f"  {section}: {{{'' if name is None else f' config: {kinds[name]} '}}};")
    return "\n".join((*lines, "};")) + "\n"


def _settings(spec: SpecFile, compiled: Compiled) -> str:
    aliases, expressions = _aliases(compiled)
    lines = [f"// {_NOTICE.format(source=spec.path.name)}", ""]
    lines += [
        f'import * as {alias} from "{import_path(MODULE, module_path(proto))}";'
        for proto, alias in aliases.items()
    ]
    lines += ["", "export const cogSettings = {", "  messageUrlMap: {"]
    lines += [
        f'    "type.googleapis.com/{name}": {expression},'
        for name, expression in expressions.items()
    ]
    lines += ["  },", "  actorClasses: {"]
    for actor_class in spec.actor_classes:
        lines += _actor_class(actor_class, expressions)
    lines += [
        "  },",
        f"  trial: {{ {_config(spec.trial_config, expressions)} }},",
        f"  environment: {{ {_config(spec.environment_config, expressions)} }},",
        "};",
    ]
    return "\n".join(line.replace("{  }", "{}") for line in lines) + "\n"


def _actor_class(actor_class: ActorClassEntry, expressions: Mapping[str, str]) -> list[str]:
    lines = [
        f"    {actor_class.name}: {{",
        f"      name: {json.dumps(actor_class.name)},",
        f"      actionSpace: {expressions[actor_class.action_space]},",
        f"      observationSpace: {expressions[actor_class.observation_space]},",
    ]
    if actor_class.config_type is not None:
        lines.append(f"      {_config(actor_class.config_type, expressions)},")
    return [*lines, "    },"]


def _config(name: str | None, expressions: Mapping[str, str]) -> str:
    return "" if name is None else f"config: {expressions[name]}"
