"""Configurations of the asynchronous trainer: defaults, refusals, files."""

import copy
import dataclasses
import pickle
import subprocess
import sys

import pytest
from tests.pipes import endless_pipe

from arkml.async_trainer import (
    ActorManagerConfig,
    AsyncTrainerConfig,
    ReplayBufferProxyConfig,
)
from arkml.async_trainer.core import (
    PerConfig,
    SimpleReplayBuffer,
    SimpleReplayBufferConfig,
    SimpleStepProcessorConfig,
    TrainerConfig,
    config_files,
)
from arkml.async_trainer.core.configurable import Configurable, class_of
from arkml.async_trainer.core.trainer import MAX
from arkml.errors import UsageError
from arkml.testing.async_trainer import TestAgent, TestAgentConfig

CONFIGS = [
    ActorManagerConfig(n_buffer=7, runner="processes", on_full="raise", seed=3),
    AsyncTrainerConfig(max_opts=3, updates_per_sample=0.5),
    ReplayBufferProxyConfig(n_buffer=9),
    SimpleReplayBufferConfig(capacity=5, per_config=PerConfig(alpha=0.7, normalize="Batch")),
    SimpleReplayBufferConfig(),
    SimpleStepProcessorConfig(),
    TrainerConfig(max_opts=4, opt_interval=2),
]
INTERVALS = (
    "eval_interval",
    "flush_record_interval",
    "record_compute_cost_interval",
    "record_agent_info_interval",
    "save_interval",
    "warmup_period",
    "max_opts",
)


