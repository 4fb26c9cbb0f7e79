"""Generalised score matching without a time axis (section 4)."""

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from .._types import Function, Key, Point, Scalar
from ..model import check_key
from ..objectives import Explicit, denoising, implicit
from ..processes import Process, Tractable
from .data import Arrays, Example
from .fitting import adam
from .loop import Losses, Settings, has_many_leaves, train


def match(
    log_density: Any,
    data: Point,
    *,
    process: Process,
    key: Key,
    method: Literal["implicit", "denoising", "explicit"] = "implicit",
    tau: float | None = None,
    log_truth: Function | None = None,
    steps: int = 5000,
    batch_size: int = 256,
    learning_rate: float = 2e-2,
    optimiser: optax.GradientTransformation | None = None,
    progress: bool | None = None,
) -> Any:
    """Fit an unnormalised density to data by score matching with the generator of any process.

    `log_density` is an Equinox module x → log φ(x), known up to a constant; its arrays are fitted
    and a module like it returned. The process only has to live on the data's space.

    - `implicit`: J_ISM = E[φ⁻¹L*φ + L log φ], from data alone.
    - `denoising`: J_DSM, which fits the data noised for a time `tau`.
    - `explicit`: J_ESM = E Φ(q/φ), for a known `log_truth`, log q(x).
    """
    objective, tau = _objective(process, method, tau, log_truth)
    key = check_key(key)
    examples = Example(process.space.check(data))
    params, static = eqx.partition(log_density, eqx.is_inexact_array)

    def loss_fn(params, key, batch: Example) -> Losses:
        log_phi = eqx.combine(params, static)

        def one(key, x) -> Scalar:
            return objective(process, lambda y, _: process.score(log_phi, y), key, x, tau)

        n = len(jax.tree.leaves(batch.x)[0])
        each = jax.vmap(one)(jax.random.split(key, n), batch.x)
        return Losses(jnp.mean(each), each, jnp.full(n, tau))

    settings = Settings(
        steps=steps,
        batch_size=batch_size,
        optimiser=optimiser or adam(learning_rate, None, 10.0, steps),
        ema=0.99,
        progress=progress,
        flat=optimiser is None and has_many_leaves(params),
    )
    return eqx.combine(train(params, loss_fn, Arrays(examples), key, settings), static)


def _objective(
    process: Process, method: str, tau: float | None, log_truth: Function | None
) -> tuple[Callable, float]:
    if method == "denoising":
        if tau is None or tau <= 0:
            raise ValueError("tau: `denoising` fits the data noised for a time; pass tau > 0")
        if not isinstance(process, Tractable):
            raise ValueError(
                f"method: {type(process).__name__} has no exact noising; use method='implicit'"
            )
        return denoising, tau
    if tau is not None:
        raise ValueError(f"tau: only method='denoising' takes it, not {method!r}")
    if method == "implicit":
        return implicit.at, 0.0
    if method == "explicit":
        if log_truth is None:
            raise ValueError("log_truth: `explicit` needs the data's log-density; pass it")
        return Explicit(lambda x, _: log_truth(x)).at, 0.0
    raise ValueError(f"method: choose implicit, denoising or explicit, not {method!r}")
