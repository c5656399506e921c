"""The folders that `arkml publish` writes, without a browser; `make test-browser` has the rest."""

import base64
import collections
import gzip
import hashlib
import html
import itertools
import json
import re
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from tests.integration.duel_guest import duel
from tests.integration.test_several_behaviors import DRIVER, PICKER, guest
from tests.node import run_module
from tests.published_host import played_in_wasmtime
from tests.published_policies import drawn, model, noisy, remembering, scoring
from tests.unit.test_published_guest import GUESTS
from wasmtime import wat2wasm

import arkml
from arkml import page_scripts
from arkml.errors import InvalidArguments, LinkError, ModelRejected, UsageError
from arkml.page_scripts.bundle import bundled, bundled_script
from arkml.publishing import acting
from arkml.publishing.acting import declared_actions
from arkml.publishing.folder import MARK, write_folder
from arkml.publishing.web_runtime import RUNTIME_FILES
from arkml.sessions.branches import DeclaredBranches

ROOT = GUESTS.parents[1]
POINTMASS = GUESTS / "policies/pointmass.onnx"
PROGRAM = ROOT / "tests/published_frames.mjs"
APPLET = GUESTS / "c_applet.wasm"


def published(tmp_path, guest=APPLET, policy=POINTMASS, **options):
    return arkml.publish(guest, policy, tmp_path / "site", **{"episodes": 0, **options})


def document_in(site):
    page = (site.folder / "index.html").read_text()
    return json.loads(
        re.search(r'<script id="site" type="application/json">(.*)</script>', page)[1]
    )


def digest_of(text):
    return f"sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}"


@pytest.mark.parametrize(
    ("guest", "policy"),
    [
        ("c_applet", POINTMASS.read_bytes()),
        ("c_maze", scoring(2, 3)),  # a branch, with masks
        ("c_reach_seeded", noisy(4, 2)),
        ("c_echo", remembering(4, 3)),
        ("c_drift", scoring(2, 1)),  # WASI
        ("ark_api/applet_train_016", scoring(2, 1)),  # Rust; trains before it opens a session
    ],
)
def test_a_site_plays_as_the_host_does_with_the_kernel(guest, policy, tmp_path):
    path = GUESTS / f"{guest}.wasm"
    site = published(tmp_path, path, policy, seed=5)
    asked = {"folder": str(site.folder), "scripts": f"{page_scripts.FOLDER.as_uri()}/"}
    played = run_module(PROGRAM, {**asked, "frames": 120, "every": 20})

    wanted = played_in_wasmtime(path, policy, 120, 20, seed=5, trains=site.trains)
    assert played["hashes"] == wanted["hashes"]
    assert len(set(played["hashes"])) > 1


SPEC = json.dumps({
    "behaviors": {
        "picker": {"observations": [{"shape": [1]}], "actions": {"continuous": 1}},
        "driver": {"observations": [{"shape": [1]}], "actions": {"continuous": 3}},
    }
}).replace('"', '\\"')  # fmt: skip
TRAINING = wat2wasm(
    guest(PICKER, DRIVER).replace(
        b"(module", f'(module (@custom "arkml.spec" "{SPEC}")'.encode(), 1
    )
)
"""A guest of two behaviors that acts in trainings alone."""

DUEL = wat2wasm(duel("left", "right", rivals=True))
"""A guest of two behaviors that opens inference sessions, which have no names."""

CASES = [
    (DUEL, "left", noisy(2, 1), {"right": scoring(3, 1)}),
    (DUEL, "right", noisy(3, 1), {"left": remembering(2, 1)}),
    (TRAINING, "picker", noisy(1, 1), {"driver": scoring(1, 3)}),
    (TRAINING, "driver", noisy(1, 3), {"picker": scoring(1, 1)}),
]


@pytest.mark.parametrize(("module", "behavior", "policy", "others"), CASES)
def test_each_behavior_of_a_site_acts_by_its_policy(module, behavior, policy, others, tmp_path):
    site = published(tmp_path, module, policy, seed=5, others=others, episodes=2)
    asked = {"folder": str(site.folder), "scripts": f"{page_scripts.FOLDER.as_uri()}/"}
    played = run_module(PROGRAM, {**asked, "frames": 60, "every": 1})
    options = {"seed": 5, "trains": site.trains}
    wanted = played_in_wasmtime(module, policy, 60, 1, others=others, **options)
    alone = published(tmp_path, module, policy, seed=5, behavior=behavior)
    by_one = run_module(PROGRAM, {**asked, "frames": 60, "every": 1})

    assert played["hashes"] == wanted["hashes"]
    assert played["hashes"] != by_one["hashes"]
    assert site.scores is None or len(site.scores.returns) == 2
    assert "policy-1.wasm" in site.files
    assert "policy-1.wasm" not in alone.files


