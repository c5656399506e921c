"""The algorithms by their names: arkml's own, and algorithms of installed packages."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points

from arkml.errors import InvalidSettings
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Algorithm, MakeAlgorithm
from arkml.learning.normalizer import Normalizer

GROUP = "arkml.learners"
"""The group of entry points that name algorithms of other packages."""


def make_algorithm(settings: Settings, normalizer: Normalizer) -> Algorithm:
    """
    Return the algorithm of a run.

    Raises InvalidSettings for an unknown name, a package that cannot be imported, and settings that
    the algorithm cannot follow.
    """
    name = settings.learner
    if name in _OWN:
        return _OWN[name]()(settings, normalizer)
    installed = {point.name: point for point in entry_points(group=GROUP)}
    if name not in installed:
        known = ", ".join(sorted({"auto", *_OWN, *installed}))
        raise InvalidSettings(f"algorithm is {name!r}: this hive has {known}")
    return _load(installed[name])(settings, normalizer)


def _load(point: EntryPoint) -> MakeAlgorithm:
    try:
        make: MakeAlgorithm = point.load()
    except (ImportError, AttributeError) as error:
        raise InvalidSettings(
            f"algorithm is {point.name!r}: {point.value} cannot be imported: {error}"
        ) from error
    return make


def _sac() -> MakeAlgorithm:
    from arkml.learning.sac import Sac

    return Sac


def _ppo() -> MakeAlgorithm:
    from arkml.learning.ppo import Ppo

    return Ppo


_OWN: dict[str, Callable[[], MakeAlgorithm]] = {"ppo": _ppo, "sac": _sac}
