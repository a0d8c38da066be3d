"""The next settings and the hopeless trials, by Optuna's TPE sampler and median pruner.

Both are pure functions of the trials up to now: a study is built from them in memory for each question, and the sampler
gets a seed of its own from (seed, algorithm, number of the trial). So nothing has to be stored but the trials, and with
one trial at a time a search that was interrupted continues with the settings that it would have tried anyway.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fedcm.config.toml_values import write_value
from fedcm.errors import UserError
from fedcm.tuning.space import Domain, Space, TunedRange
from fedcm.tuning.trials import Points, TuningTrial

_MIN_TRIALS = 5  # finished trials before one is pruned
_WARM_UP = 0.25  # share of the rounds in which no trial is pruned, because some algorithms start slowly and end well
_MIN_FOR_IMPORTANCE = 4  # finished trials


def load_optuna() -> Any:
    """Import Optuna.

    Raises:
        UserError: If it is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        missing = error.name.split(".")[0] if error.name else error
        raise UserError(
            f'tuning requires Optuna, but {missing} cannot be imported; install it with `pip install "fedcm[tune]"`'
        ) from error
    return optuna


def suggest(space: Space, trials: Sequence[TuningTrial], seed: int, algorithm: str, number: int) -> dict[str, Any]:
    """Return the settings of the next trial.

    The first ten trials are drawn at random. Later ones are drawn near the best trials; TPE avoids settings near
    trials that are still running.

    Args:
        space: The settings to tune.
        trials: The trials of this algorithm up to now.
        seed: The seed of the search.
        algorithm: The algorithm's name.
        number: The number of the new trial.
    """
    with _open_study(space, trials, _make_seed(seed, algorithm, number)) as study:
        drawn = study.ask({path: _make_distribution(domain) for path, domain in space.items()}).params
    return {path: _from_optuna(domain, drawn[path]) for path, domain in space.items()}


def find_hopeless_round(points: Points, others: Sequence[TuningTrial], rounds: int, first: int = 0) -> int | None:
    """Return the round of the first evaluation after which a trial is hopeless; None if it is not.

    A trial is hopeless if its best validation up to an evaluation is worse than the median of the finished trials at
    that evaluation. No trial is hopeless in the first quarter of its rounds, or before five trials have finished. The
    answer depends on the curves only, not on the moment of the question.

    Args:
        points: The validation curve of the trial up to now.
        others: The other trials of the algorithm.
        rounds: The rounds of the whole run.
        first: The first evaluation to look at.
    """
    optuna = load_optuna()
    done = [trial for trial in others if trial.state in ("finished", "diverged")]
    if len(done) < _MIN_TRIALS or first >= len(points):
        return None
    pruner = optuna.pruners.MedianPruner(_MIN_TRIALS, n_warmup_steps=math.ceil(_WARM_UP * rounds))
    with _open_study({}, done) as study:
        for count in range(first + 1, len(points) + 1):
            state = optuna.trial.TrialState.RUNNING
            trial = optuna.trial.create_trial(state=state, intermediate_values=dict(points[:count]))
            if pruner.prune(study, trial):
                return points[count - 1][0]
    return None


def measure_importance(space: Space, trials: Sequence[TuningTrial]) -> dict[str, float]:
    """Return the share of the score's variance that each setting explains (fANOVA), the largest first.

    It is empty for a single setting, and as long as too few trials have finished.
    """
    optuna = load_optuna()
    finished = [trial for trial in trials if trial.state == "finished"]
    if len(space) < 2 or len(finished) < _MIN_FOR_IMPORTANCE or len({trial.score for trial in finished}) < 2:
        return {}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    with _open_study(space, finished) as study:
        found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {path: float(share) for path, share in found.items()}


@contextmanager
def _open_study(space: Space, trials: Sequence[TuningTrial], seed: int = 0) -> Iterator[Any]:
    """Yield a study in memory that has these trials; Optuna prints only warnings in the block."""
    optuna = load_optuna()
    metrics = [trial.metric for trial in trials if trial.metric is not None]  # a trial that diverged at once has none
    higher = bool(metrics) and metrics[0].higher_is_better
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(
            direction="maximize" if higher else "minimize",
            sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True),
        )
        study.add_trials([_to_optuna(optuna, space, trial, higher) for trial in trials])
        yield study
    finally:
        optuna.logging.set_verbosity(verbosity)


def _to_optuna(optuna: Any, space: Space, trial: TuningTrial, higher: bool) -> Any:
    """Return a trial for Optuna; one that diverged has the worst score."""
    states = optuna.trial.TrialState
    kinds = {"running": states.RUNNING, "pruned": states.PRUNED}
    worst = -math.inf if higher else math.inf
    value = trial.score if trial.state == "finished" else worst if trial.state == "diverged" else None
    return optuna.trial.create_trial(
        state=kinds.get(trial.state, states.COMPLETE),
        value=value,
        params={path: _to_drawn(domain, trial.settings[path]) for path, domain in space.items()},
        distributions={path: _make_distribution(domain) for path, domain in space.items()},
        intermediate_values=dict(trial.points),
    )


def _make_distribution(domain: Domain) -> Any:
    distributions = load_optuna().distributions
    if not isinstance(domain, TunedRange):
        return distributions.CategoricalDistribution([write_value(value) for value in domain.values])
    if domain.whole:
        step = 1 if domain.step is None else int(domain.step)
        high = domain.low + (domain.high - domain.low) // step * step  # Optuna's own rounding, without its warning
        return distributions.IntDistribution(int(domain.low), int(high), log=domain.log, step=step)
    if domain.step is None:
        return distributions.FloatDistribution(domain.low, domain.high, log=domain.log)
    count = math.floor(round((domain.high - domain.low) / domain.step, 9))
    return distributions.FloatDistribution(domain.low, domain.low + count * domain.step, step=domain.step)


def _from_optuna(domain: Domain, drawn: Any) -> Any:
    """Return what Optuna drew as the setting's value."""
    if isinstance(domain, TunedRange):
        return domain.to_value(drawn)
    return next(value for value in domain.values if write_value(value) == drawn)


def _to_drawn(domain: Domain, value: Any) -> Any:
    return value if isinstance(domain, TunedRange) else write_value(value)


def _make_seed(seed: int, algorithm: str, number: int) -> int:
    """Return a seed for one trial's draw."""
    name = int.from_bytes(hashlib.sha256(algorithm.encode()).digest()[:8], "big")
    return int(np.random.SeedSequence([seed, name, number]).generate_state(1)[0])
