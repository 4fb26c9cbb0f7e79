"""The paper's operators from a generator alone: slow, general, and the oracle for the rest.

Functions are given by their logarithms, which keeps ratios β(y)/β(x) in range. Each operator
uses the process's `generator` and `adjoint` and nothing else of it.
"""

import jax.numpy as jnp

from ._types import Function, Point, Scalar
from .processes import Process


def phi(process: Process, log_f: Function, x: Point) -> Scalar:
    """The score matching operator Φ(f) = f⁻¹Lf − L log f (section 4)."""
    return process.generator(_ratio(log_f, x), x) - process.generator(log_f, x)


def implicit(process: Process, log_beta: Function, x: Point) -> Scalar:
    """The implicit integrand β⁻¹L*β + L log β (Theorem 1)."""
    return process.adjoint(_ratio(log_beta, x), x) + process.generator(log_beta, x)


def explicit(process: Process, log_q: Function, log_beta: Function, x: Point) -> Scalar:
    """The explicit integrand Φ(q/β), q the law of x.

    With q the law of x given x_0 it is the denoising integrand (section 3.4).
    """
    return phi(process, lambda y: log_q(y) - log_beta(y), x)


def carre_du_champ(process: Process, f: Function, g: Function, x: Point) -> Scalar:
    """Γ(f, g) = L(fg) − f Lg − g Lf."""
    product = process.generator(lambda y: f(y) * g(y), x)
    return product - f(x) * process.generator(g, x) - g(x) * process.generator(f, x)


def reverse_generator(process: Process, log_beta: Function, f: Function, x: Point) -> Scalar:
    """The generator of the time reversal under β: β⁻¹L*(βf) − f β⁻¹L*β (appendix H)."""
    ratio = _ratio(log_beta, x)
    weighted = process.adjoint(lambda y: ratio(y) * f(y), x)
    return weighted - f(x) * process.adjoint(ratio, x)


def _ratio(log_f: Function, x: Point) -> Function:
    """y ↦ f(y)/f(x)."""
    at_x = log_f(x)
    return lambda y: jnp.exp(log_f(y) - at_x)
