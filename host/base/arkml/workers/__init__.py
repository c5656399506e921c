"""Programs that are started, watched and ended, on this machine or on a Ray cluster."""
