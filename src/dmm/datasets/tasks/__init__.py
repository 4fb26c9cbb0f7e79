"""The standard tasks of simulation-based inference (Lueckmann et al., 2021), with references."""

from .base import Task
from .bernoulli_glm import BernoulliGLM
from .dynamics import SIR, LotkaVolterra
from .gaussians import GaussianLinear, GaussianLinearUniform, GaussianMixture
from .slcp import SLCP, SLCPDistractors
from .two_moons import TwoMoons

TASKS: dict[str, type[Task]] = {
    task.name: task
    for task in (
        TwoMoons,
        GaussianMixture,
        GaussianLinear,
        GaussianLinearUniform,
        SLCP,
        SLCPDistractors,
        BernoulliGLM,
        SIR,
        LotkaVolterra,
    )
}

__all__ = [
    "SIR",
    "SLCP",
    "TASKS",
    "BernoulliGLM",
    "GaussianLinear",
    "GaussianLinearUniform",
    "GaussianMixture",
    "LotkaVolterra",
    "SLCPDistractors",
    "Task",
    "TwoMoons",
]
