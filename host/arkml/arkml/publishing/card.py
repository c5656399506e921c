"""The card of a published guest: a README with a picture, scores, observations and actions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from arkml.base.release import RELEASE
from arkml.base.terminal import harmless
from arkml.hive.protocol.replay_messages import ShownBehavior, ShownPart
from arkml.runtime.compiled_module import CompiledModule
from arkml.training.results import EvaluationResult

CARD, PICTURE = "README.md", "card.svg"


class Card(NamedTuple):
    """What the author says: a title, the identifier of a license, how the policy was trained."""

    title: str
    license: str
    trained: str


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
    """Return the card and its picture, if there is one, by name."""
    noise = "without" if deterministic else "with"
    lines = [
        *_front_matter(card, scores),
        f"# {_plain(card.title)}",
        "",
        *([] if picture is None else [f"![{_plain(card.title)}]({PICTURE})", ""]),
        "A guest and its policy, published by [arkml](https://pypi.org/project/arkml/)"
        f" {RELEASE}. Any static host serves this folder: open `index.html` to watch and to play.",
        "",
        f"The guest is `{_plain(module.name)}`, SHA-256 `{module.digest}`; seed {seed}, {noise}"
        " the noise of the policy.",
        "",
        "## Scores",
        "",
        *_scores(scores, seed),
        "",
        "## Observations and actions",
        "",
        *(line for one in behaviors for line in _behavior(one)),
        "## Training",
        "",
        _plain(card.trained) or "The author does not say how the policy was trained.",
        "",
        "## License",
        "",
        _plain(card.license) or "None is named: ask the author.",
        "",
        "## In a page",
        "",
        "```html",
        f'<iframe src="index.html" title="{_plain(card.title)}" width="720" height="640"',
        '  style="border: 0" loading="lazy" allow="gamepad">',
        "</iframe>",
        "```",
        "",
    ]
    written = {CARD: "\n".join(lines).encode()}
    return written if picture is None else written | {PICTURE: picture}


def _front_matter(card: Card, scores: EvaluationResult | None) -> Iterator[str]:
    """Yield the lines that model hubs read, YAML whose texts are JSON."""
    yield "---"
    if card.license:
        yield f"license: {json.dumps(card.license.lower())}"
    yield "library_name: arkml"
    yield "pipeline_tag: reinforcement-learning"
    yield "tags: [reinforcement-learning, arkml, webassembly]"
    if scores is not None:
        title = json.dumps(card.title)
        yield "model-index:"
        yield f"- name: {title}"
        yield "  results:"
        yield "  - task: {type: reinforcement-learning, name: reinforcement-learning}"
        yield f"    dataset: {{name: {title}, type: {title}}}"
        yield "    metrics:"
        value = f"{scores.mean_return:.2f} +/- {scores.standard_deviation:.2f}"
        yield f"    - {{type: mean_reward, name: mean_reward, value: {json.dumps(value)}}}"
    yield "---"


def _scores(scores: EvaluationResult | None, seed: int) -> Iterator[str]:
    if scores is None:
        yield "No evaluation: the guest starts no training, ends no episode, or none was asked for."
        return
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
        yield f"Behavior `{_plain(behavior.name)}`:"
        yield ""
    yield "| | shape | from | to |"
    yield "| --- | --- | ---: | ---: |"
    for part in behavior.observations:
        shape = " x ".join(map(str, part.shape))
        kind = "" if part.kind == "vector" else f", {part.kind}"
        yield f"| observation `{_plain(part.name)}`{kind} | {shape} | {_bounds(part)} |"
    for place, (low, high) in enumerate(zip(behavior.low, behavior.high, strict=True)):
        yield f"| action {place} | 1 | {_bound(low)} | {_bound(high)} |"
    for place, choices in enumerate(behavior.branches):
        yield f"| choice {place} | 1 | 0 | {choices - 1} |"
    yield ""


def _bounds(part: ShownPart) -> str:
    bounds = [{*part.low}, {*part.high}]
    return " | ".join(_bound(*one) if len(one) == 1 else "several" for one in bounds)


def _bound(bound: float | None) -> str:
    return "any" if bound is None else f"{bound:g}"


def _plain(text: str) -> str:
    """Return a text in one line that Markdown takes as it is."""
    kept = harmless(text).replace("\n", " ")
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in kept)
