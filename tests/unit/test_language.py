"""Docstrings, messages and guides are in plain English, in the idiom of the models."""

import ast
import importlib.util
from functools import cache
from pathlib import Path

import pytest
from tests import language
from tests.language import OPENINGS, WORDS

from arkml.abi.catalog import APIS, FOREIGN, INTERNAL

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "host"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "_pb2" not in path.name)  # generated
GUIDES = sorted(
    [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *ROOT.glob("host/*/README.md")]
    + [path for room in ("docs", "guest_abi", "fixtures") for path in (ROOT / room).rglob("*.md")]
)
MODELS = ("httpx", "httpcore", "h11", "wasmtime", "starlette", "gymnasium")

# Packages and modules of arkml, and guides, that are not in plain English yet.
PENDING: set[str] = set()
PENDING_GUIDES: set[str] = set()


def name_of(path):
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts[2:])


def parsed(paths):
    return {path: ast.parse(path.read_text()) for path in paths}


@cache
def trees_of(model):
    return parsed(sorted(Path(importlib.util.find_spec(model).origin).parent.rglob("*.py")))


def prefixes(path, joint):
    """`a`, `a.b` and `a.b.c` of the path `a/b/c.py`; guides keep their suffix."""
    parts = (path.with_suffix("") if path.suffix == ".py" else path).parts
    return {joint.join(parts[: length + 1]) for length in range(len(parts))}


def is_pending(path):
    return not PENDING.isdisjoint(prefixes(path.relative_to(SOURCE), "."))


def is_pending_guide(path):
    return not PENDING_GUIDES.isdisjoint(prefixes(path.relative_to(ROOT), "/"))


@pytest.fixture(scope="module")
def exceptions():
    return language.exceptions_of(parsed(MODULES).values())


@pytest.mark.parametrize("path", [path for path in MODULES if not is_pending(path)], ids=name_of)
def test_a_module_is_in_plain_english(path, exceptions):
    tree = ast.parse(path.read_text())
    texts = [*language.docstrings(tree), *language.messages(tree, exceptions)]

    broken = [finding.at(path.relative_to(ROOT)) for finding in language.findings(texts)]

    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    "path",
    [path for path in GUIDES if not is_pending_guide(path)],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_a_guide_is_in_plain_english(path):
    found = language.findings([language.prose(path.read_text())])

    broken = [finding.at(path.relative_to(ROOT)) for finding in found]

    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("model", MODELS)
def test_the_rules_find_nothing_in_the_libraries_whose_idiom_they_describe(model):
    trees = trees_of(model)
    exceptions = language.exceptions_of(trees.values())

    for path, tree in trees.items():
        texts = [*language.docstrings(tree), *language.messages(tree, exceptions)]
        assert language.findings(texts) == [], path


def test_the_libraries_have_some_fifteen_hundred_docstrings():
    trees = [tree for model in MODELS for tree in trees_of(model).values()]

    count = sum(1 for tree in trees for _ in language.docstrings(tree))

    assert count > 1400


@pytest.mark.parametrize("rule", OPENINGS + WORDS, ids=lambda rule: rule.name)
def test_a_rule_refuses_its_bad_sentence_and_allows_its_good_one(rule):
    (finding,) = language.findings([language.Text(1, rule.bad)])

    assert finding.rule == rule.name
    assert language.findings([language.Text(1, rule.good)]) == []


@pytest.mark.parametrize("word", ["What", "How", "Whether", "Who", "Where", "Which", "Why", "what"])
def test_every_question_word_is_refused_as_the_first_and_allowed_later(word):
    first = language.Text(1, f"{word} a guest asks for.")
    later = language.Text(1, f"Return {word.lower()} a guest asks for.")

    assert len(language.findings([first])) == 1
    assert language.findings([later]) == []


@pytest.mark.parametrize(
    "phrase",
    [
        "nobody", "somebody", "everybody", "whoever", "go on", "goes on", "gone on", "so many",
        "so often", "is no", "of ours", "of theirs", "tells of", "says of", "So many", "goes\non",
    ],
)  # fmt: skip
def test_every_refused_phrase_is_found_in_the_middle_and_on_its_line(phrase):
    text = language.Text(3, f"Return a value.\n\nThen {phrase} value.")

    (finding,) = language.findings([text])

    assert finding.line == 5


@pytest.mark.parametrize("allowed", ["there is no", "There is no", "is no longer", "there\nis no"])
def test_there_is_no_and_is_no_longer_are_plain_english(allowed):
    assert language.findings([language.Text(1, f"Return None if {allowed} value.")]) == []


MESSAGES = """
class Odd(ValueError):
    def __init__(self):
        super().__init__("who {1}")

def built(name: str) -> Odd:
    return Odd()

_TEXT = "what a constant"

def every(log, name):
    log.warning("what %s", name)
    log.say(f"what {name}")
    raise Odd("who " "raised")
    raise Odd(_TEXT)
    raise built(f"{name} is no {'so many' if name else 'name'}")
    Option(help="how many")
    failed = RuntimeError("where " + name)
    reader.refused("not read: what")
    raise reader.refused("which one")
    print("what is not read")
"""


def test_messages_are_literals_given_to_errors_loggers_and_help():
    tree = ast.parse(MESSAGES)

    texts = list(language.messages(tree, language.exceptions_of([tree])))

    assert {text.value for text in texts if text.opening} == {
        "who {1}",
        "what %s",
        "what {}",
        "who raised",
        "what a constant",
        "{} is no {}",
        "how many",
        "where ",
        "which one",
    }
    assert {text.value for text in texts if not text.opening} == {"so many", "name"}


def test_docstrings_are_those_of_modules_classes_functions_and_attributes():
    tree = ast.parse('"""m"""\nclass C:\n  """c"""\n  a = 1\n  """a"""\n  def f():\n    """f"""')

    assert [text.value for text in language.docstrings(tree)] == ["m", "c", "a", "f"]


def test_code_in_a_guide_is_not_prose():
    guide = "One `is no` two.\n\n```\nso many\n```\n\nThree is no four.\n"

    (finding,) = language.findings([language.prose(guide)])

    assert finding.line == 7


def descriptions(api):
    yield api.doc
    for row in (*api.functions, *api.handles, *api.structs):
        yield row.doc
    for struct in api.structs:
        yield from (field.doc for field in struct.fields)


@pytest.mark.parametrize("api", [*APIS, *FOREIGN, *INTERNAL], ids=lambda api: api.module)
def test_the_descriptions_of_an_abi_table_are_in_plain_english(api):
    texts = [language.Text(0, text) for text in descriptions(api)]

    assert language.findings(texts) == []


def test_what_is_pending_exists():
    modules = {name for path in MODULES for name in prefixes(path.relative_to(SOURCE), ".")}
    guides = {name for path in GUIDES for name in prefixes(path.relative_to(ROOT), "/")}

    assert modules >= PENDING
    assert guides >= PENDING_GUIDES
