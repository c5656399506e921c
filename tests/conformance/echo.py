"""A policy whose answers tell rows and actions apart."""

import numpy as np

from arkml.testing import ConstantPolicy


class Echo(ConstantPolicy):
    """Answers the actions `row + action / 16` and the value `-row`."""

    def act(self, batch):
        super().act(batch)
        rows = np.arange(len(batch), dtype=np.float32)
        batch.actions[:] = rows[:, None] + np.arange(self.num_actions, dtype=np.float32) / 16
        batch.values[:] = -rows
