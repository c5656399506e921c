"""Worker programs, started and watched on this machine or on a Ray cluster."""
