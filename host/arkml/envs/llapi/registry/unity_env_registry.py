"""The environments that are known by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from arkml.envs.llapi.registry.base_registry_entry import BaseRegistryEntry
from arkml.envs.llapi.registry.manifests import entries


class UnityEnvRegistry(Mapping[str, BaseRegistryEntry]):
    """Entries by identifier. Manifests are read when an entry is first asked for."""

    def __init__(self) -> None:
        self._registered: dict[str, BaseRegistryEntry] = {}
        self._manifests: list[str] = []

    def register(self, new_entry: BaseRegistryEntry) -> None:
        """Add an entry, in the place of one with the same identifier."""
        self._registered[new_entry.identifier] = new_entry

    def register_from_yaml(self, path_to_yaml: str) -> None:
        """
        Add the entries of a manifest: a path, a file URL or an https URL, read when needed.

            environments:
            - NAME:
                expected_reward: 0.9
                description: text
                linux_url: https://…/NAME.zip
                linux_sha256: the digest of that archive, if it is to be checked
                darwin_url: …
                win_url: …
                additional_args: [arguments, of, the, player]
        """
        self._manifests.append(path_to_yaml)

    def clear(self) -> None:
        """Remove all entries."""
        self._registered.clear()
        self._manifests.clear()

    def __getitem__(self, identifier: str) -> BaseRegistryEntry:
        """The entry of that name. Raises KeyError, or what a manifest that is refused raises."""
        self._load_all_manifests()
        if identifier not in self._registered:
            raise KeyError(f"The entry {identifier} is not present in the registry.")
        return self._registered[identifier]

    def __len__(self) -> int:
        self._load_all_manifests()
        return len(self._registered)

    def __iter__(self) -> Iterator[str]:
        self._load_all_manifests()
        return iter(self._registered)

    def _load_all_manifests(self) -> None:
        while self._manifests:
            found = entries(self._manifests[0])
            del self._manifests[0]
            for entry in found:
                self.register(entry)


default_registry = UnityEnvRegistry()
"""The example environments of ML-Agents. Nothing is fetched before one of them is asked for."""

default_registry.register_from_yaml(
    "https://storage.googleapis.com/mlagents-test-environments/1.1.0/manifest.yaml"
)
