"""Where workers run: programs that are started, watched and ended, here or on a Ray cluster."""