def test_a_page_tells_behaviors_apart_by_numbers_as_a_host_does():
    random, cases, wanted = np.random.default_rng(1), [], []
    for _ in range(300):
        behaviors = {name: declaration(random) for name in ("a", "b", "*")[: random.integers(1, 4)]}
        spec = json.dumps({"behaviors": behaviors}).encode()
        declared = declared_actions(SimpleNamespace(info=SimpleNamespace(spec=spec)))
        for numbers in itertools.product((None, 1, 2), (None, 0, 1, 2, 3)):
            cases.append({"declared": declared, "numbers": numbers})
            wanted.append(DeclaredBranches(spec).names_of(*numbers))
    asked = {"scripts": f"{page_scripts.FOLDER.as_uri()}/", "cases": cases}
    found = run_module(ROOT / "tests/unit/published_fitting.mjs", asked)

    assert found == wanted
    assert {len(names) for names in wanted} == {0, 1, 2}


def declaration(random):
    """A declaration of a behavior that may leave out its observations or continuous actions."""
    actions = {"discrete": [2] * int(random.integers(0, 3))}
    if random.integers(2):
        actions["continuous"] = int(random.integers(0, 3))
    seen = [{"shape": [int(random.integers(1, 3))]}] if random.integers(4) else []
    return {"actions": actions, **({"observations": seen} if seen else {})}


@pytest.mark.parametrize(
    ("others", "options", "error", "words"),
    [
        ({"rihgt": scoring(3, 1)}, {}, UsageError, "'rihgt', and .* declares left, right"),
        (
            {"right": scoring(2, 1)},
            {},
            InvalidArguments,
            "does not fit .*2 features .* 3 are given",
        ),
        (
            {"left": scoring(2, 1)},
            {"behavior": "left"},
            UsageError,
            "whose agents the policy itself",
        ),
        ({"left": scoring(2, 1), "right": scoring(3, 1)}, {}, UsageError, "for each behavior"),
    ],
)
def test_others_that_cannot_act_in_a_site_are_refused(others, options, error, words, tmp_path):
    with pytest.raises(error, match=words):
        published(tmp_path, DUEL, scoring(2, 1), others=others, **options)
    assert not list(tmp_path.iterdir())


def test_others_need_a_declaration_and_a_policy_beside_them(tmp_path):
    with pytest.raises(UsageError, match="does not declare how many numbers its agents observe"):
        published(tmp_path, wat2wasm(guest(PICKER)), scoring(1, 1), others={"a": scoring(1, 1)})
    with pytest.raises(UsageError, match="policies beside another one"):
        published(tmp_path, DUEL, None, others={"a": scoring(1, 1)}, replay="a.trace")


@pytest.mark.parametrize("name", ["published_page.js", "replay_page.js"])
def test_names_at_the_top_of_joined_modules_differ(name):
    names = re.findall(
        r"^(?:async )?(?:class|const|let|function) (\w+)", bundled(name), re.MULTILINE
    )

    assert [one for one, count in collections.Counter(names).items() if count > 1] == []


def test_what_answers_the_imports_is_small():
    assert len(gzip.compress(bundled("ark_guest.js").encode())) <= 20_000


@pytest.mark.parametrize(
    ("guest", "policy"),
    [
        ("c_applet", POINTMASS.read_bytes()),
        ("c_play_corridor", (GUESTS / "policies/play_corridor.onnx").read_bytes()),  # a game
        ("c_gallery", scoring(64 * 64 * 3, 3)),  # images
    ],
)
def test_what_is_beside_guest_and_weights_is_small(guest, policy, tmp_path):
    site = published(tmp_path, GUESTS / f"{guest}.wasm", policy)
    sizes = {name: size for name, size in site.files.items() if not name.endswith(".wasm")}
    del sizes["files.js"]  # both once more, for pages of a disk

    assert sum(sizes.values()) <= 100_000


def test_the_script_says_what_its_modules_say_and_has_no_comment_lines():
    script = bundled_script("published_page.js")

    assert not re.search(r"^\s*//", script, re.MULTILINE)
    assert "class ArkGuest" in script
    assert "eval(" not in script


def test_the_page_permits_files_of_its_folder_alone(tmp_path):
    folder = published(tmp_path).folder
    page = (folder / "index.html").read_text()
    packed = re.match(r'const packed = "([^"]*)";', (folder / "page.js").read_text())[1]
    script = gzip.decompress(base64.b64decode(packed))
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1])
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1].encode()
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))

    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == f"'self' '{digest_of(script)}' 'wasm-unsafe-eval'"
    assert rules["connect-src"] == "'self'"
    assert rules["style-src"] == f"'{digest_of(style)}'"


