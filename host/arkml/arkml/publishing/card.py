"""The card of a published guest: a README with a picture, scores, observations and actions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from arkml.base.release import RELEASE
from arkml.base.terminal import harmless
from arkml.hive.protocol.replay_messages import ShownBehavior, ShownPart
from arkml.publishing.training_facts import Facts
from arkml.runtime.compiled_module import CompiledModule
from arkml.training.results import EvaluationResult

CARD, PICTURE = "README.md", "card.svg"

LICENSES = frozenset(
    {
        *("afl-3.0", "agpl-3.0", "apache-2.0", "artistic-2.0", "bsd-2-clause", "bsd-3-clause"),
        *("bsd-3-clause-clear", "bsl-1.0", "c-uda", "cc0-1.0", "cc-by-2.0", "cc-by-2.5"),
        *("cc-by-3.0", "cc-by-4.0", "cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0"),
        *("cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0", "cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0"),
        *("cc-by-nc-sa-4.0", "cc-by-nd-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0"),
        *("cdla-permissive-1.0", "cdla-permissive-2.0", "cdla-sharing-1.0", "ecl-2.0", "epl-1.0"),
        *("epl-2.0", "etalab-2.0", "eupl-1.1", "eupl-1.2", "gpl-2.0", "gpl-3.0", "isc"),
        *("lgpl-2.1", "lgpl-3.0", "lppl-1.3c", "mit", "mpl-2.0", "ms-pl", "ncsa", "ofl-1.1"),
        *("osl-3.0", "postgresql", "unlicense", "wtfpl", "zlib"),
    }
)
"""Licenses that Hugging Face knows by the identifiers of SPDX, which its hub checks."""

_MOST_OF_REASON = 500  # characters
_SUFFIX = re.compile("-(only|or-later)$")


class Card(NamedTuple):
    """
    The texts of a card that do not come from playing the guest.

    Attributes:
        title: The title.
        license: The identifier of a license, empty for none.
        trained: How the policy was trained, in the words of the author, or empty.
        facts: Facts about the training of each policy that are known without the author.
        behaviors: The names of the behaviors that act by a policy each, in the order of `facts`;
            the first is the one that was evaluated. Empty if there is one policy.
        unrated: Why there is no evaluation, empty if there is one.

    """

    title: str
    license: str
    trained: str
    facts: Sequence[Facts]
    behaviors: Sequence[str] = ()
    unrated: str = ""


def card_files(
    card: Card,
    module: CompiledModule,
    behaviors: Sequence[ShownBehavior],
    picture: bytes | None,
    scores: EvaluationResult | None,
    seed: int,
    *,
    deterministic: bool,
) -> dict[str, bytes]:
    """Return the files of the card, README and picture (if there is one), by name."""
    noise = "without" if deterministic else "with"
    lines = [
        *_front_matter(card, scores, seed),
        f"# {_plain(card.title)}",
        "",
        *([] if picture is None else [f"![{_plain(card.title)}]({PICTURE})", ""]),
        "A guest and its policy, published by [arkml](https://pypi.org/project/arkml/)"
        f" {RELEASE}. Any static host serves this folder: open `index.html` to watch and to play.",
        "",
        f"The guest is {_plain(module.name)}, SHA-256 `{module.digest}`; seed {seed}, {noise}"
        " the noise of the policy.",
        "",
        "## Scores",
        "",
        *_scores(scores, seed, card),
        "",
        "## Observations and actions",
        "",
        *(line for one in behaviors for line in _behavior(one)),
        "## Training",
        "",
        *_training(card),
        "",
        "## License",
        "",
        _plain(card.license) or "None is named: ask the author.",
        "",
        "## In a page",
        "",
        "```html",
        f'<iframe src="index.html" title="{escape(_line(card.title))}" width="720" height="640"',
        '  style="border: 0" loading="lazy" allow="gamepad">',
        "</iframe>",
        "```",
        "",
    ]
    written = {CARD: "\n".join(lines).encode()}
    return written if picture is None else written | {PICTURE: picture}


def _front_matter(card: Card, scores: EvaluationResult | None, seed: int) -> Iterator[str]:
    """Yield the lines that model hubs read, YAML whose texts are JSON."""
    yield "---"
    yield from _license(card.license)
    yield "library_name: arkml"
    yield "pipeline_tag: reinforcement-learning"
    yield "tags: [reinforcement-learning, arkml, webassembly]"
    if scores is not None:
        title = _quoted(card.title)
        yield "model-index:"
        yield f"- name: {title}"
        yield "  results:"
        yield "  - task: {type: reinforcement-learning, name: reinforcement-learning}"
        yield f"    dataset: {{name: {title}, type: {title}}}"
        yield "    metrics:"
        value = f"{scores.mean_return:.2f} +/- {scores.standard_deviation:.2f}"
        yield f"    - {{type: mean_reward, name: mean_reward, value: {_quoted(value)},"
        yield f"       args: {{episodes: {len(scores.returns)}, seed: {seed}}}}}"
    yield "---"


def _license(identifier: str) -> Iterator[str]:
    """Yield the license as hubs take it: one of theirs, alternatives as a list, or "other"."""
    named = [_SUFFIX.sub("", one).lower() for one in identifier.split(" OR ")]
    if not identifier:
        return
    if LICENSES.issuperset(named):
        yield f"license: [{', '.join(named)}]"
    else:
        yield "license: other"
        yield f"license_name: {_quoted(identifier)}"


def _training(card: Card) -> Iterator[str]:
    if card.trained or not any(card.facts):
        yield _plain(card.trained) or "The author does not say how the policy was trained."
        return
    for place, facts in enumerate(card.facts):
        if card.behaviors:
            yield f"Behavior {_plain(card.behaviors[place])}:"
            yield ""
        if not facts:
            yield "The author does not say how the policy was trained."
            yield ""
            continue
        yield "| | |"
        yield "| --- | --- |"
        for name, value in facts:
            yield f"| {_plain(name)} | {_plain(value)} |"
        if card.behaviors:
            yield ""


def _scores(scores: EvaluationResult | None, seed: int, card: Card) -> Iterator[str]:
    if scores is None:
        yield f"No evaluation: {_plain(card.unrated[:_MOST_OF_REASON])}."
        return
    if card.behaviors:
        rated, *others = map(_plain, card.behaviors)
        yield f"Of the agents of {rated}, among those of {', '.join(others)}."
        yield ""
    yield "| episodes | seed | mean return | deviation | mean length | success |"
    yield "| ---: | ---: | ---: | ---: | ---: | ---: |"
    rate = scores.success_rate
    success = "not told" if rate is None else f"{100 * rate:.0f} %"
    yield (
        f"| {len(scores.returns)} | {seed} | {scores.mean_return:.2f}"
        f" | {scores.standard_deviation:.2f} | {scores.lengths.mean():.0f} | {success} |"
    )


def _behavior(behavior: ShownBehavior) -> Iterator[str]:
    if behavior.name:
        yield f"Behavior {_plain(behavior.name)}:"
        yield ""
    yield "| | shape | from | to |"
    yield "| --- | --- | ---: | ---: |"
    for part in behavior.observations:
        shape = " x ".join(map(str, part.shape))
        kind = "" if part.kind == "vector" else f", {part.kind}"
        yield f"| observation {_plain(part.name)}{kind} | {shape} | {_bounds(part)} |"
    width = len(behavior.low)
    numbers = [*map(str, range(width)), *map(str, range(len(behavior.branches)))]
    names = [_plain(name) for name in behavior.names] or numbers
    for name, low, high in zip(names[:width], behavior.low, behavior.high, strict=True):
        yield f"| action {name} | 1 | {_bound(low)} | {_bound(high)} |"
    for name, choices in zip(names[width:], behavior.branches, strict=True):
        yield f"| choice {name} | 1 | 0 | {choices - 1} |"
    yield ""


def _bounds(part: ShownPart) -> str:
    bounds = [{*part.low}, {*part.high}]
    return " | ".join(_bound(*one) if len(one) == 1 else "several" for one in bounds)


def _bound(bound: float | None) -> str:
    return "any" if bound is None else f"{bound:g}"


def _line(text: str) -> str:
    return harmless(text).replace("\n", " ")


def _quoted(text: str) -> str:
    """Return a text as YAML takes it, and JSON."""
    return json.dumps(_line(text), ensure_ascii=False)


def _plain(text: str) -> str:
    """Return a text in one line that Markdown takes as it is."""
    kept = _line(text)
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in kept)
