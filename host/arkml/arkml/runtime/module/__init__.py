"""Parsing, checking, rewriting and description of guest modules."""
