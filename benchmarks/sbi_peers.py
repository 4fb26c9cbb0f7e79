"""Methods of the `sbi` package, and ours beside them: for the comparison in `peers.py`.

Ours is `dmm.infer` by its defaults. Those of `sbi` have its defaults too, NPE with a neural spline
flow; with `width` they read x by the network of the paper, three layers of that width to 128, as
wide themselves.
"""

import time
from typing import Any

import jax
import numpy as np
from peer import Outcome, Problem, Settings

CHAINS = {  # of slice sampling; sbi adapts for 50 steps more, before the warm-up
    "cpu": {"num_chains": 100, "warmup_steps": 50, "thin": 1},
    "cuda": {"num_chains": 250, "warmup_steps": 100, "thin": 1},
}
RAW = 1_000  # draws before rejection, which tell of leakage


def ours(problem: Problem, settings: Settings) -> Outcome:
    """Denoising Markov model on the space of the prior."""
    import dmm

    start = time.perf_counter()
    network: dict[str, Any] = {"width": settings.width} if settings.width else {}
    posterior = dmm.infer(
        problem.task.prior,
        simulations=(problem.theta, problem.features),
        key=jax.random.key(settings.seed),
        progress=False,
        **network,
    )
    trained = time.perf_counter() - start
    draws, taken = [], []
    for i, seen in enumerate(problem.observed_features):
        start = time.perf_counter()
        key = jax.random.fold_in(jax.random.key(settings.seed + 1), i)
        draws.append(np.asarray(posterior.sample(key, settings.samples, given=seen)))
        taken.append(time.perf_counter() - start)
    leak = 1 - float(np.mean([problem.inside(d).mean() for d in draws]))
    extra = {
        "leakage": leak,
        "first_sampling_seconds": taken[0],
        "later_sampling_seconds": taken[-1],
    }
    return Outcome(np.stack(draws), trained, float(np.mean(taken)), len(problem.theta), extra)


def npe(problem: Problem, settings: Settings) -> Outcome:
    """Neural posterior estimation with a neural spline flow."""
    from sbi.inference import NPE
    from sbi.neural_nets import posterior_nn

    options = _wide(problem.features, settings, flow=True)
    trainer = NPE(density_estimator=posterior_nn("nsf", **options), **_common(problem, settings))
    return _amortised(trainer, problem, settings, {})


def npse(problem: Problem, settings: Settings) -> Outcome:
    """Neural posterior score estimation."""
    from sbi.inference import NPSE
    from sbi.neural_nets import posterior_score_nn

    options = _wide(problem.features, settings)
    estimator = {"vf_estimator": posterior_score_nn(**options)} if options else {}
    trainer = NPSE(**estimator, **_common(problem, settings))
    return _amortised(trainer, problem, settings, {})


def nre(problem: Problem, settings: Settings) -> Outcome:
    """Neural ratio estimation, sampled by Markov chains."""
    from sbi.inference import NRE
    from sbi.neural_nets import classifier_nn

    options = _wide(problem.features, settings, reads="embedding_net_x")
    trainer = NRE(classifier=classifier_nn("resnet", **options), **_common(problem, settings))
    return _amortised(trainer, problem, settings, _chains(settings))


def nle(problem: Problem, settings: Settings) -> Outcome:
    """Neural likelihood estimation by an autoregressive flow, sampled by Markov chains.

    It models x itself, not features of it, some of which are constant.
    """
    from sbi.inference import NLE
    from sbi.neural_nets import likelihood_nn

    options = {"hidden_features": settings.width} if settings.width else {}
    trainer = NLE(density_estimator=likelihood_nn("maf", **options), **_common(problem, settings))
    x, observed = problem.data(problem.x), problem.data(problem.observed)
    return _amortised(trainer, problem, settings, _chains(settings), (x, observed))


_QUIET: dict[str, Any] = {"show_progress_bars": False}


