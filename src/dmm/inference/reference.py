"""Reference posteriors by Markov chain Monte Carlo, where a likelihood is known."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._checks import at_least
from .._types import Given, Key
from ..model import check_key
from ..spaces import Smooth
from .priors import Prior

MOST = 1.01  # R̂ beyond which chains disagree


def nuts(
    prior: Any,
    log_likelihood: Callable[[Any, Given], Any],
    given: Given,
    *,
    key: Key,
    n: int = 4_000,
    chains: int = 4,
    warmup: int = 1_000,
    thin: int = 2,
) -> Any:
    """n draws of the posterior of continuous parameters by NUTS, in double precision.

    `log_likelihood(theta, given)` is traceable, `theta` in the form of the prior. A `RuntimeError`
    says if the chains disagree, split-R̂ of 1.01 or more: modes that chains do not leave show so.
    """
    # A second to import, for this alone.
    import numpyro
    from numpyro.diagnostics import split_gelman_rubin
    from numpyro.infer import MCMC, NUTS

    key = check_key(key)
    at_least(1, n=n, warmup=warmup, thin=thin)
    at_least(2, chains=chains)
    prior = prior if isinstance(prior, Prior) else Prior(prior)
    names = [part.name for part in prior.parameters.parts]
    if whole := [p.name for p in prior.parameters.parts if not isinstance(p.support, Smooth)]:
        raise ValueError(f"prior: {', '.join(whole)} is discrete, where NUTS cannot go; sum it out")
    with jax.enable_x64(True):
        data = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), given)

        def model():
            pairs = zip(names, prior.laws, strict=True)
            values = [
                numpyro.sample(name, law.to_event(len(law.batch_shape))) for name, law in pairs
            ]
            numpyro.factor("likelihood", log_likelihood(prior.formed(values), data))

        sampler = MCMC(
            NUTS(model),
            num_warmup=warmup,
            num_samples=thin * -(-n // chains),
            thinning=thin,
            num_chains=chains,
            chain_method="vectorized",
            progress_bar=False,
        )
        sampler.run(jax.random.wrap_key_data(jax.random.key_data(key)))
        drawn = sampler.get_samples(group_by_chain=True)
        values = [np.asarray(drawn[name]) for name in names]
    worst = max(float(np.max(split_gelman_rubin(value))) for value in values)
    if not worst < MOST:
        raise RuntimeError(
            f"nuts: the chains disagree, R̂ is {worst:.3f}; raise warmup and n, or mind that they "
            "may sit in different modes"
        )
    mixed = [value.swapaxes(0, 1).reshape(-1, *value.shape[2:])[:n] for value in values]
    return prior.formed([jnp.asarray(value, jnp.result_type(float)) for value in mixed])
