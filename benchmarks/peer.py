"""What every method of `peers.py` is given, and what it returns."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmm.datasets import GAndK, tasks
from dmm.datasets.gandk import features

CHUNK = 4096  # simulations at a time
TASKS = ("gandk", "gandk_10000", *tasks.TASKS)


@dataclass(frozen=True)
class Settings:
    """How much work to do, and where; 0 leaves every method its own default."""

    samples: int
    seed: int
    threads: int
    width: int = 0
    epochs: int = 0
    batch_size: int = 0
    minutes: float = 0.0  # of training, at most; 0: no limit
    device: str = "cpu"  # of PyTorch


@dataclass(frozen=True)
class Outcome:
    """Draws (observation, draw, parameter), and what they cost."""

    draws: np.ndarray
    training_seconds: float
    sampling_seconds: float  # an observation
    simulations: int  # an observation, where they depend on it
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class Problem:
    """A task, simulations of it that all methods share, and the observations."""

    name: str
    theta: np.ndarray
    x: np.ndarray
    observed: np.ndarray

    @cached_property
    def task(self) -> Any:
        return make_task(self.name)

    @cached_property
    def features(self) -> np.ndarray:
        """x for networks and regressions: of g-and-k numbers in units of their own spread."""
        return self._features(self.x)

    @cached_property
    def observed_features(self) -> np.ndarray:
        return self._features(self.observed)

    def data(self, x: np.ndarray) -> np.ndarray:
        """x itself, where a method models it: asinh of what ranges over orders of magnitude."""
        return np.arcsinh(x) if self.name.startswith("gandk") else x

    def simulate(self, seed: int, theta: np.ndarray) -> np.ndarray:
        """One x for each θ."""
        keys = jax.random.split(jax.random.key(seed), len(theta))
        return np.asarray(self._simulate(keys, jnp.asarray(theta, jnp.float32)))

    @cached_property
    def _simulate(self) -> Any:
        return jax.jit(jax.vmap(self.task.simulate))

    def prior_draws(self, seed: int, n: int) -> np.ndarray:
        """θ from the prior."""
        return np.asarray(self.task.prior.sample(jax.random.key(seed), (n,)), np.float64)

    def inside(self, theta: np.ndarray) -> np.ndarray:
        """Which rows lie in the prior's support."""
        return np.asarray(self.task.prior.support(jnp.asarray(theta, jnp.float32)))

    def _features(self, x: np.ndarray) -> np.ndarray:
        if not self.name.startswith("gandk"):
            return x
        return np.asarray(jax.jit(jax.vmap(features))(jnp.asarray(x)))


def make_task(name: str) -> Any:
    """A task by its name."""
    if name == "gandk":
        return GAndK()
    return GAndK(10_000, 100) if name == "gandk_10000" else tasks.TASKS[name]()


def make_problem(name: str, simulations: int, observations: int, seed: int) -> Problem:
    """A task with simulations of its prior; the observations do not depend on the seed."""
    task = make_task(name)
    keys = jax.random.split(jax.random.key(seed), simulations)
    theta, x = jax.jit(lambda keys: jax.lax.map(task.sample, keys, batch_size=CHUNK))(keys)
    observed = np.stack([task.observation(i) for i in range(observations)])
    return Problem(name, np.asarray(theta), np.asarray(x), observed)
