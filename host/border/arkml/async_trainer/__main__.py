"""Command that trains a guest with actors: `python -m arkml.async_trainer GUEST --actors N`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import get_args

from arkml.async_trainer.actor import actor_stats_fmt
from arkml.async_trainer.actor_manager import ActorManagerConfig
from arkml.async_trainer.adaptors.guest_env import GuestsConfig
from arkml.async_trainer.adaptors.sac_agent import SacAgentConfig
from arkml.async_trainer.adaptors.sac_rows import SacReplayBufferConfig, SacStepProcessorConfig
from arkml.async_trainer.async_trainer import AsyncTrainerConfig
from arkml.async_trainer.core.agent import Agent
from arkml.async_trainer.core.evaluator import EPISODE_RETURN, DefaultEvaluator
from arkml.async_trainer.core.optimization import BEST
from arkml.async_trainer.core.record import Record
from arkml.async_trainer.core.recorders import Recorder
from arkml.async_trainer.runners.choice import RunnerChoice
from arkml.async_trainer.util import AsyncTrainResult, train_async
from arkml.base.output_files import make_directory
from arkml.cli.exits import exit_code, run
from arkml.cli.output import open_streams
from arkml.envs.core.env_options import GuestEnvOptions
from arkml.errors import ArkmlError
from arkml.hive.protocol.settings import Settings
from arkml.runtime.interrupts import GUARD

PENDULUM = Path("fixtures", "guests", "c_pendulum_plain.wasm")
"""Default guest, in a checkout of the repository."""

_EVALUATION_SEED = 0


class ProgressPrinter(Recorder):
    """A recorder that prints a line at each flush, and saves models below a directory, if given."""

    def __init__(self, most: int, interval: int, model_dir: Path | None) -> None:
        super().__init__(model_dir)
        self._most = most
        self._interval = interval
        self.best: Path | None = None
        """Directory of the best policy of this training; None if none was kept."""

    def save_model(self, name: str, agent: Agent) -> list[Path]:
        """Save the parameters of an agent below the directory, and remember where the best are."""
        files = super().save_model(name, agent)
        if files and name == BEST:
            self.best = files[0].parent
        return files

    def write(self, record: Record) -> None:
        """Ignore a record that is not a summary."""

    def write_step(self, record: Record, step: int) -> None:
        """Print the latest return and the speeds of a summary."""
        updates = step - 1 if step % self._interval == 1 else step  # a flush comes one step late
        parts = [f"{updates:>9,} of {self._most:,} updates"]
        for name, form in (
            (f"{EPISODE_RETURN}_mean", "return {:9.2f}"),
            ("samples_per_sec_mean", "{:7,.0f} samples/s"),
            ("opt_steps_per_sec_mean", "{:7,.0f} updates/s"),
        ):
            value = record.get(name)
            if isinstance(value, float):
                parts.append(form.format(value))
        _say("  ".join(parts))


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Train and return the exit status.

    It is 0, 1 if a guest failed, 2 if nothing could be trained, 130 after Ctrl-C, and 143 after
    SIGTERM.
    """
    options = _options(arguments)
    printer = ProgressPrinter(options.max_opts, options.eval_interval, options.out)
    try:
        if options.out is not None:
            make_directory("--out", options.out)
        with _caught_signals() as caught:
            result = _train(options, printer)
    except KeyboardInterrupt:
        if printer.best is not None:
            _say(f"interrupted: the best policy so far is in {printer.best}")
        return 128 + next(iter(caught), signal.SIGINT)
    except ArkmlError as error:
        sys.stderr.write(f"error: {error}\n")
        return exit_code(error)
    _say(result.stat.fmt() + actor_stats_fmt(result.actor_stats))
    if printer.best is not None:
        _say(f"the best policy is in {printer.best}")
    return 0


def program() -> int:
    """Train as `main` does, with a command's handling of streams. Raises StdoutUnwritable."""
    open_streams()
    try:
        return main()
    except SystemExit as leaving:  # argparse has printed its help or an error
        return int(leaving.code or 0)


