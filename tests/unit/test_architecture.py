"""Imports follow the call, third-party packages have owners, modules say what they own."""

import ast
import dataclasses
import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.error_tree import tree
from tools.houses import merge

import arkml
import arkml.testing
import arkml.trials
from arkml import errors

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "host"
MODULES = sorted(SOURCE.rglob("*.py"))
OWNERS = {
    "wasmtime": ("arkml.runtime",),
    "hatchling": ("hatch_build",),  # when a wheel is built
    "ziglang": ("hatch_build",),
    "onnxruntime": ("arkml.base.native_imports", "arkml.policies"),
    "onnx": ("arkml.policies", "arkml.learning"),
    "google": (  # protobuf
        "arkml.policies",
        "arkml.envs.llapi",
        "arkml.trials",
        "arkml.guest_trials",
    ),
    "tract": ("arkml.policies",),
    "msgspec": (
        "arkml.hive",
        "arkml.server",
        "arkml.runs",
        "arkml.sessions.declarations",
        "arkml.sessions.declared_games",
        "arkml.guests.state_files",
        "arkml.guests.trace_events",
        "arkml.guests.trace_files",
    ),
    "zstandard": ("arkml.hive.protocol.rows", "arkml.learning.compilation_cache"),
    "typer": (
        "arkml.cli",
        "arkml.envs.llapi.command",
        "arkml.hive_commands",
        "arkml.trial_commands",
    ),
    "rich": ("arkml.cli",),
    "matplotlib": ("arkml.training",),
    "h5py": ("arkml.demonstrations",),
    "optuna": ("arkml.training",),
    "wandb": ("arkml.training",),
    "mlflow": ("arkml.training",),
    "httpx": ("arkml.hive", "arkml.envs.llapi.registry"),
    "starlette": ("arkml.server", "arkml.trials.server"),
    "uvicorn": ("arkml.base.http_server", "arkml.trials.server.web.connections"),
    "uvloop": ("arkml.server",),
    "httptools": ("arkml.base.http_server",),
    "websockets": ("arkml.trials.server.web.connections",),
    "prometheus_client": ("arkml.server.monitoring.prometheus",),
    "requests": ("arkml.hive.tracing",),  # of OpenTelemetry's exporter
    "opentelemetry": ("arkml.hive.tracing", "arkml.server.monitoring.body_traces"),
    "safetensors": ("arkml.learning",),
    "jax": ("arkml.learning",),
    "optax": ("arkml.learning",),
    "gymnasium": ("arkml.envs", "arkml.async_trainer.adaptors"),
    "pettingzoo": ("arkml.envs",),
    "grpc": ("arkml.envs.llapi", "arkml.trials"),
    "grpc_tools": ("arkml.trials.generate",),
    "PIL": ("arkml.envs",),
    "stable_baselines3": ("arkml.envs.sb3",),
    "yaml": ("arkml.async_trainer.core.config_files", "arkml.base.yaml_documents"),
    "tensorboardX": ("arkml.learning",),
    "ray": ("arkml.workers", "arkml.async_trainer.runners"),
    "pytest": ("arkml.testing",),
}
HEAVY = {
    "onnxruntime",
    "onnx",
    "google.protobuf",
    "tract",
    "wasmtime",
    "httpx",
    "jax",
    "opentelemetry",
    "prometheus_client",
    "starlette",
}
TABLES = SOURCE / "arkml" / "arkml" / "abi"
WIRE_ENDS = {
    "PolicyFile": "the message `policy` of a learner",
    "PolicyVersion": "GET /v1/runs/{id}/policy",
    "RunSession": "/v1/sessions/{sid}",
}
"""Public classes that may share a name, as the two ends of one wire: the name and the wire."""
BORDER = "arkml.async_trainer"
BORDER_NAMES = {"Actor", "Policy", "Record", "Recorder", "Step", "Trainer"}
"""Public classes of BORDER that share a name with another one, since border names them so."""
COGMENT = "arkml.trials.sdk"
COGMENT_NAMES = {"Session"}
"""Public classes of COGMENT that share a name with another one, since Cogment's SDK has it."""


def name_of(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def packages_imported_by(path):
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


def python(*arguments):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, cwd=ROOT
    )


