"""A chain of four states where everything is known: samplers and the evidence bound against it.

The exact score of the noised data drives every sampler: the total variation of what it draws from
the data's law falls with the steps at the sampler's order, down to what so many draws can tell.
A score that is off by ε makes a model whose likelihood is a product of matrix exponentials: the
evidence bound lies below it, and meets it where ε = 0.
"""

import jax
import jax.numpy as jnp
import numpy as np

import dmm
from dmm.plots import figure
from dmm.processes.jump import draw_states

from ..runs import Run, Table

PRESETS = {"smoke": {"draws": 500, "most_steps": 4, "estimates": 4}, "laptop": {}, "paper": {}}

RATES = [[-1.6, 0.9, 0.2, 0.5], [0.1, -0.8, 0.4, 0.3], [0.7, 0.3, -1.2, 0.2], [0.4, 0.6, 0.8, -1.8]]
DATA = np.array([0.55, 0.05, 0.1, 0.3])
OFF = np.array([0.0, 0.8, -0.6, 0.4])  # the direction of a wrong score
T_MIN, HORIZON = 1e-3, 10.0
LEAPS = {"Euler": dmm.Euler(), "TauLeaping": dmm.TauLeaping(), "Trapezoidal": dmm.Trapezoidal()}
ORDERS = {"Euler": 1, "TauLeaping": 1, "Trapezoidal": 2}


def small_chain(
    run: Run,
    *,
    draws: int = 100_000,
    most_steps: int = 64,
    estimates: int = 200,
    seed: int = 0,
) -> Table:
    """Total variation against steps, and the bound against the likelihood."""
    process = dmm.MatrixChain(dmm.Finite((), 4), RATES, horizon=HORIZON)
    schedule = dmm.Geometric(T_MIN, HORIZON)
    variation_key, bound_key = jax.random.split(jax.random.key(seed))
    steps = [2**i for i in range(2, most_steps.bit_length())]
    found = {
        name: [variation(process, sampler, n, draws, variation_key) for n in steps]
        for name, sampler in LEAPS.items()
    }
    # Exact in any number of steps; its draws are dear.
    exactly = dmm.Uniformisation(margin=4.0)
    found["Uniformisation"] = [variation(process, exactly, 4, draws // 10, variation_key)]
    sizes = np.linspace(-0.5, 0.5, 5)
    truth = log_likelihoods(process, sizes)
    below = bounds(process, schedule, sizes, estimates, bound_key)
    floor = chance(draws)
    _draw(run, steps, found, floor, sizes, truth, below)

    rows: Table = []
    for name, errors in found.items():
        for n, error in zip(steps, errors, strict=False):
            rows.append({"quantity": f"total variation after {n} steps", "of": name, "ours": error,
                         "order": ORDERS.get(name), "truth": 0.0})  # fmt: skip
    for n in (draws, draws // 10):
        what = "total variation by chance"
        rows.append({"quantity": what, "of": f"{n} exact draws", "ours": chance(n), "truth": 0.0})
    for size, exact, (mean, error) in zip(sizes, truth, below, strict=True):
        name = f"score off by {size:+.2f}"
        rows.append({"quantity": "evidence bound (nats)", "of": name, "ours": mean,
                     "truth": exact, "standard error": error})  # fmt: skip
    return rows


def score(process: dmm.MatrixChain, x: jax.Array, tau, size=0.0) -> jax.Array:
    """log q_τ(y)/q_τ(x) of the noised data, off by `size` in a fixed direction; frozen at τ_min."""
    law = jnp.asarray(DATA) @ process.transitions(jnp.maximum(tau, T_MIN))
    logs = jnp.log(law) + size * jnp.asarray(OFF)
    return logs - logs[x]


def chance(draws: int) -> float:
    """The total variation that exact draws have on average, for being so many."""
    return 0.5 * float(np.sum(np.sqrt(2 / np.pi * DATA * (1 - DATA) / draws)))


def variation(process, sampler, steps: int, draws: int, key) -> float:
    """The total variation of a sampler's draws from the law of the data."""

    @jax.jit
    @jax.vmap
    def draw(key):
        start_key, key = jax.random.split(key)
        start = draw_states(start_key, jnp.asarray(DATA) @ process.transitions(HORIZON))
        taus = jnp.append(jnp.exp(jnp.linspace(np.log(HORIZON), np.log(T_MIN), steps)), 0.0)

        def at(tau):
            return process.reverse(lambda x: score(process, x, tau))

        return dmm.simulate(key, sampler, at, start, taus)

    found = np.bincount(draw(jax.random.split(key, draws)), minlength=4) / draws
    return float(0.5 * np.sum(np.abs(found - DATA)))


def log_likelihoods(process, sizes: np.ndarray, steps: int = 2000) -> list[float]:
    """E log p(x_0) of the models that wrong scores make, by products of matrix exponentials."""
    taus = jnp.append(jnp.exp(jnp.linspace(np.log(HORIZON), np.log(T_MIN), steps)), 0.0)

    @jax.jit
    @jax.vmap
    def law_at_zero(size):
        def body(law, times):
            later, earlier = times
            middle = (later + earlier) / 2
            generative = process.reverse(lambda x: score(process, x, middle, size))
            rates = jax.vmap(generative.rates)(jnp.arange(4))
            generator = rates - jnp.diag(rates.sum(1))
            return law @ jax.scipy.linalg.expm((later - earlier) * generator), None

        return jax.lax.scan(body, process.stationary, (taus[:-1], taus[1:]))[0]

    laws = np.asarray(law_at_zero(jnp.asarray(sizes)))
    return [float(DATA @ np.log(law / law.sum())) for law in laws]


def bounds(process, schedule, sizes: np.ndarray, estimates: int, key) -> list[tuple[float, float]]:
    """The mean of the evidence bound over the data's law, and its standard error."""

    @jax.jit
    def estimate(size, keys):
        def wrong(x, tau):
            return score(process, x, tau, size)

        def at(key, x):
            return dmm.elbo(process, wrong, schedule, key, x)

        def one(key):
            return jnp.asarray(DATA) @ jax.vmap(at)(jax.random.split(key, 4), jnp.arange(4))

        return jax.vmap(one)(keys)

    found = [np.asarray(estimate(size, jax.random.split(key, estimates))) for size in sizes]
    return [(float(v.mean()), float(v.std() / np.sqrt(estimates))) for v in found]


def _draw(run: Run, steps, found, floor, sizes, truth, below) -> None:
    result, axes = figure(1, 2, size=(3.6, 2.9))
    left, right = axes[0]
    for name, errors in found.items():
        left.plot(steps[: len(errors)], errors, "o-", label=name)
    left.axhline(floor, color="grey", linestyle="--", linewidth=1, label="exact draws")
    left.set(xscale="log", yscale="log", xlabel="steps", title="total variation", ylim=(5e-4, 4))
    left.set_xticks(steps, [str(n) for n in steps])
    left.minorticks_off()
    left.legend(fontsize="small", ncols=2, loc="upper right")
    right.plot(sizes, truth, "-", label="log-likelihood")
    right.errorbar(sizes, [m for m, _ in below], [2 * e for _, e in below], fmt="o", label="bound")
    entropy = float(DATA @ np.log(DATA))
    right.axhline(entropy, color="grey", linestyle="--", linewidth=1, label="the data's own")
    right.set(xlabel="error of the score", title="mean over the data (nats)")
    right.legend(fontsize="small")
    run.figure("small_chain", result)
