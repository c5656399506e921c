"""The algorithms by their names, as installed packages bring them; arkml-hive is one of these."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from arkml.errors import InvalidSettings
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Algorithm, MakeAlgorithm
from arkml.learning.normalizer import Normalizer

GROUP = "arkml.learners"
"""The group of entry points that name algorithms."""


def make_algorithm(settings: Settings, normalizer: Normalizer) -> Algorithm:
    """
    Return the algorithm of a run.

    Raises InvalidSettings for an unknown name, a package that cannot be imported, and settings that
    the algorithm cannot follow.
    """
    installed = {point.name: point for point in sorted(entry_points(group=GROUP), key=_is_ours)}
    name = settings.learner
    if name not in installed:
        known = ", ".join(sorted({"auto", *installed}))
        raise InvalidSettings(f"algorithm is {name!r}: this hive has {known}")
    return _load(installed[name])(settings, normalizer)


def _is_ours(point: EntryPoint) -> bool:
    """Return True for arkml's own, whose names no other package takes."""
    return point.module.startswith("arkml.")


def _load(point: EntryPoint) -> MakeAlgorithm:
    try:
        make: MakeAlgorithm = point.load()
    except (ImportError, AttributeError) as error:
        raise InvalidSettings(
            f"algorithm is {point.name!r}: {point.value} cannot be imported: {error}"
        ) from error
    return make
