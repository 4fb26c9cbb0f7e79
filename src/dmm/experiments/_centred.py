"""A network for posteriors much narrower than their prior."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

import dmm

from .._types import Key
from ..networks.layers import Dense

FEATURES = 128  # that an observation is encoded in, as in the paper


class Encoder(eqx.Module):
    """A perceptron of three layers from an observation to features."""

    layers: tuple[Dense, ...]

    def __init__(self, key: Key, given: Array, *, width: int):
        sizes = [given.size, width, width, width, FEATURES]
        keys = jax.random.split(key, 4)
        gains = [*[math.sqrt(2)] * 3, 1.0]
        shapes = zip(keys, sizes[:-1], sizes[1:], gains, strict=True)
        self.layers = tuple(Dense(k, n, m, gain=gain) for k, n, m, gain in shapes)

    def __call__(self, given: Array) -> Array:
        for layer in self.layers[:-1]:
            given = jax.nn.silu(layer(given))
        return self.layers[-1](given)


class Centred(eqx.Module):
    """The score of a Gaussian posterior N(c, w²), learned, and what a perceptron adds to it.

    c and w are linear in the features of the observation. In coordinates y in which the process is
    a Brownian motion (x itself on R^d, arcsin(2x − 1) in a box), with e^{−τ} = q and noise of
    variance v = 1 − q, the law at τ has centre √q c and variance D² = v + qw², v + w² in a box. The
    perceptron sees (y − √q c)/D and log(w²/v) besides its usual inputs: how far x is from the
    centre in units of what is known, whatever the width. What is returned is what `Preconditioned`
    or `PredictDeparture` makes that score of.
    """

    centre: eqx.nn.Linear
    log_width: eqx.nn.Linear
    rest: dmm.MLP
    kind: str = eqx.field(static=True)

    def __init__(
        self,
        key,
        inputs,
        outputs,
        given,
        *,
        kind: str,
        width: int,
        depth: int = 3,
    ):
        d = outputs.size
        zero = jax.tree.map(jnp.zeros_like, eqx.nn.Linear(FEATURES, d, key=key))
        self.centre, self.log_width, self.kind = zero, zero, kind
        seen = jax.ShapeDtypeStruct((inputs.size + 2 * d,), inputs.dtype)
        self.rest = dmm.MLP(key, seen, outputs, given, width=width, depth=depth)

    def __call__(
        self, inputs: Array, tau: Array, given: Array, present: Array | float = 1.0
    ) -> Array:
        d = self.centre.out_features
        c, w2 = self.centre(given), jnp.exp(2 * jnp.clip(self.log_width(given), -9.0, 2.0))
        q, noise = jnp.exp(-tau), -jnp.expm1(-tau)
        if self.kind == "real":
            y, variance = inputs[:d], noise + q * w2
            gaussian = jnp.sqrt(noise) * (c - jnp.sqrt(q) * (1 - w2) * y) / variance
            scale = jnp.sqrt(noise / variance)
        else:
            y, variance = jnp.arcsin(jnp.clip(inputs[:d], -1 + 1e-6, 1 - 1e-6)), noise + w2
            root = 0.5 * jnp.cos(y)  # √(x(1 − x))
            gaussian = jnp.sqrt(q) * root * (c - y) / variance
            scale = jnp.sqrt(q * (root**2 + 0.5 * noise) / variance)
        away = (y - jnp.sqrt(q) * c) / jnp.sqrt(variance)
        known = 0.2 * jnp.log(w2 / noise)
        return gaussian + scale * self.rest(
            jnp.concatenate([inputs, away, known]), tau, given, present
        )
