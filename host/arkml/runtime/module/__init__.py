"""A guest's binary: parsed, refused or rewritten, described, its imports resolved."""