@contextmanager
def _caught_signals() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt at Ctrl-C and SIGTERM, but not inside a guest; yield both."""
    caught: list[int] = []

    def catch(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        GUARD.interrupt(number, frame)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, catch)
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _train(options: argparse.Namespace, printer: ProgressPrinter) -> AsyncTrainResult:
    """Train with the options of the command line, and with their recorder. Raises ArkmlError."""
    configured: GuestEnvOptions = {
        "configure": options.configure,
        "max_episode_steps": options.max_episode_steps,
    }
    guests = GuestsConfig(options.guest, configured, seed=options.seed, count=options.guests)
    settings = _settings(guests, options.seed)
    agent = SacAgentConfig(settings)
    trainer = AsyncTrainerConfig(
        max_opts=options.max_opts,
        eval_interval=options.eval_interval,
        flush_record_interval=options.eval_interval,
        record_compute_cost_interval=options.eval_interval,
        record_agent_info_interval=0,
        save_interval=0,
        sync_interval=options.sync_interval,
        warmup_period=options.warmup_period,
        updates_per_sample=options.updates_per_sample or None,
    )
    manager = ActorManagerConfig(
        n_buffer=options.n_buffer,
        runner=options.runner,
        seed=options.seed,
        ray_address=options.ray_address,
    )
    tested = GuestsConfig(options.guest, configured, count=options.episodes)
    evaluator = DefaultEvaluator(tested, _EVALUATION_SEED, 1)
    try:
        return train_async(
            agent,
            [agent] * options.actors,
            guests,
            tested,
            SacStepProcessorConfig(),
            SacReplayBufferConfig(settings),
            manager,
            trainer,
            printer,
            evaluator,
        )
    finally:
        evaluator.close()


def _settings(guests: GuestsConfig, seed: int) -> Settings:
    """Return default settings for a guest's rows; the guest is loaded to read their shapes."""
    env = guests.builds.build(guests, seed)
    try:
        behavior = env.behavior
    finally:
        env.close()
    branches = tuple(behavior.spec.actions.branches)
    return Settings(behavior.num_features, behavior.num_actions, branches=branches, seed=seed)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m arkml.async_trainer", description=__doc__)
    add = parser.add_argument
    add("guest", nargs="?", type=Path, default=None, help="a module whose guests have one agent")
    add("--actors", type=_positive, default=2, metavar="N", help="actors (2)")
    add("--guests", type=_positive, default=8, metavar="N", help="guests of each actor (8)")
    add(
        "--configure", type=_words, default=None, metavar="WORDS",
        help="arguments of the guest's export `configure`, such as 1,{seed}",
    )  # fmt: skip
    add(
        "--max-episode-steps", type=_positive, default=None, metavar="N",
        help="cut episodes off after N steps",
    )  # fmt: skip
    add("--runner", choices=get_args(RunnerChoice), default="processes", help="(processes)")
    add("--ray-address", metavar="ADDRESS", help="a Ray cluster to join, for --runner ray")
    add("--max-opts", type=_positive, default=5_000, metavar="N", help="updates in all (5000)")
    add("--updates-per-sample", type=float, default=1.0, metavar="X", help="at most; 0 is any (1)")
    add("--warmup-period", type=_positive, default=1_000, metavar="N", help="samples (1000)")
    add("--sync-interval", type=_positive, default=50, metavar="N", help="updates (50)")
    add("--eval-interval", type=_positive, default=500, metavar="N", help="updates (500)")
    add("--episodes", type=_positive, default=20, metavar="N", help="of an evaluation (20)")
    add("--n-buffer", type=_positive, default=4, metavar="N", help="steps of a message (4)")
    add("--seed", type=_natural, default=0, metavar="N", help="of the agent and its guests (0)")
    add("--out", type=Path, metavar="DIR", help="keep the best policy below a directory")
    options = parser.parse_args(arguments)
    options.eval_interval = min(options.eval_interval, options.max_opts)  # one evaluation at least
    if options.guest is None:
        options.guest = PENDULUM
        options.configure = options.configure or (1, "{seed}")
        if not PENDULUM.is_file():
            parser.error(
                f"there is no guest at {PENDULUM}: give the path of a module that learns, such as"
                " that pendulum in a checkout of arkml"
            )
    if not options.guest.is_file():
        parser.error(f"there is no guest at {options.guest}")
    return options


def _natural(text: str) -> int:
    return _whole(text, 0)


def _positive(text: str) -> int:
    return _whole(text, 1)


def _whole(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < least:
        raise argparse.ArgumentTypeError(f"{number} is not {least} or more")
    return number


def _words(text: str) -> tuple[int | str, ...]:
    try:
        return tuple(word if word == "{seed}" else int(word) for word in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: numbers and {{seed}} with commas") from error


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    run(program, as_json=False, debug=True)
