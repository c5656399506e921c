"""Guests behind the environment interfaces of other people's learners."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
