"""Places where actors run: threads, processes, a Ray cluster."""
