"""A stand-in for setuptools, so that pip fetches archives without running their programs."""
