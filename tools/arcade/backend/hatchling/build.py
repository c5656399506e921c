"""The build backend of archives that name hatchling: it answers as the stand-in beside it does."""

from setuptools.build_meta import (  # type: ignore[import-untyped]  # the stand-in
    prepare_metadata_for_build_wheel,
)

__all__ = ["prepare_metadata_for_build_wheel"]
