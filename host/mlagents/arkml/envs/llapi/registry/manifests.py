"""Manifests, which are YAML files that list environments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arkml.base.short_reprs import cut_repr
from arkml.envs.llapi.exception import UnityRegistryException
from arkml.envs.llapi.registry import download
from arkml.envs.llapi.registry.remote_registry_entry import RemoteRegistryEntry

MANIFEST_BYTES = 1 << 20

_OPTIONAL: dict[str, tuple[type, ...]] = {
    "expected_reward": (int, float),
    "description": (str,),
    "linux_url": (str,),
    "darwin_url": (str,),
    "win_url": (str,),
    "linux_sha256": (str,),
    "darwin_sha256": (str,),
    "win_sha256": (str,),
    "additional_args": (list,),
    "tmp_dir": (str,),
}
_REQUIRED = ("expected_reward", "description", "linux_url", "darwin_url", "win_url")


def entries(source: str) -> list[RemoteRegistryEntry]:
    """
    Return the entries of the manifest at a path, a file URL or an https URL.

    Raises OSError if it cannot be read, and UnityRegistryException if it is not a manifest.
    """
    document = load_remote_manifest(source) if "://" in source else load_local_manifest(source)
    listed = document.get("environments")
    if not isinstance(listed, list):
        raise UnityRegistryException(f"The manifest {source} has no list of environments.")
    return [
        _entry(source, identifier, fields)
        for item in listed
        for identifier, fields in _checked(source, item).items()
    ]


def load_remote_manifest(url: str) -> dict[str, Any]:
    """Return the document at a URL."""
    return _parsed(url, download.read(url, MANIFEST_BYTES))


def load_local_manifest(path: str) -> dict[str, Any]:
    """Return the document at a path."""
    return load_remote_manifest(Path(path).absolute().as_uri())


def _parsed(source: str, text: bytes) -> dict[str, Any]:
    # Imported here, since a YAML parser is needed for manifests only.
    from arkml.base.yaml_documents import load_yaml

    try:
        document = load_yaml(text)
    except ValueError as error:
        raise UnityRegistryException(f"The manifest {source} is not YAML: {error}") from error
    if not isinstance(document, dict):
        raise UnityRegistryException(f"The manifest {source} has no list of environments.")
    return document


def _checked(source: str, item: object) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(item, dict) or len(item) != 1:
        raise UnityRegistryException(
            f"The manifest {source} lists {cut_repr(item)}, not one environment."
        )
    return item


def _entry(source: str, identifier: object, fields: object) -> RemoteRegistryEntry:
    where = f"The entry {cut_repr(identifier)} of the manifest {source}"
    if not isinstance(identifier, str) or not isinstance(fields, dict):
        raise UnityRegistryException(f"{where} is not a name with its fields.")
    for name, value in fields.items():
        kinds = _OPTIONAL.get(name)
        if kinds is None:
            raise UnityRegistryException(f"{where} has the unknown field {cut_repr(name)}.")
        if value is not None and not isinstance(value, kinds):
            raise UnityRegistryException(f"{where} has {name}: {cut_repr(value)}.")
    if not all(isinstance(each, str) for each in fields.get("additional_args") or ()):
        raise UnityRegistryException(f"{where} has arguments that are not text.")
    return RemoteRegistryEntry(
        identifier=identifier, **{name: fields.get(name) for name in {*_REQUIRED, *fields}}
    )
