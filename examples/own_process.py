"""A noising process of one's own, from its drift and covariance alone.

    dX = −2 tanh(X/2) dτ + 2 dB

leaves the logistic law invariant: noise with heavier tails than a Gaussian. There is no exact draw
of X_τ given X_0, so the process is simulated and the model trained by implicit score matching.

    python examples/own_process.py
"""
# ruff: noqa: T201

import equinox as eqx
import jax
import jax.numpy as jnp

import dmm
from dmm.datasets import GaussianMixture


class Logistic(dmm.Law):
    """Independent logistic coordinates."""

    shape: tuple[int, ...] = eqx.field(static=True)

    def sample(self, key):
        return jax.random.logistic(key, self.shape)

    def log_prob(self, x):
        return jnp.sum(jax.scipy.stats.logistic.logpdf(x))


class Returning(dmm.Diffusion, dmm.Simulated):
    """A drift of bounded strength towards 0. The drift is ½ a∇log π, so π is its reference."""

    space: dmm.Euclidean
    horizon: float = eqx.field(static=True, default=8.0)
    substeps: int = eqx.field(static=True, default=64)

    @property
    def data(self):
        return self.space

    @property
    def reference(self):
        return Logistic(self.space.shape)

    def drift(self, x):
        return -2 * jnp.tanh(x / 2)

    def covariance(self, x):
        return 4 * jnp.eye(x.size)


def main(steps: int = 1000, points: int = 4000) -> dict[str, float]:
    """Fit, sample, and compare with the truth."""
    process = Returning(dmm.Euclidean(2))
    truth = GaussianMixture([[-2.0, 0.0], [2.0, 1.0], [0.0, -1.5]], [0.6, 0.8, 0.5], [1, 1, 1])
    data = jax.vmap(truth.sample)(jax.random.split(jax.random.key(0), points))
    model = dmm.fit(
        data,
        process=process,
        schedule=dmm.Geometric(1e-2, process.horizon),
        parameterisation=dmm.Relative(),  # for a process reversible w.r.t. its reference
        network=lambda *shapes: dmm.MLP(*shapes, width=64),
        steps=steps,
        key=jax.random.key(1),
    )
    samples = model.sample(jax.random.key(2), 1000)
    test = jax.vmap(truth.sample)(jax.random.split(jax.random.key(3), 500))
    return {
        "largest difference of a mean": float(jnp.max(jnp.abs(samples.mean(0) - data.mean(0)))),
        "log-likelihood": float(model.log_likelihood(test, steps=50).mean()),
        "log-likelihood, truth": float(jax.vmap(truth.log_prob)(test).mean()),
    }


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name:30} {value:8.4f}")
