"""A registry entry for a player that is downloaded once, and then started."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from arkml.base.loggers import SafeLogger
from arkml.envs.llapi.base_env import BaseEnv
from arkml.envs.llapi.registry.base_registry_entry import BaseRegistryEntry
from arkml.envs.llapi.registry.binary_utils import get_local_binary_path

logger = SafeLogger(__name__)


class RemoteRegistryEntry(BaseRegistryEntry):
    """
    A registry entry with an archive of the player for each platform.

    SHA-256 digests of archives, in hexadecimal, are optional.
    """

    def __init__(
        self,
        identifier: str,
        expected_reward: float | None,
        description: str | None,
        linux_url: str | None,
        darwin_url: str | None,
        win_url: str | None,
        additional_args: Sequence[str] | None = None,
        tmp_dir: str | None = None,
        *,
        linux_sha256: str | None = None,
        darwin_sha256: str | None = None,
        win_sha256: str | None = None,
    ) -> None:
        super().__init__(identifier, expected_reward, description)
        self._sources = {
            "linux": (linux_url, linux_sha256),
            "darwin": (darwin_url, darwin_sha256),
            "win32": (win_url, win_sha256),
        }
        self._add_args = additional_args
        self._tmp_dir_override = tmp_dir

    def make(self, **kwargs: Any) -> BaseEnv:
        """
        Return a UnityEnvironment of the player; `kwargs` are its arguments except `file_name`.

        Raises FileNotFoundError if there is no archive for this platform or no player in it, and
        UnityRegistryException if the archive is refused.
        """
        url, sha256 = self._sources.get(sys.platform, (None, None))
        if url is None:
            raise FileNotFoundError(
                f"The entry {self.identifier} does not contain a valid url for this platform"
            )
        if kwargs.pop("file_name", None) is not None:
            logger.warning(
                "The entry %s brings its own file: file_name is ignored", self.identifier
            )
        path = get_local_binary_path(
            self.identifier, url, tmp_dir=self._tmp_dir_override, sha256=sha256
        )
        # Imported here, so that the registry can be read without gRPC.
        from arkml.envs.llapi.environment import UnityEnvironment

        arguments = [*(kwargs.pop("additional_args", None) or ()), *(self._add_args or ())]
        return UnityEnvironment(file_name=path, additional_args=arguments, **kwargs)
