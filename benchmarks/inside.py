"""Whether anything ever leaves its space: noised points and samples, in single precision.

    python benchmarks/inside.py [--draws N]

Noising: compositions of 2 to 1000 parts, mutation 0.5 to 50 a part, boxes and spheres, times from
1e-6 to 10. Sampling: networks with large random weights, 5 to 1000 steps. Counts draws, points
outside and numbers that are not finite, and fails if there is any.
"""

import argparse
import sys

import equinox as eqx
import jax
import jax.numpy as jnp

import dmm
from dmm._progress import track


def processes():
    """Name, process, and the share of all draws that it gets."""
    for n, share in ((2, 0.25), (3, 0.2), (10, 0.15), (100, 0.03), (1000, 0.003)):
        for mutation in (0.5, 3.0, 50.0):
            name = f"simplex {n}, mutation {mutation}"
            yield name, dmm.WrightFisher(dmm.Simplex(n), mutation), share / 3
    for a in (0.5, 2.0, 50.0):
        yield f"box 4, Beta({a}, {a})", dmm.Jacobi(dmm.Box([0.0] * 4, [1.0] * 4), a, a), 0.1
    for n in (1, 2, 64):
        yield f"sphere {n}", dmm.SphericalBrownian(dmm.Sphere(n)), 0.03


def noising(process, draws: int, batch: int) -> tuple[int, int]:
    """Points drawn and points at fault: outside, or with a target that is not finite."""

    @jax.jit
    def some(key):
        def one(key):
            data_key, time_key, key = jax.random.split(key, 3)
            x0 = process.reference.sample(data_key)
            tau = 1e-6 * 1e7 ** jax.random.uniform(time_key)
            x, target = process.noise(key, x0, tau)
            return ~(process.space.contains(x) & jnp.all(jnp.isfinite(target)))

        return jnp.sum(jax.vmap(one)(jax.random.split(key, batch)))

    rounds = -(-draws // batch)
    keys = jax.random.split(jax.random.key(0), rounds)
    return rounds * batch, sum(int(some(key)) for key in track(list(keys), "noising"))


def sampling(process, steps: int, draws: int) -> tuple[int, int]:
    """The same for samples of a model whose network has random weights ten times the usual."""
    keys = jax.random.split(jax.random.key(1), 64)
    data = jax.vmap(process.reference.sample)(keys)
    model = dmm.fit(data, process=process, key=jax.random.key(2), steps=1, progress=False)
    arrays, rest = eqx.partition(model.network, eqx.is_inexact_array)
    leaves, tree = jax.tree.flatten(arrays)
    noise = jax.random.split(jax.random.key(3), len(leaves))
    wild = [
        leaf + 0.5 * jax.random.normal(key, leaf.shape)
        for leaf, key in zip(leaves, noise, strict=True)
    ]
    network = eqx.combine(jax.tree.unflatten(tree, wild), rest)
    model = eqx.tree_at(lambda m: m.network, model, network)
    samples = model.sample(jax.random.key(4), draws, steps=steps)
    return draws, int(jnp.sum(~jax.vmap(process.data.contains)(samples)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=10**7, help="noised points in all")
    parser.add_argument(
        "--samples",
        type=int,
        default=2**13,
        help="samples a process in 5 steps, and a hundredth of it in 1000",
    )
    arguments = parser.parse_args()
    total, wrong = 0, 0

    def count(name: str, result: tuple[int, int]) -> None:
        nonlocal total, wrong
        print(f"{name:48} {result[0]:9} points, {result[1]} at fault", flush=True)
        total, wrong = total + result[0], wrong + result[1]

    for name, process, share in processes():
        size = process.data.parts if isinstance(process, dmm.WrightFisher) else 10
        batch = min(2**14, 2**20 // size)
        count(f"noised, {name}", noising(process, int(share * arguments.draws), batch))
    for process in (
        *(dmm.WrightFisher(dmm.Simplex(n), m) for n, m in ((2, 0.5), (10, 50.0), (1000, 0.5))),
        dmm.Jacobi(dmm.Box([0.0] * 4, [1.0] * 4), 0.5, 0.5),
        dmm.SphericalBrownian(dmm.Sphere(2)),
    ):
        for steps, many in ((5, arguments.samples), (1000, arguments.samples // 100)):
            count(f"sampled in {steps} steps, {process.data}", sampling(process, steps, many))
    print(f"{total} points, {wrong} at fault")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