def test_the_defaults_are_the_seeds():
    assert dataclasses.asdict(AsyncTrainerConfig()) == {
        "max_opts": 10,
        "eval_interval": 5_000,
        "flush_record_interval": 5_000,
        "record_compute_cost_interval": 5_000,
        "record_agent_info_interval": 5_000,
        "save_interval": 50_000,
        "sync_interval": 100,
        "warmup_period": 10_000,
        "updates_per_sample": None,
    }
    assert dataclasses.asdict(ActorManagerConfig()) == {
        "n_buffer": 100,
        "runner": "threads",
        "on_full": "wait",
        "seed": 0,
        "ray_address": None,
    }
    assert dataclasses.asdict(SimpleReplayBufferConfig()) == {
        "capacity": 10_000,
        "seed": 42,
        "per_config": None,
    }
    assert dataclasses.asdict(PerConfig()) == {
        "alpha": 0.6,
        "beta_0": 0.4,
        "beta_final": 1.0,
        "n_opts_final": 500_000,
        "normalize": "All",
    }
    assert dataclasses.asdict(TrainerConfig()) == {
        "max_opts": 0,
        "eval_interval": 0,
        "opt_interval": 1,
        "flush_record_interval": MAX,
        "record_compute_cost_interval": MAX,
        "record_agent_info_interval": MAX,
        "save_interval": MAX,
        "warmup_period": 0,
    }


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_a_configuration_cannot_be_changed(config):
    for field in dataclasses.fields(config):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(config, field.name, 1)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        *[(AsyncTrainerConfig, name, -1) for name in (*INTERVALS, "sync_interval")],
        *[(TrainerConfig, name, -1) for name in INTERVALS],
        (AsyncTrainerConfig, "max_opts", 1.5),
        (AsyncTrainerConfig, "max_opts", True),
        (AsyncTrainerConfig, "updates_per_sample", 0),
        (AsyncTrainerConfig, "updates_per_sample", float("nan")),
        (AsyncTrainerConfig, "updates_per_sample", "1"),
        (TrainerConfig, "opt_interval", 0),
        (ActorManagerConfig, "n_buffer", 0),
        (ActorManagerConfig, "runner", "fibers"),
        (ActorManagerConfig, "on_full", "drop"),
        (ActorManagerConfig, "seed", -1),
        (ActorManagerConfig, "ray_address", "head:6379"),
        (ReplayBufferProxyConfig, "n_buffer", 0),
        (SimpleReplayBufferConfig, "capacity", 0),
        (SimpleReplayBufferConfig, "seed", None),
        (PerConfig, "alpha", -0.1),
        (PerConfig, "beta_0", float("inf")),
        (PerConfig, "beta_final", "1"),
        (PerConfig, "n_opts_final", -1),
        (PerConfig, "normalize", "Some"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name_and_value(kind, name, value):
    with pytest.raises(UsageError) as refused:
        kind(**{name: value})

    assert f"{name} is {value!r}" in str(refused.value)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_a_saved_configuration_is_loaded_as_it_was(config, tmp_path):
    path = tmp_path / "config.yaml"
    config.save(path)

    assert type(config).load(str(path)) == config


def test_a_file_may_leave_fields_to_their_defaults(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("max_opts: 25\n")

    assert AsyncTrainerConfig.load(path) == AsyncTrainerConfig(max_opts=25)


def test_an_empty_file_has_the_defaults(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("")

    assert AsyncTrainerConfig.load(path) == AsyncTrainerConfig()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_steps: 3", "unknown field max_steps; AsyncTrainerConfig has max_opts, eval_interval"),
        ("max_opts: many", "max_opts is 'many', it must be a whole number, 0 or more"),
        ("[1, 2", "is not YAML: "),
        ("max_opts: !!int x", "is not YAML: 'x' is not of type 'int'"),
        ("? " + "x" * 5000 + "\n: 3", "has the unknown field xxx"),
        (f"[{'x, ' * 5000}]", "has ['x', "),
        ("- 1", "has [1] where the fields of AsyncTrainerConfig are expected"),
    ],
)
def test_a_file_with_mistakes_is_refused_in_one_sentence(text, message, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(text)

    with pytest.raises(UsageError) as refused:
        AsyncTrainerConfig.load(path)

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 700


def test_a_field_of_a_configuration_inside_another_is_checked(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("per_config: {gamma: 1}")

    with pytest.raises(UsageError, match="unknown field gamma; PerConfig has alpha, beta_0"):
        SimpleReplayBufferConfig.load(path)


def test_a_field_without_a_default_must_be_in_the_file(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("")

    with pytest.raises(UsageError, match=r"does not make a ReplayBufferProxyConfig: .*n_buffer"):
        ReplayBufferProxyConfig.load(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"missing\.yaml cannot be read: No such file"):
        AsyncTrainerConfig.load(tmp_path / "missing.yaml")


def test_a_file_is_read_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(config_files, "MOST_OF_SETTINGS", 100)
    with (
        endless_pipe(tmp_path / "pipe", b" " * 101) as pipe,
        pytest.raises(UsageError, match="pipe cannot be read: it has more than 100 bytes"),
    ):
        AsyncTrainerConfig.load(pipe)


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"config\.yaml cannot be written: No such file"):
        AsyncTrainerConfig().save(tmp_path / "nowhere" / "config.yaml")


def test_files_without_pyyaml_name_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)

    with pytest.raises(UsageError, match=r"pip install 'arkml\[yaml\]'"):
        AsyncTrainerConfig().save(tmp_path / "config.yaml")


def test_a_buffer_is_built_from_a_file(tmp_path):
    path = tmp_path / "buffer.yaml"
    path.write_text("capacity: 12")

    assert SimpleReplayBuffer.build_from_path(path).capacity == 12


def test_a_class_without_a_class_of_configurations_is_not_built_from_a_file():
    class Plain(Configurable):
        @classmethod
        def build(cls, _):
            return cls()

    with pytest.raises(UsageError, match=r"Plain cannot be built from x: set .* `config_class`"):
        Plain.build_from_path("x")


def test_a_configuration_names_its_class_unless_one_is_given():
    assert class_of(TestAgentConfig(), None, "agent") is TestAgent
    assert class_of(TestAgentConfig(), SimpleReplayBuffer, "agent") is SimpleReplayBuffer


def test_a_configuration_without_a_class_names_both_ways_to_give_one():
    with pytest.raises(UsageError, match=r"pass env=CLASS, or set the attribute `builds` of int"):
        class_of(0, None, "env")


def test_the_package_needs_numpy_alone():
    late = {"jax", "yaml", "ray", "msgspec", "wasmtime", "onnxruntime", "tensorboardX", "httpx"}
    code = (
        "import sys, arkml.async_trainer, arkml.async_trainer.core, arkml.testing.async_trainer\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout

    assert late & set(printed.split()) == set()
    assert "numpy" in printed.split()


@pytest.mark.parametrize("config", CONFIGS)
def test_a_builder_has_a_method_for_each_field(config):
    builder = type(config).builder()
    for field in dataclasses.fields(config):
        builder = getattr(builder, field.name)(getattr(config, field.name))

    assert builder.build() == config


@pytest.mark.parametrize(
    "kind",
    [
        ActorManagerConfig,
        AsyncTrainerConfig,
        PerConfig,
        SimpleReplayBufferConfig,
        SimpleStepProcessorConfig,
        TrainerConfig,
    ],
)
def test_a_builder_begins_with_the_defaults(kind):
    assert kind.builder().build() == kind()


def test_the_setters_of_border_chain():
    config = (
        TrainerConfig.builder()
        .max_opts(10)
        .eval_interval(5)
        .opt_interval(1)
        .flush_record_interval(2)
        .record_compute_cost_interval(3)
        .record_agent_info_interval(4)
        .warmup_period(6)
        .save_interval(7)
        .build()
    )

    assert config == TrainerConfig(
        max_opts=10,
        eval_interval=5,
        opt_interval=1,
        flush_record_interval=2,
        record_compute_cost_interval=3,
        record_agent_info_interval=4,
        warmup_period=6,
        save_interval=7,
    )


def test_a_builder_is_left_as_it_is_and_the_last_value_counts():
    base = TrainerConfig.builder().max_opts(10)

    assert base.max_opts(20).build().max_opts == 20
    assert base.build().max_opts == 10
    assert repr(base) == "TrainerConfig.builder().max_opts(10)"


def test_a_builder_refuses_what_is_not_a_field():
    with pytest.raises(AttributeError, match="TrainerConfig has no 'max_opt': did you mean 'max_"):
        TrainerConfig.builder().max_opt(10)
    with pytest.raises(AttributeError, match=r"no 'zeal': it has max_opts, .*, build$"):
        TrainerConfig.builder().zeal(1)


def test_a_builder_refuses_wrong_and_missing_values_when_it_builds():
    with pytest.raises(UsageError, match="max_opts is -1"):
        TrainerConfig.builder().max_opts(-1).build()
    with pytest.raises(UsageError, match=r"no default for n_buffer: call \.n_buffer\(…\) before"):
        ReplayBufferProxyConfig.builder().build()


def test_a_builder_lists_its_setters_and_can_be_copied():
    builder = PerConfig.builder().alpha(0.5)

    assert {"alpha", "beta_0", "build"} <= set(dir(builder))
    assert copy.deepcopy(builder).build() == builder.build()
    assert pickle.loads(pickle.dumps(builder)).build() == builder.build()
