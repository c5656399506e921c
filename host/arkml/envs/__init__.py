"""Guests behind the environment interfaces of other people's learners."""
