"""The meanings of names that trainers give to the inputs and outputs of models."""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from itertools import pairwise

DESCRIPTIVE = frozenset(
    {
        "version_number",
        "memory_size",
        "is_continuous_control",
        "action_output_shape",
        "continuous_action_output_shape",
        "discrete_action_output_shape",
    }
)
"""Outputs by which ML-Agents describes a model."""


class Meaning(Enum):
    """The meaning of a model's output, guessed from its name."""

    ACTIONS = "actions"
    PERHAPS = "actions, or something about them"
    SCORES = "scores of choices"
    VALUE = "value"
    ASIDE = "figures beside the actions"
    UNKNOWN = "unknown"


_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_OUTPUT_NUMBER = re.compile(r":\d+$")  # which TensorFlow appends

_ASIDE = frozenset(
    [
        "std",
        "stds",
        "stddev",
        "stdev",
        "logstd",
        "sigma",
        "sigmas",
        "scale",
        "scales",
        "var",
        "variance",
        "logvar",
        "deviation",
        "cov",
        "covariance",
        "precision",
        "logprob",
        "logprobs",
        "logp",
        "neglogp",
        "neglogprob",
        "entropy",
        "loss",
        "losses",
        "advantage",
        "advantages",
        "adv",
        "mask",
        "masks",
        "noise",
        "step",
        "steps",
        "counter",
        "reward",
        "rewards",
        "done",
        "dones",
        "terminated",
        "truncated",
        "version",
    ]
)
_NUMBERED = ("policy", "actor", "model", "agent", "player", "team", "group", "episode", "env")
_ASIDE_PAIRS = frozenset(
    {
        *(("log", word) for word in ("std", "stds", "sigma", "scale", "var", "variance")),
        *(("log", word) for word in ("prob", "probs", "probability", "probabilities", "p")),
        *((word, number) for word in _NUMBERED for number in ("id", "ids", "idx", "index")),
    }
)
_SCORES = frozenset(
    [
        "q",
        "qf",
        "qvalue",
        "qvalues",
        "qvals",
        "logit",
        "logits",
        "probs",
        "probability",
        "probabilities",
    ]
)
_SCORES_PAIRS = frozenset({("action", "value"), ("action", "values")})
_VALUE = frozenset(
    ["value", "values", "critic", "critics", "baseline", "baselines", "v", "vf", "vpred", "vpreds"]
)
_ACTIONS = frozenset(
    [
        "action",
        "actions",
        "act",
        "acts",
        "actor",
        "mu",
        "mean",
        "means",
        "loc",
        "policy",
        "pi",
        "control",
        "controls",
        "ctrl",
    ]
)
_DISCRETE = frozenset(["discrete", "categorical", "choice", "choices", "branch", "branches"])
_KINDS = _DISCRETE | frozenset(
    ["continuous", "deterministic", "out", "outs", "output", "outputs", "final"]
)
"""Words beside which a word for actions still says that they are the ones that act."""

_MADE = frozenset(
    [
        "squashed",
        "tanh",
        "clipped",
        "clamped",
        "bounded",
        "scaled",
        "sample",
        "samples",
        "sampled",
        "mode",
    ]
)
"""Words for what is made of a mean, which may act in its place."""

_LAYERS = frozenset(
    ["hidden", "latent", "latents", "feature", "features", "embedding", "embeddings"]
)
_OBSERVATIONS = frozenset(["obs", "observation", "observations"])
_ABOUT_ACTIONS = _LAYERS | frozenset(
    [
        "prev",
        "previous",
        "last",
        "old",
        "low",
        "high",
        "min",
        "max",
        "bias",
        "bound",
        "bounds",
        "limit",
        "limits",
        "num",
        "size",
        "shape",
        "dim",
    ]
)
"""Words beside which a word for actions says nothing: `actor_hidden`, `action_low`."""

_SIDES = frozenset(
    [
        "in",
        "ins",
        "input",
        "inputs",
        "out",
        "outs",
        "output",
        "outputs",
        "prev",
        "previous",
        "last",
        "next",
        "new",
        "initial",
        "init",
        "final",
        "start",
        "begin",
        "end",
        "before",
        "after",
        "pre",
        "post",
        "past",
        "present",
        "cur",
        "current",
        "old",
        "updated",
    ]
)
_BEFORE = frozenset({"prev", "previous", "last", "old"})
_TORCH = {f"{state}{side}": (state, *words) for state in "hc"
          for side, words in (("n", ("out",)), ("x", ("in",)), ("y", ("out",)))}  # fmt: skip
_SPLIT = {**_TORCH, "tm": ("t",), "tp": ("t",)}  # hx and hy, h_tm1 and h_t