def _amortised(
    trainer: Any, problem: Problem, settings: Settings, build: dict, data: Any = None
) -> Outcome:
    """Train on all simulations, then draw for one observation after another."""
    import torch

    torch.manual_seed(settings.seed)
    torch.set_num_threads(settings.threads)
    x, observed = data or (problem.features, problem.observed_features)
    theta, x, observed = (
        torch.tensor(a, dtype=torch.float32, device=settings.device)
        for a in (problem.theta, x, observed)
    )
    start = time.perf_counter()
    converged = _train(trainer.append_simulations(theta, x), settings)
    trained = time.perf_counter() - start
    posterior = trainer.build_posterior(**build)
    shape, draws, taken = (settings.samples,), [], []
    for seen in observed:
        start = time.perf_counter()
        draws.append(posterior.sample(shape, x=seen, **_QUIET).numpy(force=True))
        taken.append(time.perf_counter() - start)
    extra = {"epochs": len(trainer.summary["training_loss"]), "converged": converged}
    if settings.device == "cuda":
        extra["device"] = torch.cuda.get_device_name()
    if not build:
        raw = posterior.sample((RAW,), x=observed[0], reject_outside_prior=False, **_QUIET)
        extra["leakage"] = 1 - float(problem.inside(raw.numpy(force=True)).mean())
    return Outcome(np.stack(draws), trained, float(np.mean(taken)), len(theta), extra)


def _train(trainer: Any, settings: Settings) -> bool:
    """Train to sbi's own criterion, or till the time is up; the best weights are kept either way.

    Returns whether the criterion was met.
    """
    from torch.utils.data import TensorDataset

    # Batches at once: row by row, as by default, takes longer than the steps themselves.
    TensorDataset.__getitems__ = lambda self, rows: [part[rows] for part in self.tensors]
    options: dict[str, Any] = {"dataloader_kwargs": {"collate_fn": list}}
    if settings.epochs:
        options["max_num_epochs"] = settings.epochs
    if settings.batch_size:
        options["training_batch_size"] = settings.batch_size
    end = time.perf_counter() + 60 * settings.minutes if settings.minutes else float("inf")
    criterion, met = trainer._converged, False

    def over(epoch: int, patience: int) -> bool:
        nonlocal met
        met = criterion(epoch, patience)
        late = epoch > 0 and time.perf_counter() > end
        if late and not met:
            trainer._neural_net.load_state_dict(trainer._best_model_state_dict)
        return met or late

    trainer._converged = over
    trainer.train(**options)
    return met


def _chains(settings: Settings) -> dict[str, Any]:
    from sbi.inference.posteriors import MCMCPosteriorParameters

    return {"posterior_parameters": MCMCPosteriorParameters(**CHAINS[settings.device])}


def _common(problem: Problem, settings: Settings) -> dict[str, Any]:
    return {"prior": _prior(problem, settings), "device": settings.device, **_QUIET}


def _prior(problem: Problem, settings: Settings) -> Any:
    """The prior of the task as one of PyTorch's: uniform, Gaussian or log-normal."""
    import torch
    from numpyro import distributions as known
    from sbi.utils import BoxUniform

    law = problem.task.prior
    while isinstance(law, known.Independent | known.ExpandedDistribution):
        law = law.base_dist
    d = problem.theta.shape[1]

    def tensor(value):
        return torch.tensor(np.array(value), dtype=torch.float32, device=settings.device)

    def vector(value):
        return tensor(np.broadcast_to(np.asarray(value), (d,)))

    if isinstance(law, known.Uniform):
        return BoxUniform(vector(law.low), vector(law.high))
    if isinstance(law, known.MultivariateNormal):
        covariance = tensor(law.covariance_matrix)
        return torch.distributions.MultivariateNormal(vector(law.loc), covariance)
    kinds = {known.Normal: "Normal", known.LogNormal: "LogNormal"}
    if type(law) not in kinds:
        raise ValueError(f"task: no prior of PyTorch is known for {type(law).__name__}")
    one = getattr(torch.distributions, kinds[type(law)])(vector(law.loc), vector(law.scale))
    return torch.distributions.Independent(one, 1)


def _wide(
    x: np.ndarray, settings: Settings, *, flow: bool = False, reads: str = "embedding_net"
) -> dict[str, Any]:
    """The paper's sizes, if a width is asked for."""
    if not settings.width:
        return {}
    from sbi.neural_nets.embedding_nets import FCEmbedding

    size = {"output_dim": 128, "num_layers": 3, "num_hiddens": settings.width}
    # A flow has five networks.
    hidden = settings.width // 4 if flow else settings.width
    return {"hidden_features": hidden, reads: FCEmbedding(x.shape[1], **size)}
