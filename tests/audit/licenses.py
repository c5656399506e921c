"""The licenses of installed packages, and those that a release may depend on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.metadata import Distribution

ALLOWED = frozenset(
    {
        "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "ISC", "MIT",
        "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Unlicense", "Zlib",
    }
)  # fmt: skip
"""Licenses by SPDX name: permissive ones, and MPL-2.0, which binds its own files only."""

_OF_TORCH = "comes with PyPI's torch on Linux, which tests alone use; not part of a release"

EXCEPTIONS = {
    "cuda-toolkit": _OF_TORCH,
    "docutils": "builds the site and is not part of a release; only some of its tools are GPL",
    "nvidia-*": _OF_TORCH,
    "pygame-ce": "draws a game of the examples, is not part of a release; LGPL",
}
"""Packages whose metadata names another license, each with the reason why it may be there."""

_NAMES = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
}
"""SPDX names of the texts that packages use instead, in lower case."""

_CLASSIFIER = "License :: "
_VERDICTS = {"License :: DFSG approved", "License :: OSI Approved"}
"""Classifiers that say what others think of a license, and not which it is."""


@dataclass(frozen=True, slots=True)
class Licensed:
    """A package and its license: an SPDX expression, a text, or "" if it names none."""

    name: str
    version: str
    license: str

    @property
    def is_allowed(self) -> bool:
        """True if one alternative consists of allowed licenses only, or for an exception."""
        is_excepted = any(fnmatch(self.name.lower(), pattern) for pattern in EXCEPTIONS)
        return is_excepted or any(
            all(part in ALLOWED for part in _parts(alternative))
            for alternative in re.split(r"\bOR\b", self.license.replace("(", "").replace(")", ""))
        )


def _parts(alternative: str) -> list[str]:
    parts = (re.sub(r"\bWITH\b.*", "", part).strip() for part in alternative.split(" AND "))
    return [part for part in parts if part] or [""]


def licensed(distribution: Distribution) -> Licensed:
    """Return a package with its license: the expression, else classifiers, else the text."""
    metadata = distribution.metadata
    expression = _first(metadata.get_all("License-Expression"))
    if not expression:
        classifiers = [
            line.rsplit(" :: ", 1)[-1]
            for line in metadata.get_all("Classifier") or ()
            if line.startswith(_CLASSIFIER) and line not in _VERDICTS
        ]
        text = _first(metadata.get_all("License")).split("\n")[0]
        expression = " AND ".join(map(_spdx, classifiers)) if classifiers else _spdx(text)
    return Licensed(metadata["Name"], distribution.version, expression)


def _first(values: list[str] | None) -> str:
    return values[0].strip() if values else ""


def _spdx(text: str) -> str:
    return _NAMES.get(text.strip().lower(), text.strip())


def refused(distributions: Iterable[Distribution]) -> list[Licensed]:
    """Return the packages whose license is not allowed, by name."""
    found = [each for each in map(licensed, distributions) if not each.is_allowed]
    return sorted(found, key=lambda each: each.name.lower())
