"""Parsing, checking, rewriting and describing of guest modules."""
