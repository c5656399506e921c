"""The settings of a run's learner, checked when they are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from msgspec import Meta, field

from arkml.base.short_reprs import cut_repr
from arkml.errors import ArkmlError, InvalidSettings
from arkml.hive.protocol.parts import (
    MOST_FEATURES,
    Part,
    are_flat,
    choices_fault,
    images_of,
    parts_fault,
)
from arkml.hive.protocol.wire import MAX_COUNT, WireStruct

KEY = "arkml"
"""The key of a guest's configuration whose object holds settings; the rest is the guest's own."""

Device = Literal["auto", "cpu", "cuda"]
DEVICES: tuple[str, ...] = get_args(Device)

Precision = Literal["auto", "float32"]

Pace = Literal["auto", "efficient", "throughput"]

EncoderSize = Literal["small", "large", "impala"]

Noise = Literal["auto", "white", "pink"]

MAX_SETTINGS_BYTES = 64 << 10
"""The most bytes that the settings of a run may take as JSON."""

MAX_CHOICES = 1 << 16
"""The most choices of all branches together: each has a name in the document of a run."""

DECIDED_BY_GUEST = ("features", "actions", "branches", "parts")
"""Settings that the guest determines: others may say them again, and not change them."""

_REMOVED = ("rows_per_update", "max_updates_per_row")

_UpTo32Bits = Annotated[int, Meta(ge=1, le=1 << 32)]
_LearningRate = Annotated[float, Meta(ge=0.0, le=10.0)]
_Share = Annotated[float, Meta(ge=0.0, le=1.0)]


class Settings(WireStruct, frozen=True, forbid_unknown_fields=True):
    """
    The settings with which a run learns.

    Runs of ml-v1 to v3 get the defaults; a `ProtocolConfig` brings its own.
    docs/training_settings.md explains each setting.

    Attributes:
        features: Number of features of a row.
        actions: Number of continuous actions, plus one for each branch.
        branches: Number of choices of each branch.
        algorithm: Name of a learner, such as "sac"; "auto" is "ppo" with branches, memory or parts
            and "sac" without.
        pace: What PPO learns for: from few rows ("efficient"), or from many in little time
            ("throughput"); "auto" decides by the number of agents.
        encoder: The networks by which entities, grids and images are seen.
        shifts: The most pixels by which updates move images, each by chance; 0 for none.
        frames: How many of an agent's newest images a policy sees at once.
        memory: Numbers that each agent remembers, by PPO.
        sequence_length: Rows of an agent through which a memory is learned at a time.
        noise: How the noise of an agent that explores goes from step to step: anew ("white") or
            slowly ("pink"); "auto" decides by the learner.
        alpha: Entropy temperature; "auto" learns it, for `target_entropy` nats of each action.
        target_entropy: Entropy of the policy that "auto" aims at, in nats for each action.
        learning_rate_steps: Updates from the first learning rate to the last, 0 for a constant
            rate.
        rollout_length: The n of n-step returns.
        demo_fraction: Largest share of a batch that is drawn from demonstrations.
        updates_per_row: Largest number of updates for each row.
        rollout_rows: Rows of one version that PPO learns from at a time.
        epochs: Number of passes of PPO over these rows, in minibatches of `batch_size`.
        target_kl: Divergence of the policy within the last epoch of a rollout by which PPO adapts
            its learning rate, 0 for a rate as it is set.
        device: Where updates are made; "auto" is the processor, and a GPU once it is faster.
        precision: Whether products on a GPU are of TF32 ("auto") or of float32.
        sync: True runs in lockstep with one host.
        max_episode_steps: Steps after which the hosts cut episodes off, 0 for no limit; hosts set
            it.
        parts: The parts of a row, if one of them is no vector; none for a row of plain numbers.
        other: Keys of a configuration that are not settings.

    """

    features: Annotated[int, Meta(ge=1, le=MOST_FEATURES)]
    actions: Annotated[int, Meta(ge=1, le=1 << 12)]
    branches: tuple[Annotated[int, Meta(ge=1, le=1 << 12)], ...] = ()
    algorithm: Annotated[str, Meta(min_length=1, max_length=64)] = "auto"
    pace: Pace = "auto"
    hidden: Annotated[int, Meta(ge=1, le=8_192)] = 64
    layers: Annotated[int, Meta(ge=1, le=8)] = 2
    encoder: EncoderSize = "small"
    shifts: Annotated[int, Meta(ge=0, le=64)] = 0
    frames: Annotated[int, Meta(ge=1, le=16)] = 1
    memory: Annotated[int, Meta(ge=0, le=1_024, multiple_of=2)] = 0
    sequence_length: Annotated[int, Meta(ge=1, le=1_024)] = 64
    noise: Noise = "auto"
    alpha: Annotated[float, Meta(ge=0.0, le=100.0)] | Literal["auto"] = "auto"
    target_entropy: Annotated[float, Meta(ge=-20.0, le=0.6)] = 0.0
    use_terminal_masking: bool = True
    learning_rate_init: _LearningRate = 1e-3
    learning_rate_end: _LearningRate = 1e-3
    learning_rate_steps: Annotated[int, Meta(ge=0, le=1 << 32)] = 0
    batch_size: Annotated[int, Meta(ge=2, le=1 << 17)] = 256
    memory_min_size: _UpTo32Bits = 1_000
    memory_max_size: Annotated[int, Meta(ge=1_000, le=1 << 32)] = 1_000_000
    gamma: _Share = 0.99
    tau: _Share = 0.05
    rollout_length: Annotated[int, Meta(ge=1, le=1_000)] = 1
    normalize: bool = True
    demo_fraction: _Share = 0.25
    updates_per_row: Annotated[float, Meta(ge=1e-6, le=1e3)] = 1.0
    rollout_rows: Annotated[int, Meta(ge=2, le=1 << 20)] = 2_048
    epochs: Annotated[int, Meta(ge=1, le=1_000)] = 10
    clip_range: Annotated[float, Meta(gt=0.0, le=10.0)] = 0.2
    target_kl: Annotated[float, Meta(ge=0.0, le=10.0)] = 0.01
    gae_lambda: _Share = 0.95
    entropy_coefficient: Annotated[float, Meta(ge=0.0, le=10.0)] = 0.0
    value_coefficient: Annotated[float, Meta(ge=0.0, le=10.0)] = 0.5
    max_gradient_norm: Annotated[float, Meta(gt=0.0, le=1e6)] = 0.5
    seed: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0
    sync_interval: _UpTo32Bits = 1
    device: Device = "auto"
    precision: Precision = "auto"
    sync: bool = False
    max_episode_steps: Annotated[int, Meta(ge=0, le=MAX_COUNT)] = 0
    parts: Annotated[tuple[Part, ...], Meta(max_length=256)] = ()
    other: dict[str, Any] = field(default_factory=dict)

    refusal: ClassVar[type[ArkmlError]] = InvalidSettings

    def __post_init__(self) -> None:
        """
        Raise InvalidSettings for values that do not fit together.

        The replay buffer has to hold the rows that learning begins with. Branches have to be among
        the actions, and SAC accepts none. The parts have to make up a row.
        """
        if self.memory_min_size > self.memory_max_size:
            raise InvalidSettings(
                f"memory_min_size {self.memory_min_size} is over memory_max_size"
                f" {self.memory_max_size}"
            )

        if len(self.branches) > self.actions:
            raise InvalidSettings(
                f"branches is {list(self.branches)}: the guest has {self.actions} actions"
            )
        if sum(self.branches) > MAX_CHOICES:
            raise InvalidSettings(
                f"branches have {sum(self.branches)} choices together: they take {MAX_CHOICES}"
            )
        if self.branches and self.learner == "sac":
            raise InvalidSettings(
                'algorithm is "sac": it takes continuous actions only, and the guest declares'
                f' branches of {", ".join(map(str, self.branches))} choices; use "ppo"'
            )

        if self.memory and self.learner == "sac":
            raise InvalidSettings(
                f'memory is {self.memory}, and algorithm is "sac", which learns without: use "ppo"'
            )

        self._check_parts()

        if self.shifts and not self.images:
            raise InvalidSettings(
                f"shifts is {self.shifts}: only images are shifted, and the guest declares none;"
                " leave it at 0"
            )
        if self.frames > 1 and not self.images:
            raise InvalidSettings(
                f"frames is {self.frames}: only images are stacked, and the guest declares none;"
                " leave it at 1"
            )

    def _check_parts(self) -> None:
        if not self.parts:
            return
        fault, width = parts_fault(self.parts), sum(part.width for part in self.parts)
        if not fault and width != self.features:
            fault = f"they have {width} features, and the guest has {self.features}"
        fault = fault or choices_fault(self.parts, self.branches)
        if not fault and are_flat(self.parts):
            fault = "all of them are vectors, which needs no parts"
        if fault:
            raise InvalidSettings(f"parts: {fault}")

    @property
    def learner(self) -> str:
        """The name of the learner, with "auto" resolved."""
        if self.algorithm != "auto":
            return self.algorithm
        return "ppo" if self.branches or self.memory or self.parts else "sac"

    @property
    def is_pink(self) -> bool:
        """
        True if agents explore by pink noise.

        "auto" is pink for SAC, and for PPO with a memory and continuous actions only
        (docs/training_memory.md).
        """
        if self.noise != "auto":
            return self.noise == "pink"
        remembers = self.learner == "ppo" and self.memory > 0 and not self.branches
        return self.learner == "sac" or remembers

    @property
    def continuous(self) -> int:
        """Number of continuous actions, which precede the branches."""
        return self.actions - len(self.branches)

    @property
    def images(self) -> int:
        """Number of features that are values of images, which are stored as bytes."""
        return sum(part.width for part in images_of(self.parts))

    @property
    def numbers(self) -> int:
        """Number of features that are not values of images."""
        return self.features - self.images

    def changed(self, values: Mapping[str, Any]) -> Settings:
        """
        Return settings with other values, as a person or a guest wrote them.

        Unknown keys are kept in `other`. Raises InvalidSettings, also for keys of earlier versions
        and for a change of what the guest determines: `features`, `actions`, `branches`, `parts`.
        """
        if not isinstance(values, Mapping):
            raise InvalidSettings(f'"{KEY}" is {cut_repr(values)}: it takes an object of settings')
        for name in _REMOVED:
            if name in values:
                raise InvalidSettings(
                    f"{name} is not used any more: write updates_per_row, the updates for each row"
                    " (8 rows per update are 0.125)"
                )
        for name in DECIDED_BY_GUEST:
            decided, value = getattr(self, name), values.get(name)
            if name in values and (tuple(value) if isinstance(value, list) else value) != decided:
                shown = list(decided) if isinstance(decided, tuple) else decided
                raise InvalidSettings(f"{name} is {cut_repr(value)}: the guest says {shown}")
        known = set(self.__struct_fields__) - {*DECIDED_BY_GUEST, "max_episode_steps", "other"}
        settings = {name: value for name, value in values.items() if name in known}
        rest = {n: v for n, v in values.items() if n not in known and n not in DECIDED_BY_GUEST}
        before = self.as_json()
        return Settings.from_json(before | settings | {"other": {**self.other, **rest}})


def from_protocol(protocol: Mapping[str, Any]) -> Settings:
    """
    Return the settings in a guest's `ProtocolConfig` of ml-v4. Raises InvalidSettings.

    Its floats have 32 bits: for example, 0.001 is read as 0.001, not as 0.0010000000474974513.
    """
    names = {"feature_count": "features", "action_count": "actions"}
    values = {names.get(name, name): rounded(value) for name, value in protocol.items()}
    values["use_terminal_masking"] = bool(values["use_terminal_masking"])
    return Settings.from_json(values)


def rounded(value: Any) -> Any:
    """Return a float rounded to the seven digits that a float of 32 bits holds."""
    return float(f"{value:.7g}") if isinstance(value, float) else value


def guest_settings(configuration: str) -> Mapping[str, Any]:
    """
    Return the settings in a guest's configuration: the object under the key `arkml`.

    `configuration` is JSON, or empty. Raises InvalidSettings if that key holds no object.
    """
    if not configuration:
        return {}
    document = json.loads(configuration)
    settings = document.get(KEY, {}) if isinstance(document, dict) else {}
    if not isinstance(settings, dict):
        raise InvalidSettings(f'"{KEY}" is {cut_repr(settings)}: it takes an object of settings')
    return settings
