"""
The algorithms of arkml without their gradients: an update draws the next weights near the last.

All else is that of `Sac` and `Ppo`: rows, pace, exports, checkpoints, figures. JAX is not imported
and nothing is compiled, which is nearly all that a short training costs.

This directory is one of installed packages: it has the files by which Python finds an entry point.
The processes that tests start have it on their path (`tests/conftest.py`), and a training takes the
algorithm by the setting `"algorithm": "drawn"`.
"""

from types import SimpleNamespace

import numpy as np

from arkml.learning.ppo import Ppo
from arkml.learning.sac import Sac
from arkml.learning.tensors import flatten, restored

DEVIATION = 1e-3
"""Of the weights of two policies that follow each other, so that no two are equal."""


def make(settings, normalizer):
    """Return the algorithm of a run: that for branches if it has some."""
    return (DrawnPpo if settings.branches else DrawnSac)(settings, normalizer)


def refuse(settings, _normalizer):
    """Raise an error whose message has two lines: the algorithm "refusing"."""
    raise ValueError(f"{settings.features} features are no good:\nnone is shaped")


class DrawnSac(Sac):
    """Soft actor-critic whose updates draw."""

    def __init__(self, settings, normalizer):
        super().__init__(settings, normalizer)
        self._make_updates = self._draw

    def prepare(self):
        """Do nothing: nothing is compiled."""

    def _draw(self, state, _block, count, *_):
        return SimpleNamespace(
            state=after(state, count), losses=[0.0] * 5, is_finite=True, figures=[0.0] * 6
        )


class DrawnPpo(Ppo):
    """PPO whose updates draw."""

    def prepare(self):
        """Do nothing: nothing is compiled."""

    def _compile(self):
        return self._evaluate_nothing, self._draw

    def _evaluate_nothing(self, _weights, features, *_):
        return np.zeros(len(features)), np.zeros(len(features))

    def _draw(self, state, _rows, _minibatches, count, *_):
        losses = dict.fromkeys(
            ("policy", "value", "entropy", "total", "approx_kl", "clip_fraction", "gradient_norm"),
            0.0,
        )
        return SimpleNamespace(
            state=after(state, count), losses=SimpleNamespace(**losses), is_finite=True
        )


def after(state, count):
    """Return the state of a learner after `count` more updates, each tensor drawn as a whole."""
    updates = state.n_opts + np.int32(count)
    random = np.random.default_rng(int(updates))
    tensors = {
        name: (tensor + DEVIATION * random.standard_normal()).astype(tensor.dtype)
        for name, tensor in flatten(state).items()
    }
    return restored(state, tensors)._replace(n_opts=updates)