def test_a_hostile_title_stays_text(tmp_path):
    page = (published(tmp_path, title="</title><script>x").folder / "index.html").read_text()

    assert "<script>x" not in page


def test_the_guest_is_published_as_it_is(tmp_path):
    site = published(tmp_path)

    assert (site.folder / "c_applet.wasm").read_bytes() == APPLET.read_bytes()
    assert not site.is_changed


def test_a_guest_without_agents_is_refused(tmp_path):
    with pytest.raises(InvalidArguments, match=r"did not act in 600 frames .*--configure-numbers"):
        published(tmp_path, GUESTS / "cpp_command.wasm")


def test_a_guest_that_trains_is_shown_as_it_is_configured(tmp_path):
    two_teams = (3, 1, 2, 0, 0)
    site = published(tmp_path, GUESTS / "c_walkers.wasm", scoring(2, 1), configure=two_teams)

    shown = [one["observations"][0]["shape"] for one in document_in(site)["behaviors"]]
    assert shown == [[2], [3]]


def test_a_configuration_that_a_guest_refuses_is_told(tmp_path, caplog):
    published(tmp_path, GUESTS / "c_walkers.wasm", scoring(2, 1), configure=(99, 1, 1, 0, 0))

    assert "c_walkers.wasm: configure answered 5 to (99, 1, 1, 0, 0)" in caplog.text


def test_the_card_has_what_hubs_read_and_what_people_ask(tmp_path):
    options = {"license": "MIT", "trained": "By hand.", "title": "Masses", "episodes": 3, "seed": 4}
    guest = GUESTS / "c_reach.wasm"
    site = published(tmp_path, guest, scoring(4, 2), **options)
    card = (site.folder / "README.md").read_text()
    _, front, text = card.split("---\n", 2)

    assert "license: [mit]" in front
    assert "library_name: arkml" in front
    assert f"{site.scores.mean_return:.2f} +/- {site.scores.standard_deviation:.2f}" in front
    assert hashlib.sha256(guest.read_bytes()).hexdigest() in text
    assert f"| 3 | 4 | {site.scores.mean_return:.2f} |" in text
    assert "By hand." in text
    assert "| action 1 | 1 |" in text
    assert (site.folder / "card.svg").read_text().startswith("<svg ")


def test_the_card_calls_actions_by_their_names(tmp_path):
    policy = GUESTS / "policies/play_lander.onnx"
    site = published(tmp_path, GUESTS / "c_play_lander.wasm", policy, episodes=0)

    assert "| action thrust across | 1 | -1 | 1 |" in (site.folder / "README.md").read_text()


def test_a_guest_that_acts_by_brains_alone_is_refused_with_what_to_do(tmp_path):
    wasm = wat2wasm("""(module
      (import "ark-ml-inference-v0" "ml_inference__load_inference_async"
        (func (param i32 i32 i32 i32 i32) (result i32)))
      (memory (export "memory") 1)
      (func (export "ark_applet_update")))""")

    with pytest.raises(LinkError, match="ml__start_inference of ark-ml-v1 opens a session"):
        published(tmp_path, bytes(wasm))


def test_a_policy_of_other_widths_is_refused_with_the_reason(tmp_path):
    reason = r"did not act in 600 frames \(a snapshot was refused: .* takes 3 features .*, 2 are"
    with pytest.raises(InvalidArguments, match=reason):
        published(tmp_path, policy=scoring(3, 1))

    assert not (tmp_path / "site").exists()


def test_a_guest_that_is_configured_has_no_scores(tmp_path):
    options = {"configure": (2, 7), "episodes": 2}
    site = published(tmp_path, GUESTS / "c_reach.wasm", scoring(4, 2), **options)

    assert site.scores is None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "No evaluation: none was asked for."),
        (
            {"episodes": 3},
            "No evaluation: guest starts no training: it imports no function that does",
        ),
    ],
)
def test_the_card_says_why_there_is_no_evaluation(tmp_path, options, reason):
    site = published(tmp_path, **options)

    assert site.scores is None
    assert reason in (site.folder / "README.md").read_text()


def test_a_policy_of_other_widths_than_a_guest_declares_is_refused_with_both(tmp_path):
    with pytest.raises(InvalidArguments, match=r"the model takes 2 features .*, 125 are given"):
        published(tmp_path, GUESTS / "c_sorter.wasm")

    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("guest", ["c_play_lander", "c_applet"])  # the first declares its rows
