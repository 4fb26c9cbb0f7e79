"""Networks: (inputs, tau, given, present) to a pytree shaped like the parameterisation's outputs."""

from .mlp import MLP
from .observations import Observations, observe
from .time import time_features

__all__ = ["MLP", "Observations", "observe", "time_features"]
