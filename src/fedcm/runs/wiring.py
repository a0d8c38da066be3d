"""From settings, a model and data to the objects that train: the one place where they are put together."""

from dataclasses import dataclass
from typing import Any, final

from torch import nn

from fedcm.config.experiment import ClientSection, EngineSection, ServerSection, reject_unequal_weights
from fedcm.core.algorithm import Algorithm
from fedcm.core.losses import Loss, cross_entropy, is_one_hot, squared_error
from fedcm.core.model_mode import warn_of_eval_mode
from fedcm.core.participation import FixedSize, Participation
from fedcm.core.problem import Problem
from fedcm.core.round_loop import TrainingPlan
from fedcm.core.schedule import Schedule
from fedcm.core.stacked import reject_other_in_stack
from fedcm.data.batches import LocalWork
from fedcm.data.federated import FederatedData
from fedcm.errors import UserError
from fedcm.executors.client_runner import ClientRunner
from fedcm.runs.autotune import compile_model, tune_engine
from fedcm.runs.smoke_test import reject_failing_algorithm, reject_lone_examples, reject_unusable_cohorts, smoke_test
from fedcm.system.device import resolve_device


@final
@dataclass(frozen=True)
class Wired:
    problem: Problem
    runner: ClientRunner
    plan: TrainingPlan
    engine: EngineSection  # nothing left to choose
    measured: dict[str, float]  # by which it was chosen: milliseconds a step of one client


def wire(
    algorithm: Algorithm[Any, Any, Any, Any],
    model: nn.Module,
    data: FederatedData,
    client: ClientSection,
    server: ServerSection,
    *,
    participation: Participation,
    rounds: int,
    seed: int,
    evaluate_every: int,
    loss: Loss | None = None,
    engine: EngineSection,
) -> Wired:
    """Refuses what does not fit together. Without a loss it is cross-entropy, or squared error for float labels."""
    reject_unequal_weights(algorithm, server)
    if isinstance(participation, FixedSize) and participation.clients > data.population:
        raise UserError(
            f"participation must be at most {data.population} clients, all there are, got {participation.clients}"
        )
    in_loss = client.weight_decay_at == "loss"
    default = cross_entropy if data.classes is not None else squared_error
    decay = client.weight_decay if in_loss else 0.0
    warn_of_eval_mode(model)
    model = model.to(resolve_device(engine.device))
    if engine.precision == "float64":
        model = model.double()
    problem = Problem(model, loss or default, weight_decay=decay, clip=client.clip, autocast=engine.precision == "bf16")
    schedule = Schedule(client.lr, client.lr_decay, server.lr)
    plan = TrainingPlan(rounds, data.population, participation, schedule, seed, evaluate_every)
    reject_unusable_cohorts(plan)
    local_work = LocalWork(client.batch_size, client.epochs or 1, client.steps)
    ready = data.ready_for(problem.dtype, problem.device)
    first = ready.client(0)
    if loss is None and data.classes is None and is_one_hot(first.labels):
        raise UserError(
            f"labels of floats are a regression, and these {tuple(first.labels.shape)} labels look one-hot; give their "
            "argmax as integers, or a loss of your own"
        )
    smoke_test(problem, first, None if loss else data.classes)
    reject_failing_algorithm(algorithm, problem)
    reject_lone_examples(problem, first, ready, local_work)
    engine, measured = tune_engine(engine, problem, data, local_work, plan)
    data = data.ready_for(problem.dtype, problem.device, engine.layout)
    if engine.stack > 1:
        reject_other_in_stack(problem, first)
    if engine.compile == "on":
        compile_model(problem, client.batch_size, data.client(0))
    runner = ClientRunner(
        algorithm,
        problem,
        data,
        local_work,
        seed=seed,
        step_decay=0.0 if in_loss else client.weight_decay,
        weigh_by_examples=server.weights == "examples",
        stack=engine.stack,
    )
    return Wired(problem, runner, plan, engine, measured)