def test_a_policy_is_compiled_once(guest, tmp_path, monkeypatch):
    render = MagicMock(wraps=acting.render)
    monkeypatch.setattr(acting, "render", render)
    policy = {"c_applet": POINTMASS}.get(guest, GUESTS / "policies/play_lander.onnx")
    published(tmp_path, GUESTS / f"{guest}.wasm", policy)

    assert render.call_count == 1


def test_operators_that_cannot_be_compiled_are_named(tmp_path):
    nodes = [("MatMul", ["obs", "w"], ["h"]), ("CumSum", ["h", "axis"], ["actions"])]
    loaded = onnx.load_from_string(
        model(nodes, {"w": drawn(2, 1, seed=1)}, {"obs": 2}, {"actions": 1})
    )
    loaded.graph.initializer.append(numpy_helper.from_array(np.array(1, np.int64), "axis"))

    with pytest.raises(ModelRejected, match=r"by this policy: .*CumSum.* --runtime node_modules"):
        published(tmp_path, policy=loaded.SerializeToString())
    assert not (tmp_path / "site").exists()


@pytest.fixture
def package(tmp_path):
    """A folder as npm makes it, with files that no test loads."""
    folder = tmp_path / "onnxruntime-web"
    (folder / "dist").mkdir(parents=True)
    about = {"name": "onnxruntime-web", "version": "1.30.0", "license": "MIT"}
    (folder / "package.json").write_text(json.dumps(about))
    for name in RUNTIME_FILES:
        (folder / "dist" / name).write_text(name)
    return folder


def test_a_policy_that_is_compiled_brings_no_runtime(tmp_path, package):
    site = published(tmp_path, runtime=package)

    assert site.runtime_bytes == 0
    assert "ort.wasm.min.mjs" not in site.files


def test_a_policy_of_no_runtime_is_refused_by_its_own_fault(tmp_path, package):
    with pytest.raises(ModelRejected) as raised:
        published(tmp_path, policy=b"no model", runtime=package)
    assert "--runtime" not in str(raised.value)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda folder: (folder / "package.json").unlink(), "cannot be read"),
        (lambda folder: (folder / "dist" / RUNTIME_FILES[2]).unlink(), "cannot be read"),
        (lambda folder: (folder / "package.json").write_text("[]"), "not the description"),
        (lambda folder: (folder / "package.json").write_text("{"), "not the description"),
        (
            lambda folder: (folder / "package.json").write_text(
                '{"name": "left-pad", "version": "1", "license": "MIT"}'
            ),
            "is the package 'left-pad', not onnxruntime-web",
        ),
    ],
)
def test_a_folder_without_the_runtime_is_refused(tmp_path, package, spoil, reason):
    spoil(package)

    with pytest.raises(UsageError, match=reason):
        published(tmp_path, runtime=package)
    assert not (tmp_path / "site").exists()


def test_a_folder_with_other_things_in_it_stays(tmp_path):
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "thesis.tex").write_text("mine")

    with pytest.raises(UsageError, match=r"has other things in it, such as thesis\.tex"):
        published(tmp_path)
    assert (folder / "thesis.tex").read_text() == "mine"


def test_a_published_folder_is_written_anew(tmp_path):
    published(tmp_path, title="First")
    site = published(tmp_path, title="Second")

    assert "Second" in (site.folder / "index.html").read_text()
    assert {path.name for path in site.folder.iterdir()} == {*site.files}
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_a_folder_that_cannot_be_written_whole_is_not_written(tmp_path):
    write_folder(tmp_path / "site", {MARK: b"{}", "old": b"1"})

    with pytest.raises(UsageError, match="cannot be written"):
        write_folder(tmp_path / "site", {MARK: b"{}", "no/such/folder": b"2"})
    assert (tmp_path / "site/old").read_bytes() == b"1"


def test_nothing_to_publish_is_refused(tmp_path):
    with pytest.raises(UsageError, match="name a policy, a replay, or both"):
        arkml.publish(APPLET, None, tmp_path / "site")


def test_a_game_needs_a_declaration_of_what_is_observed(tmp_path):
    game = tmp_path / "my.js"
    game.write_text("export default () => ({});")

    with pytest.raises(UsageError, match="declares no observations"):
        published(tmp_path, imports=game)


def test_the_document_has_seed_and_branches_of_the_play(tmp_path):
    site = published(tmp_path, GUESTS / "c_maze.wasm", scoring(2, 3), seed=7, fps=30)
    document = document_in(site)

    assert document["seed"] == "7"
    assert [one["branches"] for one in document["policies"]] == [[3]]
    assert document["plan"]["frameNanoseconds"] == round(1e9 / 30)
    assert document["plan"]["trains"] is False
