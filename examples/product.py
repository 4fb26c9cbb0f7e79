"""A product of spaces: points are tuples, and so are samples.

Each point is a place in the plane and a reading taken there, three numbers that depend on the
place. Each factor may have a process of its own: here Ornstein–Uhlenbeck for places and Brownian
motion (variance-exploding) for readings.

    python examples/product.py
"""
# ruff: noqa: T201

import jax
import jax.numpy as jnp

import dmm
from dmm.datasets import TwoMoons

PLACE, READING = dmm.Euclidean(2), dmm.Euclidean(3)


def draw(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A place, and a reading that depends on it."""
    place_key, noise_key = jax.random.split(key)
    place = TwoMoons(noise=0.2).sample(place_key)
    mean = jnp.stack([place[0] + place[1], place[0] - place[1], jnp.sin(2 * place[0])])
    return place, mean + 0.3 * jax.random.normal(noise_key, (3,))


def correlations(points: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Correlations of every coordinate of a place with every one of a reading."""
    together = jnp.corrcoef(jnp.concatenate(points, axis=1).T)
    return together[:2, 2:]


def main(steps: int = 2000, points: int = 10_000) -> dict[str, float]:
    """Fit both factors jointly; compare what ties them together."""
    data = jax.vmap(draw)(jax.random.split(jax.random.key(0), points))
    model = dmm.fit(
        data,
        space=dmm.Product(PLACE, READING),
        process=dmm.ProductProcess(dmm.OrnsteinUhlenbeck(PLACE), dmm.Brownian(READING)),
        network=lambda *shapes: dmm.MLP(*shapes, width=128),
        key=jax.random.key(1),
        steps=steps,
    )
    samples = model.sample(jax.random.key(2), 2000)  # a tuple of arrays (2000, 2) and (2000, 3)
    few = jax.tree.map(lambda leaf: leaf[:200], data)
    difference = correlations(samples) - correlations(data)
    return {
        "largest correlation in the data": float(jnp.max(jnp.abs(correlations(data)))),
        "largest difference of a correlation": float(jnp.max(jnp.abs(difference))),
        "log-likelihood": float(model.log_likelihood(few, steps=50).mean()),
    }


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name:36} {value:8.4f}")
