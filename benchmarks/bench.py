"""How much dmm adds to its network: ratios of times measured in one run.

    python benchmarks/bench.py [--json FILE]

Training: a step of `dmm.fit` (draw a batch, noise it, loss, gradient, clip, Adam, averaging) over
forward, backward and Adam of the bare network, both in compiled scans. Sampling: 1000 Euler steps
over 1000 bare evaluations. The network is the paper's on SO(3): five layers of 512, batch 512.
"""

import argparse
import json
import platform
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import dmm
from dmm.training import fitting, loop
from dmm.training.data import Arrays

WIDTH, DEPTH, BATCH, DIM = 512, 5, 512, 3
SAMPLING = 1000  # sampling steps


def seconds(functions, *, repeats: int) -> list[float]:
    """The best time of each function; they take turns, so that all meet the same machine."""
    best = [float("inf")] * len(functions)
    for function in functions:
        jax.block_until_ready(function())
    for _ in range(repeats):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            jax.block_until_ready(function())
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def small_model(data, space, *, width: int, depth: int, **kwargs) -> dmm.Model:
    """A model of `data` with an MLP, barely trained."""
    return dmm.fit(
        data,
        space=space,
        key=jax.random.key(0),
        network=lambda *shapes: dmm.MLP(*shapes, width=width, depth=depth),
        steps=1,
        **kwargs,
    )


def training_step(
    model: dmm.Model, examples: dmm.Example, batch: int, steps: int, *, objective=dmm.denoising
):
    """A function that runs `steps` training steps as `fit` does."""
    params, static = eqx.partition(model.network, eqx.is_inexact_array)
    loss_fn = fitting.loss_function(model, static, objective, dmm.likelihood_weighting)
    source = Arrays(examples)
    if loop.has_many_leaves(params):
        params, restore = loop.as_vector(params)
        loss_fn = loop.of_vector(loss_fn, restore)
    settings = loop.Settings(10**9, batch, fitting.adam(1e-4, None, 10.0, 10**6))
    advance = loop.compile_advance(loss_fn, source, jax.random.key(0), settings)
    carried = {"state": loop.initial_state(params, settings)}

    def run():
        carried["state"], report = advance(carried["state"], source.block(0, steps), steps)
        return report

    return run


def bare_step(model: dmm.Model, size: int, batch: int, steps: int):
    """A function that runs `steps` of forward, backward and Adam on the network alone."""
    params, static = eqx.partition(model.network, eqx.is_inexact_array)
    adam = optax.adam(1e-4)
    inputs = jax.random.normal(jax.random.key(1), (batch, size))
    targets = jnp.zeros((batch, 1))
    taus = jnp.linspace(0.1, 1.0, batch)

    def loss(params):
        network = eqx.combine(params, static)
        return jnp.mean((jax.vmap(network)(inputs, taus) - targets) ** 2)

    def body(carry, _):
        params, state = carry
        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = adam.update(gradient, state)
        return (optax.apply_updates(params, updates), state), value

    @jax.jit
    def run(carry):
        return jax.lax.scan(body, carry, length=steps)

    carry = (params, adam.init(params))
    return lambda: run(carry)[1]


def bare_evaluations(model: dmm.Model, steps: int):
    """A function that evaluates the network `steps` times, each on the last one's output."""
    x = jax.random.normal(jax.random.key(1), (BATCH, DIM))

    @eqx.filter_jit
    def run(network):
        def body(x, tau):
            return jax.vmap(lambda y: network(y, tau))(x), None

        return jax.lax.scan(body, x, jnp.linspace(10.0, 0.1, steps))[0]

    return lambda: run(model.network)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    on_gpu = jax.default_backend() != "cpu"
    steps, repeats = (1000, 5) if on_gpu else (50, 3)

    data = jax.random.normal(jax.random.key(0), (50_000, DIM))
    model = small_model(data, dmm.Euclidean(DIM), width=WIDTH, depth=DEPTH)
    train = training_step(model, dmm.Example(data), BATCH, steps)
    ours, bare = seconds([train, bare_step(model, DIM, BATCH, steps)], repeats=repeats)

    def draw():
        return model.sample(jax.random.key(3), BATCH, steps=SAMPLING, sampler=dmm.Euler())

    sampling, evaluations = seconds([draw, bare_evaluations(model, SAMPLING + 1)], repeats=repeats)
    figures = {
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "network": f"MLP {DEPTH} x {WIDTH}, batch {BATCH}",
        "training_step_ms": 1e3 * ours / steps,
        "bare_step_ms": 1e3 * bare / steps,
        "training_ratio": ours / bare,
        "sampling_steps": SAMPLING,
        "sampling_ms": 1e3 * sampling,
        "bare_evaluations_ms": 1e3 * evaluations,
        "sampling_ratio": sampling / evaluations,
    }
    for name, value in figures.items():
        print(f"{name:22} {value:.4g}" if isinstance(value, float) else f"{name:22} {value}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