_OF_STATES = frozenset(
    [
        "noise",
        "step",
        "steps",
        "counter",
        "mask",
        "masks",
        "scale",
        "scales",
        "var",
        "q",
        "v",
        "critic",
        "critics",
    ]
)
_NO_STATE = (_ASIDE | _SCORES | _VALUE | {"log", "prob"}) - _OF_STATES
"""Words for figures that are predictions, or of the step before, but no state by themselves."""

_FLAGS = frozenset(
    [
        "mask",
        "masks",
        "avail",
        "available",
        "legal",
        "valid",
        "first",
        "starts",
        "episode",
        "reset",
        "resets",
        "done",
        "dones",
        "terminal",
        "terminals",
        "seq",
        "len",
        "lens",
        "length",
        "lengths",
    ]
)
"""Words for masks, and for flags and lengths by which trainers cut episodes."""


def without_output_number(name: str) -> str:
    """Return a name without the colon and output number that TensorFlow appends."""
    return _OUTPUT_NUMBER.sub("", name)


@lru_cache(maxsize=512)
def words(name: str) -> tuple[str, ...]:
    """Return the words and numbers of a name in lower case: `hiddenOut_1` has three."""
    found: list[str] = []
    for word in _WORDS.findall(without_output_number(name)):
        found += _SPLIT.get(word.lower(), (word.lower(),))
    return tuple(found)


def unnumbered(name: str) -> tuple[str, ...]:
    """Return the words of a name without its numbers: `head_2` and `head_0` have the same."""
    return tuple(word for word in words(name) if not word.isdigit())


def numbers_of(name: str) -> tuple[int, ...]:
    """Return the numbers of a name, for example 2 for `head_2`."""
    return tuple(int(word) for word in words(name) if word.isdigit())


@lru_cache(maxsize=512)
def meaning(name: str) -> Meaning:
    """Return the meaning of an output with this name."""
    found = words(name)
    own, pairs = set(found), set(pairwise(found))
    if any(first == "var" and second.isdigit() for first, second in pairs):
        own.discard("var")  # a variable: exporters number them
    if own & _ASIDE or pairs & _ASIDE_PAIRS:
        return Meaning.ASIDE
    if own & _SCORES or pairs & _SCORES_PAIRS:
        return Meaning.SCORES
    if own & _VALUE:
        return Meaning.VALUE
    if own & _ABOUT_ACTIONS or not own & _ACTIONS:
        return Meaning.UNKNOWN
    others = {word for word in own - _ACTIONS - _KINDS if not word.isdigit()}
    return Meaning.PERHAPS if others else Meaning.ACTIONS


@lru_cache(maxsize=512)
def state_name(name: str, leniency: int) -> tuple[str, ...]:
    """
    Return the part of a name that the input and the output of one recurrent state share.

    Leniency 1 removes words for input and output, leniency 2 also numbers, as in `h_0` and `h_n`.
    """
    if leniency == 0:
        return (name.lower(),)
    found = [word for word in words(name) if word not in _SIDES]
    if leniency == 2:
        found = [word for word in found if not (word.isdigit() or word == "n")]
    return tuple(found)


def is_figure(name: str) -> bool:
    """Return whether all words of a name suggest a reward, a value or another figure."""
    found = set(unnumbered(name)) - _SIDES - {"action", "actions"}
    return bool(found) and found <= _NO_STATE


def is_flag(name: str) -> bool:
    """Return whether a word of a name suggests a mask, or a flag or length of episodes."""
    return not _FLAGS.isdisjoint(words(name))


def is_action(name: str) -> bool:
    """Return whether all words of a name suggest actions, as in `mean_actions`."""
    found = set(words(name)) - _SIDES
    return bool(found) and found <= _ACTIONS | {"continuous", "discrete", "deterministic"}


def is_discrete(name: str) -> bool:
    """Return whether a word of a name suggests discrete choices, as in `action_discrete`."""
    return not _DISCRETE.isdisjoint(words(name))


def is_observation(name: str) -> bool:
    """Return whether all words of a name suggest an agent's observation, as in `obs_0`."""
    found = {word for word in words(name) if not word.isdigit()} - _SIDES
    return bool(found) and found <= _OBSERVATIONS


def may_act(name: str) -> bool:
    """Return whether the name suggests actions, or something that actions are made of."""
    return meaning(name) in (Meaning.ACTIONS, Meaning.PERHAPS) or (
        meaning(name) is Meaning.UNKNOWN and not _MADE.isdisjoint(words(name))
    )


def is_no_head(name: str) -> bool:
    """Return whether a word of a name suggests a layer, an observation or the last action."""
    return not (_LAYERS | _OBSERVATIONS).isdisjoint(words(name)) or is_last_action(name)


def is_last_action(name: str) -> bool:
    """Return whether a name suggests an input for the previous action, as in `prev_action`."""
    found = set(words(name))
    return bool(found & _BEFORE) and bool(found & {"action", "actions"})
