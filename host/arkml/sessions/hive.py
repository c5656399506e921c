"""Handlers of the functions that ask a hive, answering as a host without one does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from arkml.abi.codes import HardwareType
from arkml.errors import Unavailable
from arkml.sessions import results
from arkml.sessions.launch import HiveAddress, Launch
from arkml.sessions.session import TrainingSession
from arkml.sessions.state import Family


class _Asking(Family):
    """What every version asks of a hive."""

    __slots__ = ()

    def _launch(self, launch: Launch) -> int:
        self._refuse(f"start experiment {launch.experiment!r} on {launch.hive}")

    def _ask(self, wish: str, hive_url: str, hive_port: int) -> NoReturn:
        self._refuse(f"{wish} on {HiveAddress(hive_url, hive_port)}")

    def _ask_own(self, wish: str, context: int) -> NoReturn:
        self._guest.roster.get(context, TrainingSession)
        self._refuse(wish)

    def _refuse(self, wish: str) -> NoReturn:
        raise Unavailable(f"guest {self._guest.name} wants to {wish}: no hive is configured")


class HiveV1(_Asking):
    """What `ark-ml-v1` asks."""

    __slots__ = ()

    def can_connect_to_hive(self, hive_url: str, hive_port: int) -> int:
        HiveAddress(hive_url, hive_port)
        handle, future = self._guest.futures.open(results.BOOL)
        future.resolve(value=False)
        return handle

    def list_experiments(self, hive_url: str, hive_port: int) -> int:
        self._ask("list experiments", hive_url, hive_port)

    def start_training(
        self,
        hive_url: str,
        hive_port: int,
        game_name: str,
        experiment_name: str,
        num_features: int,
        num_actions: int,
    ) -> int:
        hive = HiveAddress(hive_url, hive_port)
        return self._launch(Launch(hive, experiment_name, game_name, num_features, num_actions))

    def start_training_from_checkpoint(
        self,
        hive_url: str,
        hive_port: int,
        game_name: str,
        experiment_name: str,
        num_features: int,
        num_actions: int,
        checkpoint: str,
    ) -> int:
        return self._launch(
            Launch(
                HiveAddress(hive_url, hive_port),
                experiment_name,
                game_name,
                num_features,
                num_actions,
                checkpoint=checkpoint,
            )
        )

    def download_snapshot(self, context: int) -> int:
        self._ask_own("download a snapshot", context)

    def download_metrics(self, context: int) -> int:
        self._ask_own("download metrics", context)


class HiveV2(_Asking):
    """What `ark-ml-v2` asks."""

    __slots__ = ()

    def set_worker_module_link(self, cid: str) -> None:
        self._refuse(f"run module {cid!r} on workers")

    def connect_to_experiment(self, hive_url: str, hive_port: int, run_id: str) -> int:
        self._ask(f"join experiment {run_id!r}", hive_url, hive_port)

    def start_training(
        self,
        hive_url: str,
        hive_port: int,
        game_name: str,
        experiment_name: str,
        num_features: int,
        num_actions: int,
        num_remote_workers: int,
        config: str,
    ) -> int:
        return self._launch(
            Launch(
                HiveAddress(hive_url, hive_port),
                experiment_name,
                game_name,
                num_features,
                num_actions,
                workers=num_remote_workers,
                configuration=config,
            )
        )

    def start_training_from_checkpoint(
        self,
        hive_url: str,
        hive_port: int,
        game_name: str,
        experiment_name: str,
        num_features: int,
        num_actions: int,
        num_remote_workers: int,
        config: str,
        checkpoint: str,
    ) -> int:
        return self._launch(
            Launch(
                HiveAddress(hive_url, hive_port),
                experiment_name,
                game_name,
                num_features,
                num_actions,
                workers=num_remote_workers,
                configuration=config,
                checkpoint=checkpoint,
            )
        )

    def experiment_config(self, context: int) -> Mapping[str, Any]:
        self._ask_own("read its configuration", context)

    def experiment_config_from_registry(
        self, hive_url: str, hive_port: int, run_id: str
    ) -> Mapping[str, Any]:
        self._ask(f"read the configuration of {run_id!r}", hive_url, hive_port)

    def download_snapshot_from_registry(self, hive_url: str, hive_port: int, run_id: str) -> int:
        self._ask(f"download the snapshot of {run_id!r}", hive_url, hive_port)


class HiveV3(_Asking):
    """What `ark-ml-v3` asks."""

    __slots__ = ()

    def start_training(
        self,
        hive_url: str,
        hive_port: int,
        game_name: str,
        experiment_name: str,
        num_features: int,
        num_actions: int,
        num_remote_workers: int,
        config: str,
        checkpoint: str,
        training_duration_in_seconds: int,
    ) -> int:
        return self._launch(
            Launch(
                HiveAddress(hive_url, hive_port),
                experiment_name,
                game_name,
                num_features,
                num_actions,
                workers=num_remote_workers,
                configuration=config,
                checkpoint=checkpoint,
                seconds=training_duration_in_seconds,
            )
        )

    def download_metrics(self, context: int) -> int:
        self._ask_own("download metrics", context)


class HiveV4(_Asking):
    """What `ark-ml-v4` asks."""

    __slots__ = ()

    def start_training(
        self,
        hive_url: str,
        hive_port: int,
        game_name: str,
        experiment_name: str,
        num_remote_workers: int,
        config: str,
        checkpoint: str,
        training_duration_in_seconds: int,
        protocol: Mapping[str, Any],
    ) -> int:
        return self._launch(
            Launch(
                HiveAddress(hive_url, hive_port),
                experiment_name,
                game_name,
                protocol["feature_count"],
                protocol["action_count"],
                workers=num_remote_workers,
                configuration=config,
                checkpoint=checkpoint,
                seconds=training_duration_in_seconds,
                protocol=protocol,
            )
        )

    def raw_experiment_config_from_registry(
        self, hive_url: str, hive_port: int, run_id: str
    ) -> int:
        self._ask(f"read the configuration of {run_id!r}", hive_url, hive_port)


class HiveV5(_Asking):
    """What `ark-ml-v5` asks."""

    __slots__ = ()

    def start_training(
        self,
        hive_url: str,
        hive_port: int,
        experiment_name: str,
        configuration: str,
        namespace: str,
        module_id: str,
        duration: int,
        worker_count: int,
        hardware_type: HardwareType,
    ) -> int:
        return self._launch(
            Launch(
                HiveAddress(hive_url, hive_port),
                experiment_name,
                namespace,
                workers=worker_count,
                configuration=configuration,
                seconds=duration,
                module=module_id,
                hardware=hardware_type,
            )
        )

    def raw_experiment_config(self, context: int) -> int:
        self._ask_own("read its configuration", context)
