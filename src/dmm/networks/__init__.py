"""Networks: (inputs, tau, given, present) to a pytree in the shape the score is made from."""

from .mlp import MLP
from .observations import Observations, observe
from .time import time_features

__all__ = ["MLP", "Observations", "observe", "time_features"]
