"""The registry of environments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from arkml.base.loggers import SafeLogger
from arkml.base.sealed import Sealed
from arkml.envs.llapi.exception import UnityRegistryException
from arkml.envs.llapi.registry.base_registry_entry import BaseRegistryEntry
from arkml.envs.llapi.registry.manifests import entries

logger = SafeLogger(__name__)


class UnityEnvRegistry(Sealed, Mapping[str, BaseRegistryEntry]):
    """
    Entries by identifier. Manifests are read at the first access to an entry.

    The latest entry with an identifier counts; a manifest's entries are added when it is read, like
    in the original. While a manifest cannot be read, the other entries are still available. It is
    tried again at an access to an unknown entry, or if there are no entries; its own error, an
    OSError or UnityRegistryException, is then raised.
    """

    def __init__(self) -> None:
        self._registered: dict[str, BaseRegistryEntry] = {}
        self._manifests: list[str] = []  # manifests that are not read yet
        self._failed: set[str] = set()  # manifests that could not be read

    def register(self, new_entry: BaseRegistryEntry) -> None:
        """Add an entry, replacing one with the same identifier."""
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
        self._failed.clear()

    def __getitem__(self, identifier: str) -> BaseRegistryEntry:
        """Return the entry with a name. Raises KeyError, or the error of a manifest."""
        error = self._read_until(lambda: identifier in self._registered)
        if identifier in self._registered:
            return self._registered[identifier]
        if error is not None:
            error.add_note(
                f"The registry has no entry {identifier!r}; this manifest, which may have it, is"
                " read again when such an entry is next asked for."
            )
            raise error
        raise KeyError(f"The entry {identifier} is not present in the registry.")

    def __len__(self) -> int:
        return len(self._entries())

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries())

    def _entries(self) -> dict[str, BaseRegistryEntry]:
        error = self._read_until(lambda: bool(self._registered))
        if error is not None and not self._registered:
            raise error
        return self._registered

    def _read_until(self, is_found: Callable[[], bool]) -> Exception | None:
        """
        Read new manifests and, unless they suffice, the failed ones again.

        Returns the first error.
        """
        failed = [source for source in self._manifests if source in self._failed]
        new = [source for source in self._manifests if source not in self._failed]
        error = self._read(new)
        return error if is_found() else self._read(failed) or error

    def _read(self, sources: Iterable[str]) -> Exception | None:
        """Register the entries of manifests. Returns the first error."""
        first: Exception | None = None
        for source in sources:
            try:
                found = entries(source)
            except (OSError, ImportError, UnityRegistryException) as error:
                logger.warning("The manifest %s could not be read: %s", source, error)
                self._failed.add(source)
                first = first or error
                continue
            self._manifests.remove(source)
            self._failed.discard(source)
            for entry in found:
                self.register(entry)
        return first


default_registry: UnityEnvRegistry = UnityEnvRegistry()
"""The example environments of ML-Agents. Nothing is downloaded before the first access."""

default_registry.register_from_yaml(
    "https://storage.googleapis.com/mlagents-test-environments/1.1.0/manifest.yaml"
)
