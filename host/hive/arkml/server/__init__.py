"""The service that keeps runs: their rows, policies, metrics and learners."""
