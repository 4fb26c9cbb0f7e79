"""Filling in what is missing: answers to a questionnaire, from a model that saw whole sheets.

Six questions with four answers each depend on one another through a hidden type of person. A chain
of masks learns the law of whole sheets; given some answers it draws the others from their law
given these, whichever they are. Here the truth is known, by Bayes over the hidden types.

    python examples/fill_in.py
"""
# ruff: noqa: T201

import jax
import jax.numpy as jnp
import numpy as np

import dmm

QUESTIONS, ANSWERS, TYPES = 6, 4, 3
# The law of every answer for every type, (types, questions, answers).
LAWS = np.random.default_rng(5).dirichlet(0.4 * np.ones(ANSWERS), (TYPES, QUESTIONS))


def draw(key: jax.Array) -> jax.Array:
    """A sheet: a type, then every answer on its own."""
    type_key, key = jax.random.split(key)
    law = jnp.asarray(LAWS)[jax.random.randint(type_key, (), 0, TYPES)]
    return jax.random.categorical(key, jnp.log(law))


def exact(sheet: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """The law of every answer given those seen, (questions, answers)."""
    likelihood = np.prod(LAWS[:, seen, sheet[seen]], axis=1)
    return np.tensordot(likelihood / likelihood.sum(), LAWS, 1)


def main(steps: int = 3000, sheets: int = 10_000) -> dict[str, float]:
    """Fit, fill in twenty sheets of which two answers are seen, and compare."""
    data = jax.vmap(draw)(jax.random.split(jax.random.key(0), sheets + 20))
    model = dmm.fit(
        data[:sheets],
        space=dmm.Finite(QUESTIONS, ANSWERS),
        network=lambda *shapes: dmm.MLP(*shapes, width=128, depth=2),
        learning_rate=3e-3,
        steps=steps,
        key=jax.random.key(1),
    )
    test, seen = np.asarray(data[sheets:]), np.arange(QUESTIONS) < 2
    blank = np.where(seen, test, -1)  # what is not known may be anything
    filled = model.sample(
        jax.random.key(2), 1000, known=blank, where=seen, sampler=dmm.FirstHitting(), steps=1
    )
    found = np.asarray(jax.nn.one_hot(filled, ANSWERS)).mean(1)
    truth = np.stack([exact(sheet, seen) for sheet in test])
    alone = np.broadcast_to(LAWS.mean(0), truth.shape)  # as if nothing had been seen
    return {
        "model against truth": float(np.abs(found - truth)[:, ~seen].mean()),
        "ignoring what is seen": float(np.abs(alone - truth)[:, ~seen].mean()),
    }


if __name__ == "__main__":
    print("mean error of the probability of an answer")
    for name, value in main().items():
        print(f"{name:24} {value:.4f}")
