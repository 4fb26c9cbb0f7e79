"""Poses of symmetric solids from one picture of them.

One model of the rotation given the picture, for a tetrahedron, a cube, an icosahedron, a cone and a
cylinder, rendered as training goes on; or, with `--published`, the images of SYMSOL. Held-out
pictures: the log-likelihood of all poses that look the same, how far samples lie from the nearest
of these, whether all are found and equally often, and whether the turns that leave cone and
cylinder as they are come out uniform.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import dmm
from dmm import datasets
from dmm.datasets import SOLIDS
from dmm.diagnostics import Coverage, coverage
from dmm.plots import rotation_map

from .._checks import whole_numbers
from ..runs import Run, Table

PRESETS = {
    "smoke": {
        "solids": "tetrahedron,cone", "size": 12, "steps": 10, "batch_size": 8, "noisings": 2,
        "channels": "4,8", "blocks": 1, "features": 8, "half": False,
        "width": 16, "depth": 2, "degree": 3,
        "images": 2, "draws": 40, "sampling_steps": 4, "likelihood_poses": 4, "flow_steps": 3,
    },
    "laptop": {
        "solids": "tetrahedron,cone", "size": 24, "steps": 8_000, "batch_size": 32,
        "channels": "16,32,64", "blocks": 1, "features": 128, "half": False,
        "width": 128, "depth": 3, "degree": 4, "learning_rate": 1e-3,
        "images": 20, "draws": 500, "sampling_steps": 50, "likelihood_poses": 6, "flow_steps": 25,
    },
    "paper": {},
}  # fmt: skip

CLOSE = 10.0  # degrees: a mode is found by a sample so close to it, and to no other mode as close
STRETCHES = {"cone": 36, "cylinder": 72}  # the cells that continuous symmetries are cut into
SHOWN = 2  # pictures a solid in figures
BODY = (1.0, 0.3, 0.15)  # a direction off every solid's axes: equal poses have places of their own


class HeldOut(NamedTuple):
    """Pictures (n, size, size) of a solid, and the rotations (n, g, 3, 3) that look like each."""

    pictures: np.ndarray
    poses: np.ndarray


def symsol(
    run: Run,
    *,
    solids: str = ",".join(SOLIDS),
    published: bool = False,
    size: int = 64,
    steps: int = 50_000,
    batch_size: int = 128,
    noisings: int = 16,
    learning_rate: float = 5e-4,
    channels: str = "32,64,128,256",
    blocks: int = 2,
    features: int = 256,
    half: bool = True,
    width: int = 512,
    depth: int = 4,
    degree: int = 8,
    images: int = 100,
    draws: int = 2_000,
    sampling_steps: int = 100,
    likelihood_poses: int = 60,
    flow_steps: int = 50,
    chunk: int = 50_000,
    seed: int = 0,
) -> Table:
    """Log-likelihood, spread and coverage a solid; `chunk` draws are sampled at a time."""
    names = chosen(solids)
    network = functools.partial(
        dmm.Embedded,
        embedding=functools.partial(
            dmm.ResNet,
            features=features,
            channels=tuple(whole_numbers(channels=channels)),
            blocks=blocks,
            dtype=jnp.bfloat16 if half else None,
        ),
        network=functools.partial(dmm.MLP, width=width, depth=depth),
    )
    data, given = loaded(names, size) if published else (simulator(names, size), None)
    model = dmm.fit(
        data,
        given=given,
        space=dmm.SO3(),
        parameterisation=dmm.WithHarmonics(dmm.Relative(), degree),
        network=network,
        key=jax.random.key(seed),
        steps=steps,
        batch_size=batch_size,
        noisings=noisings,
        learning_rate=learning_rate,
        validation=0.0,
        run=run.folder("model"),
    )
    rows: Table = []
    for name in names:
        held_out = (loaded_held_out if published else rendered)(name, images, size)
        key = jax.random.key(1000 + SOLIDS.index(name))
        samples = model.sample(
            key, draws, given=held_out.pictures, steps=sampling_steps, batch_size=chunk
        )
        each = [
            coverage(x, poses, cells=STRETCHES.get(name), within=CLOSE)
            for x, poses in zip(samples, held_out.poses, strict=True)
        ]
        logs = likelihoods(model, held_out, likelihood_poses, flow_steps)
        for log, found in zip(logs, each, strict=True):
            run.log(solid=name, log_likelihood=log, spread=found.spread, close=found.close,
                    found=found.found, p_value=found.p_value, deficit=found.deficit)  # fmt: skip
        rows.append(row(name, logs, each, draws))
        _draw(run, name, held_out, samples)
    return rows


def chosen(solids: str) -> list[str]:
    """The solids of a list on the command line."""
    names = solids.split(",")
    unknown = [name for name in names if name not in SOLIDS]
    if unknown:
        raise ValueError(
            f"solids: {unknown[0]!r} is not one of {', '.join(SOLIDS)}; list some of them, with "
            "commas between"
        )
    return names


def simulator(names: list[str], size: int) -> dmm.Simulator:
    """Fresh pictures at every step: of a random solid in a random pose."""
    numbers = tuple(SOLIDS.index(name) for name in names)

    def draw(key):
        pose = datasets.draw_pose(key, numbers)
        return dmm.Example(pose.rotation, given=datasets.render_solid(pose, size=size))

    return dmm.Simulator(draw, previews=512)


def rendered(name: str, n: int, size: int) -> HeldOut:
    """Pictures that no step of training saw, for the keys are others."""
    number = SOLIDS.index(name)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(2**20), number), n)
    poses = jax.vmap(lambda key: datasets.draw_pose(key, (number,)))(keys)
    render = functools.partial(datasets.render_solid, size=size)
    turned = np.einsum("nij,gjk->ngik", np.asarray(poses.rotation), datasets.symmetries(name))
    return HeldOut(np.asarray(jax.jit(jax.vmap(render))(poses)), turned.astype(np.float32))


def loaded(names: list[str], size: int) -> tuple[np.ndarray, np.ndarray]:
    """The published rotations to train on, one an image, and the images."""
    sets = [datasets.symsol(name, split="train", size=size) for name in names]
    rotations = np.concatenate([found.rotations[:, 0] for found in sets])
    return rotations, np.concatenate([found.images for found in sets])


def loaded_held_out(name: str, n: int, size: int) -> HeldOut:
    return HeldOut(*datasets.symsol(name, split="test", size=size, limit=n))


def likelihoods(model: dmm.Model, held_out: HeldOut, most: int, steps: int) -> np.ndarray:
    """An image's mean log-density over its poses, `most` at most, evenly picked.

    In the units of the literature: log p − log π², so that the uniform law has −2.29.
    """
    poses = held_out.poses[:, :: -(-held_out.poses.shape[1] // most)]
    n, picked = poses.shape[:2]
    pictures = np.repeat(held_out.pictures, picked, axis=0)
    logs = model.log_likelihood(poses.reshape(-1, 3, 3), given=pictures, steps=steps)
    return np.asarray(logs).reshape(n, picked).mean(1) - np.log(np.pi**2)


def row(name: str, logs: np.ndarray, each: list[Coverage], draws: int) -> dict:
    """What the pictures of a solid gave, together."""
    p_values = np.asarray([found.p_value for found in each])
    return {
        "solid": name, "log-likelihood (uniform: -2.29)": float(logs.mean()),
        "standard error": float(logs.std() / len(logs) ** 0.5),
        "median spread (degrees)": float(np.median([found.spread for found in each])),
        "modes": len(each[0].counts),
        "images with every mode found": float(np.mean([found.found == 1 for found in each])),
        f"samples within {CLOSE:.0f}° of a mode": float(np.mean([found.close for found in each])),
        "images with p > 0.01 for even modes": float(np.mean(p_values > 0.01)),
        "entropy deficit (nats)": float(np.mean([found.deficit for found in each])),
        "images": len(each), "draws": draws,
    }  # fmt: skip


def _draw(run: Run, name: str, held_out: HeldOut, samples: jax.Array) -> None:
    shown = range(min(SHOWN, len(samples)))
    run.save_samples(name, samples[: len(shown)])
    labels = {i: f"{name} {i + 1}" for i in shown}
    figure = rotation_map(
        {labels[i]: samples[i] for i in shown},
        truths={labels[i]: held_out.poses[i] for i in shown},
        body=BODY,
        images={labels[i]: held_out.pictures[i] for i in shown},
    )
    run.figure(name, figure)
