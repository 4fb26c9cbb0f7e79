"""A posterior: a fitted model given observations, in the user's parameters."""

import os
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .. import storage
from .._checks import at_least, instance
from .._types import Given, Key
from ..model import Model, check_key
from .composition import sample_composed
from .mode import climb
from .precision import in_full_precision
from .priors import Parameters, Prior
from .reweighting import Weighted, reweighted
from .seen import Seen


class MisspecificationWarning(UserWarning):
    """An observation unlike all simulations: a model knows nothing of it."""


class Posterior(eqx.Module):
    """The law of parameters given an observation, for every observation at once.

    `infer` makes one; so does `Posterior(model)` of a model that was fitted with `given`.
    Parameters have the form of the prior, an array or a dict or tuple of arrays; without one, that
    of the model's points. Where draws are asked for, `given` is one observation, or several
    stacked: then they have a leading axis more.
    """

    model: Model
    parameters: Parameters
    seen: Seen | None
    prior: Prior | None = eqx.field(static=True)

    def __init__(
        self,
        model: Model,
        parameters: Parameters | None = None,
        seen: Seen | None = None,
        prior: Any = None,
    ):
        instance(Model, "dmm.fit(theta, given=x, ...)", model=model)
        if model.given_like is None:
            raise ValueError("model: was fitted without observations; pass given=... to dmm.fit")
        self.model, self.seen = model, seen
        if prior is not None and not isinstance(prior, Prior):
            warped = Prior(prior)
            # A model fitted on a bounded space itself knows nothing of warps.
            there = parameters is not None or warped.space == model.process.data
            prior = warped if there else Prior(prior, warp=False)
        self.prior = prior
        if parameters is None and prior is not None and prior.space != model.process.data:
            raise ValueError(
                f"prior: its parameters are points of {prior.space}, but the model was fitted on "
                f"{model.process.data}; pass the prior of what it was fitted to"
            )
        known = parameters or (prior.parameters if prior else None)
        self.parameters = known or Parameters.of(model.process)

    @property
    def names(self) -> list[str]:
        """A name for every coordinate of the parameters."""
        return self.parameters.names

    @in_full_precision
    def sample(
        self,
        key: Key,
        n: int,
        *,
        given: Given,
        independent: bool = False,
        steps: int | None = None,
        **settings: Any,
    ) -> Any:
        """n draws; inside the prior's support always.

        With `independent`, the observations stacked in `given` are independent ones of the same
        parameters, and the draws are from the posterior given all of them: that needs a uniform
        prior on a bounded space, or a model fitted with `drop_given`. `steps` are then the levels
        of τ (200 by default, otherwise 50 steps). Further settings are those of `Model.sample`, or
        of `dmm.inference.sample_composed`.
        """
        self._look(given)
        if independent:
            at_rest = not self.model.drop_given and self._starts_at_rest()
            settings |= {"at_rest": at_rest, "levels": 200 if steps is None else steps}
            points = sample_composed(self.model, key, n, given=given, **settings)
        else:
            steps = 50 if steps is None else steps
            points = self.model.sample(key, n, given=given, steps=steps, **settings)
        return self._values(points)

    @in_full_precision
    def log_prob(self, theta: Any, *, given: Given, steps: int | None = None) -> Array:
        """log p(θ | x) at each of the stacked parameters, by the probability flow.

        `given` is one observation for all, or as many as there are parameters. The density is
        w.r.t. Lebesgue measure in the user's units, on other spaces as in `Model.log_likelihood`.
        Where a parameter is discrete there is no flow: `Model.elbo` bounds it.
        """
        theta = self.parameters.check(theta)
        points = jax.vmap(self.parameters.point)(theta)
        logs = self.model.log_likelihood(points, given=given, steps=steps)
        return logs + jax.vmap(self.parameters.log_slope)(points)

    @in_full_precision
    def map(
        self, key: Key, *, given: Given, draws: int = 256, rounds: int = 30, steps: int = 50
    ) -> tuple[Any, Array]:
        """The most probable parameters at one observation, and the log-density there."""
        at_least(1, draws=draws, rounds=rounds, steps=steps)
        self._look(given)
        point, log_prob = climb(
            self.model, self.parameters, check_key(key), self._one(given),
            draws=draws, rounds=rounds, steps=steps,
        )  # fmt: skip
        return self.parameters.value(point), log_prob

    def reweighted(
        self,
        key: Key,
        n: int,
        *,
        given: Given,
        log_likelihood: Callable[[Any, Any], Array],
        steps: int = 50,
    ) -> Weighted:
        """n draws, and weights prior × likelihood / posterior that mend the model's errors.

        `log_likelihood(theta, x)` is that of the simulator, for one set of parameters.
        """
        if self.prior is None:
            raise ValueError(
                "prior: this posterior has none; dmm.Posterior(model, prior=prior) does"
            )
        given = self._one(given)
        theta = self.sample(key, n, given=given, steps=steps)
        return reweighted(
            theta,
            given,
            log_prior=self.prior.log_prob,
            log_likelihood=log_likelihood,
            log_proposal=self.log_prob(theta, given=given, steps=steps),
        )

    def to_arviz(self, key: Key, n: int = 4000, *, given: Given, **settings: Any) -> Any:
        """n draws as ArviZ's data, for its tables and plots; needs `pip install dmm[arviz]`."""
        try:
            import arviz
        except ImportError as error:
            raise ImportError("to_arviz needs ArviZ: pip install 'dmm[arviz]'") from error
        if not settings.get("independent", False):
            self._one(given)
        theta = self.sample(key, n, given=given, **settings)
        values = dict(
            zip((p.name for p in self.parameters.parts), self.parameters.each(theta), strict=True)
        )
        observed = {"x": given} if not isinstance(given, dict) else given
        groups = {
            "posterior": {name: np.asarray(value)[None] for name, value in values.items()},
            "observed_data": {name: np.asarray(value) for name, value in observed.items()},
        }
        return arviz.from_dict(**groups)

    def save(self, path: str | os.PathLike) -> None:
        """Settings and weights in one file, without pickle and without the prior."""
        parts = (self.model, self.parameters, self.seen)
        storage.save_tree(path, parts, kind="posterior")

    def _starts_at_rest(self) -> bool:
        """Whether the prior is the reference, as uniform ones are."""
        if self.prior is None:
            return False
        theta = self.prior.sample(jax.random.key(0), 64)
        points = jax.vmap(self.parameters.point)(theta)
        states = jax.vmap(self.model.units.forward)(points)
        prior = jax.vmap(self.prior.log_prob)(theta) - jax.vmap(self.parameters.log_slope)(points)
        reference = jax.vmap(self.model.process.reference.log_prob)(states)
        return float(jnp.ptp(prior - reference)) < 1e-2

    def _values(self, points: Any) -> Any:
        """Points, stacked along one axis or two, as parameters."""
        value, part = self.parameters.value, self.parameters.parts[0]
        for _ in range(jax.tree.leaves(points)[0].ndim - part.shift.ndim):
            value = jax.vmap(value)
        return value(points)

    def _one(self, given: Given) -> Given:
        """The observation as arrays, where several cannot be."""
        given, several = self.model.check_given(given)
        if several:
            raise ValueError("given: holds several observations; pass one at a time")
        return given

    def _look(self, given: Given) -> None:
        if self.seen is not None and (found := self.seen.outside(self.model, given)):
            warnings.warn(found, MisspecificationWarning, stacklevel=3)


def load_posterior(path: str | os.PathLike, *, prior: Any = None, classes=()) -> Posterior:
    """A posterior saved by `Posterior.save`; the prior is needed to weigh draws by it, and to put
    several observations together where it is uniform.
    """
    model, parameters, seen = storage.load_tree(path, kind="posterior", classes=classes)
    return Posterior(model, parameters, seen, prior)