def test_imports_keep_the_contracts(tmp_path):
    merge(tmp_path)  # import-linter reads one folder of a package
    lint = (
        "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    )
    run = subprocess.run(  # import-linter disables the loggers of the process it runs in
        [sys.executable, "-c", lint], capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip

    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_third_party_package_has_one_owner(path):
    module = name_of(path)
    foreign = packages_imported_by(path) - sys.stdlib_module_names - {"arkml", "numpy"}

    assert foreign <= OWNERS.keys()
    for package in foreign:
        assert any(f"{module}.".startswith(f"{owner}.") for owner in OWNERS[package])


def imports_among(modules):
    """The modules that each of `modules`, a dictionary of paths, imports from the others."""
    found = {}
    for name, path in modules.items():
        imported = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                imported |= inner & modules.keys() or {node.module}
        found[name] = imported & modules.keys() - {name}
    return found


def circles(graph):
    """The sets of nodes that reach each other, by Tarjan."""
    numbers, lowest, stack, found = {}, {}, [], []

    def visit(node):
        numbers[node] = lowest[node] = len(numbers)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in numbers:
                visit(other)
            if other in stack:
                lowest[node] = min(lowest[node], lowest[other])
        if lowest[node] == numbers[node]:
            start = stack.index(node)
            if len(stack) - start > 1:
                found.append(sorted(stack[start:]))
            del stack[start:]

    for node in sorted(graph):
        if node not in numbers:
            visit(node)
    return found


def test_a_circle_is_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a", "f"}, "f": {"e"}}

    assert circles(graph) == [["b", "c"], ["e", "f"]]


def test_no_modules_import_each_other():
    """Neither late nor for types only: modules that need each other are cut in the wrong place."""
    modules = {name_of(path): path for path in MODULES}

    assert circles(imports_among(modules)) == []


def public_classes():
    """The modules that define each public class, by its name."""
    found = {}
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(name_of(path))
    return found


def test_no_two_public_classes_have_one_name():
    shared = {name: modules for name, modules in public_classes().items() if len(modules) > 1}
    elsewhere = {
        name
        for name, modules in shared.items()
        if sum(not module.startswith((f"{BORDER}.", f"{COGMENT}.")) for module in modules) > 1
    }

    assert elsewhere == WIRE_ENDS.keys()
    assert shared.keys() - elsewhere == BORDER_NAMES | COGMENT_NAMES


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_module_is_named_as_one_of_the_standard_library(path):
    """Where such a folder is the current one, a script that imports the other gets ours."""
    assert path.parent == TABLES or path.stem not in sys.stdlib_module_names


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_opens_with_what_it_owns(path):
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_logs_by_a_logger_whose_handlers_fail_nobody(path):
    """As where the program has closed the stream of a handler, or stderr."""
    assert "getLogger(__name__)" not in path.read_text()


def test_the_bindings_of_wasmtime_are_used_in_their_module_only():
    """
    `_bindings`, `_ffi` and what classes keep private: what version 50 is pinned for.

    The compiler's own process imports wasmtime alone, and so has one binding itself.
    """
    private = {"_bindings", "_ffi", "_context", "_consume", "_from_ptr", "_as_extern"}
    found = {name_of(path) for path in MODULES if private & names_in(path)}

    assert found == {"arkml.runtime.bindings", "arkml.runtime.compilation.compiler"}


def names_in(path):
    """Attributes, and names that are imported from modules of wasmtime."""
    tree = list(ast.walk(ast.parse(path.read_text())))
    attributes = {node.attr for node in tree if isinstance(node, ast.Attribute)}
    imports = [node for node in tree if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name.rpartition(".")[2] for node in imports for alias in node.names}
    modules = {str(node.module).rpartition(".")[2] for node in imports
               if isinstance(node, ast.ImportFrom)}  # fmt: skip
    return attributes | names | modules


@pytest.mark.parametrize(
    "text", [errors.__doc__, (ROOT / "docs" / "errors.md").read_text()], ids=["module", "docs"]
)
def test_the_tree_of_errors_is_that_of_the_classes(text):
    drawn = "\n".join(line.removeprefix("    ") for line in text.splitlines())

    assert tree() in drawn


def test_the_doc_of_statistics_names_its_fields():
    fields = {field.name for field in dataclasses.fields(arkml.Statistics)}

    assert set(re.findall(r"`(\w+)`", arkml.Statistics.__doc__)) == fields | {"Limits"}


def test_the_public_names_are_sorted():
    constants_classes_functions = sorted(
        arkml.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name)
    )

    assert list(arkml.__all__) == constants_classes_functions
    assert len(set(arkml.__all__)) == len(arkml.__all__)


def test_the_public_names_are_complete():
    visible = {
        name
        for name, value in vars(arkml).items()
        if str(getattr(value, "__module__", "")).startswith("arkml") and not name.startswith("_")
    }

    assert visible <= set(arkml.__all__)
    assert all(hasattr(arkml, name) for name in arkml.__all__)


@pytest.mark.parametrize(
    "package", [arkml, arkml.testing, arkml.trials], ids=lambda package: package.__name__
)
def test_lazy_names_are_said_alike_to_readers_type_checkers_and_the_interpreter(package):
    imported = {
        alias.name: node.module
        for block in ast.parse(Path(package.__file__).read_text()).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    assert imported == package._HOMES
    assert list(package._HOMES) == list(package.__all__)


def test_the_package_knows_its_version():
    assert arkml.__version__ == importlib.metadata.version("arkml")


def test_importing_the_package_loads_nothing_heavy():
    printed = python("-c", "import sys, arkml; print(*sys.modules)").stdout

    assert HEAVY & set(printed.split()) == set()


def test_the_help_of_the_command_line_loads_nothing_heavy():
    timings = python("-X", "importtime", "-m", "arkml", "--help").stderr
    imported = {line.rsplit("|", 1)[-1].strip() for line in timings.splitlines()}

    assert "arkml.cli" in imported
    assert HEAVY & imported == set()


def test_the_package_says_that_it_is_typed():
    assert (SOURCE / "base" / "arkml" / "py.typed").is_file()
