"""
The names and signatures of Cogment's published Python SDK, as a golden file.

    .venv-cogment/bin/python tests/cogment/signatures.py tests/cogment/python_sdk.json

It is run by the Python that has the published package, and needs nothing else.
"""

import ast
import importlib
import inspect
import json
import sys
import textwrap
from pathlib import Path

CLASSES = {
    "Context": "context",
    "Endpoint": "endpoints",
    "ServedEndpoint": "endpoints",
    "Controller": "control",
    "TrialInfo": "control",
    "ActorInfo": "session",
    "Session": "session",
    "ActorSession": "actor",
    "EnvironmentSession": "environment",
    "PrehookSession": "prehook",
    "DatalogSession": "datalog",
    "LogSample": "datalog_service",
    "RecvObservation": "session",
    "RecvAction": "session",
    "RecvRewardSource": "session",
    "RecvReward": "session",
    "RecvMessage": "session",
    "RecvEvent": "session",
    "TrialParameters": "parameters",
    "ActorParameters": "parameters",
    "GrpcMetadata": "grpc_metadata",
    "CogmentError": "errors",
    "ActorClass": "actor",
    "ActorClassList": "actor",
    "EventType": "session",
    "ActorStatus": "session",
    "TrialState": "control",
}
"""Classes that programs use, by the module that has them; others are named at the root alone."""


def described(function):
    """Parameters of a function, without the first one of a method."""
    return [
        {"name": one.name, "kind": one.kind.name, "is_optional": one.default is not one.empty}
        for one in inspect.signature(function).parameters.values()
        if one.name != "self"
    ]


def attributes(owner):
    """Public attributes that the constructors of a class and of its bases set."""
    found = set()
    for base in owner.__mro__[:-1]:
        if "__init__" in vars(base) and base.__module__.startswith("cogment"):
            tree = ast.parse(textwrap.dedent(inspect.getsource(base.__init__)))
            for node in ast.walk(tree):
                is_set = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
                if is_set and isinstance(node.value, ast.Name) and node.value.id == "self":
                    found.add(node.attr)
    return sorted(name for name in found if not name.startswith("_"))


def members(owner):
    """Methods with their parameters, and other names with None."""
    public = [name for name in dir(owner) if not name.startswith("_")]
    if hasattr(owner, "__members__"):
        public = [*owner.__members__]
    made = {
        name: described(getattr(owner, name))
        if inspect.isroutine(inspect.getattr_static(owner, name))
        else None
        for name in public
        if name not in ("args", "with_traceback", "add_note")
    }
    made |= {name: None for name in attributes(owner) if name not in made}
    if inspect.isfunction(owner.__init__):
        made["__init__"] = described(owner.__init__)
    return dict(sorted(made.items()))


def main(path):
    cogment = importlib.import_module("cogment")
    modules = {name: importlib.import_module(f"cogment.{name}") for name in {*CLASSES.values()}}
    root = sorted(
        name
        for name, value in vars(cogment).items()
        if name == "__version__" or not (name.startswith("_") or inspect.ismodule(value))
    )
    document = {
        "package": f"cogment {cogment.__version__}",
        "root": root,
        "modules": CLASSES,
        "functions": {"make_logger": described(cogment.make_logger)},
        "classes": {
            name: members(getattr(modules[module], name)) for name, module in CLASSES.items()
        },
    }
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(document, indent=1) + "\n")


main(sys.argv[1])
