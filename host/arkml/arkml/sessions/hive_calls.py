"""Handlers of imports that use a hive; without a hive they answer Unavailable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arkml.abi.codes import HardwareType
from arkml.sessions import results
from arkml.sessions.guest_run import settled
from arkml.sessions.hive_requests import HiveRequests
from arkml.sessions.run_request import HiveAddress, TrainingRequest, require_name


class HiveV1(HiveRequests):
    """Handlers of the functions of `ark-ml-v1` that use a hive."""

    __slots__ = ()

    def can_connect_to_hive(self, hive_url: str, hive_port: int) -> int:
        address, hives = HiveAddress(hive_url, hive_port), self._guest.hives
        return self._bring(
            results.BOOL,
            lambda: settled(value=False) if hives is None else hives.answers(address),
        )

    def list_experiments(self, hive_url: str, hive_port: int) -> int:
        address = HiveAddress(hive_url, hive_port)
        hives = self._hives(f"list the experiments of {address}")
        return self._bring(results.EXPERIMENTS, lambda: hives.experiments(address))

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
        return self._start_training(
            TrainingRequest(hive, experiment_name, game_name, num_features, num_actions)
        )

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
        return self._start_training(
            TrainingRequest(
                HiveAddress(hive_url, hive_port),
                experiment_name,
                game_name,
                num_features,
                num_actions,
                checkpoint=checkpoint,
            )
        )

    def download_snapshot(self, context: int) -> int:
        run = self._own(context, "download a snapshot")
        return self._bring(results.BYTES, run.snapshot)

    def download_metrics(self, context: int) -> int:
        run = self._own(context, "download metrics")
        return self._bring(results.METRICS_V1, run.metrics)


class HiveV2(HiveRequests):
    """Handlers of the functions of `ark-ml-v2` that use a hive."""

    __slots__ = ()

    def set_worker_module_link(self, cid: str) -> None:
        hives = self._hives(f"set the module of remote workers to {cid[:80]!r}")
        self._guest.worker_module = hives.linked_module(cid)

    def connect_to_experiment(self, hive_url: str, hive_port: int, run_id: str) -> int:
        address = HiveAddress(hive_url, hive_port)
        require_name("the id of a run", run_id)
        hives = self._hives(f"join experiment {run_id!r} on {address}")
        self._guest.sessions.require_room()
        return self._bring(results.TRAINING, lambda: hives.connect(address, run_id), run_id)

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
        return self._start_training(
            TrainingRequest(
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
        return self._start_training(
            TrainingRequest(
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
        return self._configurations(self._own(context, "read its configuration"))

    def experiment_config_from_registry(
        self, hive_url: str, hive_port: int, run_id: str
    ) -> Mapping[str, Any]:
        run = self._other(hive_url, hive_port, run_id, "read the configuration")
        return self._configurations(run, run_id)

    def download_snapshot_from_registry(self, hive_url: str, hive_port: int, run_id: str) -> int:
        run = self._other(hive_url, hive_port, run_id, "download the snapshot")
        return self._bring(results.BYTES, run.snapshot, run_id)


class HiveV3(HiveRequests):
    """Handlers of the functions of `ark-ml-v3` that use a hive."""

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
        return self._start_training(
            TrainingRequest(
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
        run = self._own(context, "download metrics")
        return self._bring(results.METRICS_V3, run.metrics)


class HiveV4(HiveRequests):
    """Handlers of the functions of `ark-ml-v4` that use a hive."""

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
        return self._start_training(
            TrainingRequest(
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
        run = self._other(hive_url, hive_port, run_id, "read the configuration")
        return self._text(run, results.TEXT, run_id)


class HiveV5(HiveRequests):
    """Handlers of the functions of `ark-ml-v5` that use a hive."""

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
        return self._start_training(
            TrainingRequest(
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
        return self._text(self._own(context, "read its configuration"), results.TEXT)
