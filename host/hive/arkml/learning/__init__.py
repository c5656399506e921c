"""The process that learns one run."""
