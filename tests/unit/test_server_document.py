"""The file of a run: what is in it was written by a hive, or it is not a run."""

import copy
import json

import pytest

from arkml.errors import HiveError
from arkml.hive.protocol.masks import mask_names
from arkml.hive.protocol.runs import DOCUMENT_NAME, MAX_NAMES, Best, Role, RunRequest
from arkml.hive.protocol.settings import Settings
from arkml.server.document import Document, pack_document, read_document
from arkml.server.sessions import Sessions

WRONG = (None, True, -1, 1.5, "text", [], ["x"], {}, {"x": 1}, 10**300, [[1]], [None])


def document():
    sessions = Sessions([])
    sessions.add("a key of it", Role.ACT)
    request = RunRequest("run", "game", Settings(3, 2))
    return Document(
        "abc",
        request,
        1,
        names=["speed"],
        sessions=sessions,
        rows=5,
        best=Best("training", 1.5, 2, 3),
    )


def leaves(values, path=()):
    """The paths to everything in a document."""
    items = values.items() if isinstance(values, dict) else enumerate(values)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from leaves(value, (*path, key))


def changed(values, path, value):
    found = copy.deepcopy(values)
    *above, last = path
    inner = found
    for key in above:
        inner = inner[key]
    inner[last] = value
    return found


@pytest.mark.parametrize(
    ("path", "most"),
    [(("started_at",), 2**63 - 1), (("rows",), 2**63 - 1), (("best", 2), 2**63 - 1),
     (("sessions", 0, "index"), 2**32 - 1)],
)  # fmt: skip
def test_counts_are_no_larger_than_what_they_are_kept_in(path, most):
    whole = json.loads(pack_document(document()))
    with pytest.raises(HiveError, match="other values"):
        Document.from_json(changed(whole, path, most + 1))

    assert Document.from_json(changed(whole, path, most)).id == "abc"


def test_a_document_comes_back_as_it_was(tmp_path):
    directory = tmp_path / "abc"
    directory.mkdir()
    (directory / DOCUMENT_NAME).write_bytes(pack_document(document()))

    assert read_document(directory).as_json() == document_like(directory)


def document_like(directory):
    return json.loads((directory / DOCUMENT_NAME).read_bytes())


@pytest.mark.parametrize("path", list(leaves(json.loads(pack_document(document())))), ids=str)
def test_whatever_is_in_a_document_it_is_a_run_that_can_be_told_again_or_none(path):
    whole = json.loads(pack_document(document()))
    refused = 0
    for value in WRONG:
        try:
            found = Document.from_json(changed(whole, path, value))
        except HiveError:
            refused += 1
            continue
        assert Document.from_json(json.loads(pack_document(found))).as_json() == found.as_json()
        assert found.rows + found.started_at + found.version_limit >= 0

    assert refused >= 5 or path[:3] == ("request", "settings", "other")


def test_new_metric_names_are_those_that_the_run_has_not():
    new, refused = document().select_new_names(["speed", "height", "height", "", "x" * 257])

    assert new == ["height"]
    assert list(refused) == ["", "x" * 257]
    assert refused["x" * 257] == "a name has 1 to 256 letters, not 257"


def test_a_full_run_takes_the_names_it_has_and_no_new_one():
    full = document()
    full.names = [str(number) for number in range(MAX_NAMES - 1)]
    new, refused = full.select_new_names(["0", "last", "too many"])

    assert new == ["last"]
    assert list(refused) == ["too many"]


def test_masks_take_no_place_from_metrics():
    branches = (300, 3)
    request = RunRequest("run", "game", Settings(3, 2, branches))
    run = Document("abc", request, 1, names=mask_names(branches))
    new, refused = run.select_new_names(map(str, range(MAX_NAMES + 1)))

    assert len(new) == MAX_NAMES
    assert list(refused) == [str(MAX_NAMES)]
    assert run.select_new_names(["mask/0/299"]) == ([], {})
