"""The algorithms of installed packages, by their entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from arkml.errors import InvalidSettings

GROUP = "arkml.learners"
"""The group of entry points that name algorithms."""


def installed_learners() -> dict[str, EntryPoint]:
    """Return the entry point of each algorithm, by its name; arkml's own names stay its own."""
    return {point.name: point for point in sorted(entry_points(group=GROUP), key=_is_ours)}


def require_installed(name: str) -> None:
    """Raise InvalidSettings if no package brings the algorithm `name`; "auto" is always there."""
    installed = {"auto", *installed_learners()}
    if name not in installed:
        known = ", ".join(sorted(installed))
        raise InvalidSettings(f"algorithm is {name!r}: this hive has {known}")


def _is_ours(point: EntryPoint) -> bool:
    """Return True for arkml's own, whose names no other package takes."""
    return point.module.startswith("arkml.")
