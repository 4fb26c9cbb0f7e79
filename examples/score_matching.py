"""Generalised score matching: fit a density known up to its constant, without a time axis.

    log φ(x) = a x² − b x⁴ + const

has no normalising constant in elementary terms, and score matching needs none. The same two
parameters are estimated by the three objectives of the paper's section 4.

    python examples/score_matching.py
"""
# ruff: noqa: T201

import equinox as eqx
import jax
import jax.numpy as jnp

import dmm


class Wells(eqx.Module):
    """log φ(x), with a well on either side of 0."""

    a: jax.Array
    b: jax.Array

    def __init__(self, a: float, b: float):
        self.a, self.b = jnp.asarray(a), jnp.asarray(b)

    def __call__(self, x):
        return jnp.sum(self.a * x**2 - self.b * x**4)


def draw(key: jax.Array, log_density: Wells, n: int) -> jax.Array:
    """n points of the density, by inverting its distribution function on a fine grid."""
    grid = jnp.linspace(-4.0, 4.0, 4001)
    cumulative = jnp.cumsum(jnp.exp(jax.vmap(log_density)(grid[:, None])))
    levels = jax.random.uniform(key, (n,)) * cumulative[-1]
    return jnp.interp(levels, cumulative, grid)[:, None]


def main(steps: int = 3000, points: int = 20_000) -> dict[str, tuple[float, float]]:
    """The parameters, true and as estimated by each objective."""
    truth = Wells(2.0, 0.5)
    data = draw(jax.random.key(0), truth, points)
    # Brownian motion: L = ½Δ, the score matching of Hyvärinen and Vincent. The reference and the
    # horizon of the process are not used.
    settings = {"process": dmm.Brownian(dmm.Euclidean(1)), "steps": steps, "batch_size": 512}
    guess = Wells(0.0, 0.1)
    # J_DSM fits the data noised for a time τ, whose wells are a little flatter. The smaller τ, the
    # closer to the data's law and the noisier the loss.
    methods = {
        "implicit": {},
        "denoising": {"tau": 0.002},
        "explicit": {"log_truth": truth},
    }
    fitted = {
        name: dmm.match(guess, data, key=jax.random.key(1), method=name, **settings, **options)
        for name, options in methods.items()
    }
    return {name: (float(phi.a), float(phi.b)) for name, phi in {"truth": truth, **fitted}.items()}


if __name__ == "__main__":
    print(f"{'':10} {'a':>8} {'b':>8}")
    for name, (a, b) in main().items():
        print(f"{name:10} {a:8.4f} {b:8.4f}")
