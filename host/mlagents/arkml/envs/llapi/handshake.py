"""The first messages of both sides: versions and capabilities."""

from __future__ import annotations

import re

from arkml.base.loggers import SafeLogger
from arkml.base.terminal import harmless
from arkml.envs import llapi
from arkml.envs.llapi.communicator_objects.capabilities_pb2 import UnityRLCapabilitiesProto
from arkml.envs.llapi.communicator_objects.unity_rl_initialization_input_pb2 import (
    UnityRLInitializationInputProto,
)
from arkml.envs.llapi.communicator_objects.unity_rl_initialization_output_pb2 import (
    UnityRLInitializationOutputProto,
)
from arkml.envs.llapi.exception import UnityEnvironmentException

PLAYER_BYTES = 64 << 20
"""The longest message of a player, which has the observations of all its agents, or images."""
TRAINER_BYTES = 16 << 20
"""The longest message of a trainer; protobuf takes thirty times that to read it, at worst."""

API_VERSION = "1.5.0"
PACKAGE_VERSION = "3.0.0"  # of the Unity package that our players stand in for

_RELEASES = (
    "Please find the versions that work best together from our release page.\n"
    "https://github.com/Unity-Technologies/ml-agents/releases"
)
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})(\.\d{1,9})?([ab]\d{1,9})?", re.ASCII)
_SHOWN = 40  # characters of a version of the other side

logger = SafeLogger(__name__)


def capabilities() -> UnityRLCapabilitiesProto:
    """All that there are."""
    return UnityRLCapabilitiesProto(
        baseRLCapabilities=True,
        concatenatedPngObservations=True,
        compressedChannelMapping=True,
        hybridActions=True,
        trainingAnalytics=True,
        variableLengthObservation=True,
        multiAgentGroups=True,
    )


def greeting(seed: int, num_areas: int) -> UnityRLInitializationInputProto:
    """Return the greeting of a player."""
    return UnityRLInitializationInputProto(
        seed=seed,
        communication_version=API_VERSION,
        package_version=llapi.__version__,
        capabilities=capabilities(),
        num_areas=num_areas,
    )


def check(output: UnityRLInitializationOutputProto) -> None:
    """
    Check what a player said of itself. Missing base capabilities are warned about.

    Raises UnityEnvironmentException if its version of the protocol does not fit.
    """
    if not is_compatible(output.communication_version, API_VERSION):
        raise UnityEnvironmentException(
            "The communication API version is not compatible between Unity and python. "
            f"Python API: {API_VERSION}, Unity API: {_shown(output.communication_version)}."
            f"\n {_RELEASES}"
        )
    logger.info(
        "Connected to Unity environment with package version %s and communication version %s",
        _shown(output.package_version),
        _shown(output.communication_version),
    )
    if not output.capabilities.baseRLCapabilities:
        logger.warning(
            "WARNING: The Unity process is not running with the expected base Reinforcement "
            "Learning capabilities. Please be sure upgrade the Unity Package to a version that is "
            "compatible with this python package.\n"
            "Python package version: %s, C# package version: %s%s",
            API_VERSION,
            _shown(output.package_version),
            _RELEASES,
        )


def check_trainer(request: UnityRLInitializationInputProto) -> None:
    """Check a trainer's greeting, for a player. Raises UnityEnvironmentException."""
    if not is_compatible(API_VERSION, request.communication_version):
        raise UnityEnvironmentException(
            "The communication API version is not compatible between Unity and python. "
            f"Python API: {_shown(request.communication_version)}, Unity API: {API_VERSION}."
            f"\n {_RELEASES}"
        )


def _shown(version: str) -> str:
    """Return a version of the other side for display, whatever it is."""
    return harmless(version[:_SHOWN])


def is_compatible(unity: str, python: str) -> bool:
    """Return whether the major versions are equal; below 1.0, the minor ones as well."""
    theirs, ours = _VERSION.fullmatch(unity), _VERSION.fullmatch(python)
    if theirs is None or ours is None:
        return False
    parts = 2 if int(theirs[1]) == 0 else 1
    return [int(part) for part in theirs.groups()[:parts]] == [
        int(part) for part in ours.groups()[:parts]
    ]
