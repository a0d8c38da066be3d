"""Build the plan of the rounds, with the files of its conditions read."""

from fedcm.config.sections import Experiment
from fedcm.core.algorithm import is_decentralised
from fedcm.core.conditions.check import check_conditions
from fedcm.core.conditions.deadline import SimulatedDeadline
from fedcm.core.participation import FixedSize
from fedcm.core.round_loop import TrainingPlan
from fedcm.core.schedule import Schedule
from fedcm.core.scoring.metric_set import MetricSet
from fedcm.core.topology import Ring
from fedcm.data.batches import LocalWork
from fedcm.data.federated import FederatedData, find_client_tests
from fedcm.errors import UserError
from fedcm.runs.choices import make_stop_rule


def build_plan(experiment: Experiment, data: FederatedData, local_work: LocalWork, metrics: MetricSet) -> TrainingPlan:
    """Return the rounds, cohorts and learning rates of an experiment.

    Raises:
        UserError: If the participation, the graph or a condition does not fit the clients.
    """
    participation = experiment.participation
    if isinstance(participation, FixedSize) and participation.clients > data.population:
        raise UserError(
            f"participation must be at most {data.population} clients, the whole population, got "
            f"{participation.clients}"
        )
    client, server = experiment.client, experiment.server
    schedule = Schedule(client.lr, client.lr_decay, server.lr, client.schedule, server.schedule, experiment.rounds)
    every = experiment.evaluation.every
    topology = experiment.topology or (Ring() if is_decentralised(experiment.algorithm) else None)
    deadline = SimulatedDeadline(local_work, data, experiment.seed) if experiment.stragglers is not None else None
    plan = TrainingPlan(
        experiment.rounds,
        data.population,
        participation,
        schedule,
        experiment.seed,
        every,
        topology,
        experiment.availability,
        deadline,
        make_stop_rule(experiment.stop, metrics, data, every),
        evaluates_clients=find_client_tests(data) is not None,
    )
    if topology is not None:
        _ = plan.mixing  # now, so that a graph that does not fit is rejected before the run begins
    check_conditions(plan, local_work)
    return plan
