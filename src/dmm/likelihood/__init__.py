"""How likely a point is: a bound, the probability flow, and Feynman–Kac."""

from .bits import bits_per_dimension
from .evidence import elbo, unexplained
from .feynman_kac import feynman_kac
from .flow import flow_log_likelihood

__all__ = [
    "bits_per_dimension",
    "elbo",
    "feynman_kac",
    "flow_log_likelihood",
    "unexplained",
]
