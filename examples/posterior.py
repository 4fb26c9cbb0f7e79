"""Parameters of a simulator given what it produced, with a pair plot.

A damped oscillation e^{−γt} cos(ωt) is observed at 20 times with noise. A model fitted to fresh
simulations samples (log ω, log γ) given any such series, in one go: no likelihood is evaluated.
Here the likelihood is known, and the exact posterior, on a grid, stands beside the model's.

    python examples/posterior.py posterior.png
"""
# ruff: noqa: T201

import sys

import jax
import jax.numpy as jnp

import dmm
from dmm.plots import pairs

TIMES = jnp.linspace(0.0, 6.0, 20)
PRIOR_SCALE, NOISE_SCALE = 0.5, 0.2


def series(theta: jax.Array) -> jax.Array:
    """The series without noise."""
    omega, gamma = jnp.exp(theta)
    return jnp.exp(-gamma * TIMES) * jnp.cos(omega * TIMES)


def simulate(key: jax.Array) -> dmm.Example:
    """Parameters from the prior N(0, PRIOR_SCALE² I), and an observed series."""
    prior_key, noise_key = jax.random.split(key)
    theta = PRIOR_SCALE * jax.random.normal(prior_key, (2,))
    noise = NOISE_SCALE * jax.random.normal(noise_key, TIMES.shape)
    return dmm.Example(theta, given=series(theta) + noise)


def exact(key: jax.Array, observed: jax.Array, n: int) -> jax.Array:
    """n draws of the posterior, from its values on a grid."""
    axis = jnp.linspace(-2.0, 2.0, 401)
    grid = jnp.stack(jnp.meshgrid(axis, axis), -1).reshape(-1, 2)

    def log_posterior(theta):
        misfit = jnp.sum((observed - series(theta)) ** 2) / NOISE_SCALE**2
        return -0.5 * (misfit + jnp.sum(theta**2) / PRIOR_SCALE**2)

    weights = jax.nn.softmax(jax.vmap(log_posterior)(grid))
    return jax.random.choice(key, grid, (n,), p=weights)


def main(
    steps: int = 3000, draws: int = 2000, figure: str | None = None
) -> dict[str, tuple[float, ...]]:
    """Mean and standard deviation of each parameter, by the model and exactly."""
    posterior = dmm.fit(
        dmm.Simulator(simulate), space=dmm.Euclidean(2), key=jax.random.key(0), steps=steps
    )
    truth, observed = simulate(jax.random.key(1))
    samples = {
        "exact": exact(jax.random.key(2), observed, draws),
        "model": posterior.sample(jax.random.key(3), draws, given=observed),
    }
    if figure is not None:
        pairs(samples, truth=truth, names=["log ω", "log γ"]).savefig(figure, dpi=150)
    return {
        name: tuple(map(float, jnp.concatenate([x.mean(0), x.std(0)])))
        for name, x in samples.items()
    }


if __name__ == "__main__":
    print(f"{'':8} {'log ω':>8} {'log γ':>8} {'sd log ω':>8} {'sd log γ':>8}")
    for name, values in main(figure=sys.argv[1] if len(sys.argv) > 1 else None).items():
        print(f"{name:8}", *(f"{value:8.3f}" for value in values))
