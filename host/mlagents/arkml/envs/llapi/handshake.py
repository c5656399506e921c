"""The handshake: the first messages of trainer and player, with their versions and capabilities."""

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
"""Maximum size of a player's message, which has the observations of all agents, or pictures."""
TRAINER_BYTES = 16 << 20
"""Maximum size of a trainer's message; protobuf may need thirty times as much memory."""

API_VERSION = "1.5.0"
PACKAGE_VERSION = "3.0.0"  # the Unity package whose players arkml's imitate

_RELEASES = (
    "Please find the versions that work best together from our release page.\n"
    "https://github.com/Unity-Technologies/ml-agents/releases"
)
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})(\.\d{1,9})?([ab]\d{1,9})?", re.ASCII)
_SHOWN = 40  # characters of the peer's version in a message

logger = SafeLogger(__name__)


def capabilities() -> UnityRLCapabilitiesProto:
    """Return the message that declares all capabilities of the ML-Agents protocol."""
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
    """Return a trainer's greeting to a player."""
    return UnityRLInitializationInputProto(
        seed=seed,
        communication_version=API_VERSION,
        package_version=llapi.__version__,
        capabilities=capabilities(),
        num_areas=num_areas,
    )


def check(output: UnityRLInitializationOutputProto) -> None:
    """
    Check a player's version and capabilities.

    Logs a warning if base capabilities are missing. Raises UnityEnvironmentException for an
    incompatible protocol version.
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
    """Check a trainer's greeting, as a player. Raises UnityEnvironmentException."""
    if not is_compatible(API_VERSION, request.communication_version):
        raise UnityEnvironmentException(
            "The communication API version is not compatible between Unity and python. "
            f"Python API: {_shown(request.communication_version)}, Unity API: {API_VERSION}."
            f"\n {_RELEASES}"
        )


def _shown(version: str) -> str:
    """Format the peer's version for a message."""
    return harmless(version[:_SHOWN])


def is_compatible(unity: str, python: str) -> bool:
    """Return whether two versions have equal major and, below 1.0, equal minor numbers."""
    theirs, ours = _VERSION.fullmatch(unity), _VERSION.fullmatch(python)
    if theirs is None or ours is None:
        return False
    parts = 2 if int(theirs[1]) == 0 else 1
    return [int(part) for part in theirs.groups()[:parts]] == [
        int(part) for part in ours.groups()[:parts]
    ]
