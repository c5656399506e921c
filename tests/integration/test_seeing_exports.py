"""Policies that see entities, grids and images, in the form of ML-Agents, and home again."""

import numpy as np
import onnxruntime
import pytest

from arkml import evaluate, pack_mlagents
