"""Federated learning with client-level momentum.

Names are imported when they are first used, so that `fedcm --help` answers without loading torch.
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcm.advice.suggestion import Advice
    from fedcm.algorithms import (
        DSGD,
        GHBM,
        MFL,
        VRLSGD,
        AdaAlter,
        FedAc,
        FedACG,
        FedAdagrad,
        FedAdam,
        FedAvg,
        FedAvgM,
        FedCM,
        FedCMAnytime,
        FedDANE,
        FedDyn,
        FedExP,
        FedLADA,
        FedLESAM,
        FedMoSWA,
        FedMuon,
        FedNova,
        FedPD,
        FedProx,
        FedSAM,
        FedSMOO,
        FedSpeed,
        FedSplit,
        FedSWA,
        FedYogi,
        Mime,
        MimeLite,
        MoFedSAM,
        QGDSGDm,
        Scaffold,
        SignSGD,
        SlowMo,
    )
    from fedcm.api.advice import advise, plan_privacy
    from fedcm.api.experiments import PythonExperiment, load_experiment, make_experiment
    from fedcm.api.metrics_table import MetricsTable
    from fedcm.api.reports import report
    from fedcm.api.runs import resume, run
    from fedcm.api.saved_run import Run
    from fedcm.api.state import RunState
    from fedcm.api.sweeps import sweep
    from fedcm.api.training import TrainingResult, TrainingRound, rounds, train
    from fedcm.api.tuning import TunedAlgorithm, TuningResult, tune
    from fedcm.config.sections import Experiment
    from fedcm.core.aggregation.robust import (
        Bulyan,
        CentredClipping,
        Clipped,
        GeometricMedian,
        Krum,
        Median,
        RobustRule,
        Trimmed,
    )
    from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Nothing, Round, Step, Vector
    from fedcm.core.attacks import (
        Attack,
        Backdoor,
        InnerProduct,
        LabelFlip,
        LittleIsEnough,
        Noise,
        Scaled,
        SignFlip,
    )
    from fedcm.core.conditions.availability import Availability, DayNight, Trace
    from fedcm.core.local.optimizers import SGD, Adam, AdamW, LocalOptimizer
    from fedcm.core.metrics import RoundMetrics
    from fedcm.core.participation import Everyone, FixedSize, Independent, Participation
    from fedcm.core.privacy.budget import Privacy
    from fedcm.core.schedule_kinds import (
        Constant,
        Cosine,
        ExponentialDecay,
        FunctionSchedule,
        Polynomial,
        RateSchedule,
        StepDecay,
    )
    from fedcm.core.stopping import Stop
    from fedcm.core.topology import Adjacency, Complete, ErdosRenyi, Exponential, Ring, Topology, Torus
    from fedcm.data.dataset import ClientsOnDemand, Dataset, Examples
    from fedcm.data.work.amounts import FileWork, UniformWork
    from fedcm.data.work.stragglers import Stragglers
    from fedcm.errors import Diverged, Stopped, TrainingFailed, UserError, WriteFailed
    from fedcm.privacy.planning import PrivacyPlan
    from fedcm.system.user_warnings import (
        EvalModeWarning,
        FedcmWarning,
        FewExamplesWarning,
        LongWarmupWarning,
        ManyWorkersWarning,
        RandomDataWarning,
        SlowPrecisionWarning,
    )

__version__ = "0.1.0"

_MODULES = {
    "fedcm.advice.suggestion": ("Advice",),
    "fedcm.algorithms": (
        "AdaAlter",
        "DSGD",
        "FedACG",
        "FedAc",
        "FedAdagrad",
        "FedAdam",
        "FedAvg",
        "FedAvgM",
        "FedCM",
        "FedCMAnytime",
        "FedDANE",
        "FedDyn",
        "FedExP",
        "FedLADA",
        "FedLESAM",
        "FedMoSWA",
        "FedMuon",
        "FedNova",
        "FedPD",
        "FedProx",
        "FedSAM",
        "FedSMOO",
        "FedSWA",
        "FedSpeed",
        "FedSplit",
        "FedYogi",
        "GHBM",
        "MFL",
        "Mime",
        "MimeLite",
        "MoFedSAM",
        "QGDSGDm",
        "Scaffold",
        "SignSGD",
        "SlowMo",
        "VRLSGD",
    ),
    "fedcm.api.advice": ("advise", "plan_privacy"),
    "fedcm.api.experiments": ("PythonExperiment", "load_experiment", "make_experiment"),
    "fedcm.api.metrics_table": ("MetricsTable",),
    "fedcm.api.reports": ("report",),
    "fedcm.api.runs": ("resume", "run"),
    "fedcm.api.saved_run": ("Run",),
    "fedcm.api.state": ("RunState",),
    "fedcm.api.sweeps": ("sweep",),
    "fedcm.api.training": ("TrainingResult", "TrainingRound", "rounds", "train"),
    "fedcm.api.tuning": ("TunedAlgorithm", "TuningResult", "tune"),
    "fedcm.config.sections": ("Experiment",),
    "fedcm.core.aggregation.robust": (
        "Bulyan",
        "CentredClipping",
        "Clipped",
        "GeometricMedian",
        "Krum",
        "Median",
        "RobustRule",
        "Trimmed",
    ),
    "fedcm.core.attacks": (
        "Attack",
        "Backdoor",
        "InnerProduct",
        "LabelFlip",
        "LittleIsEnough",
        "Noise",
        "Scaled",
        "SignFlip",
    ),
    "fedcm.core.algorithm": ("Algorithm", "Gradient", "LocalRun", "Nothing", "Round", "Step", "Vector"),
    "fedcm.core.local.optimizers": ("SGD", "Adam", "AdamW", "LocalOptimizer"),
    "fedcm.core.conditions.availability": ("Availability", "DayNight", "Trace"),
    "fedcm.core.metrics": ("RoundMetrics",),
    "fedcm.core.participation": ("Everyone", "FixedSize", "Independent", "Participation"),
    "fedcm.core.schedule_kinds": (
        "Constant",
        "Cosine",
        "ExponentialDecay",
        "FunctionSchedule",
        "Polynomial",
        "RateSchedule",
        "StepDecay",
    ),
    "fedcm.core.privacy.budget": ("Privacy",),
    "fedcm.privacy.planning": ("PrivacyPlan",),
    "fedcm.core.stopping": ("Stop",),
    "fedcm.core.topology": ("Adjacency", "Complete", "ErdosRenyi", "Exponential", "Ring", "Topology", "Torus"),
    "fedcm.data.dataset": ("ClientsOnDemand", "Dataset", "Examples"),
    "fedcm.data.work.amounts": ("FileWork", "UniformWork"),
    "fedcm.data.work.stragglers": ("Stragglers",),
    "fedcm.errors": ("Diverged", "Stopped", "TrainingFailed", "UserError", "WriteFailed"),
    "fedcm.system.user_warnings": (
        "EvalModeWarning",
        "FedcmWarning",
        "FewExamplesWarning",
        "LongWarmupWarning",
        "ManyWorkersWarning",
        "RandomDataWarning",
        "SlowPrecisionWarning",
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
_OLD_NAMES = {"Refused": "UserError", "Trained": "TrainingResult", "WorkerFailed": "TrainingFailed"}

__all__ = [
    "DSGD",
    "GHBM",
    "MFL",
    "SGD",
    "VRLSGD",
    "AdaAlter",
    "Adam",
    "AdamW",
    "Adjacency",
    "Advice",
    "Algorithm",
    "Attack",
    "Availability",
    "Backdoor",
    "Bulyan",
    "CentredClipping",
    "ClientsOnDemand",
    "Clipped",
    "Complete",
    "Constant",
    "Cosine",
    "Dataset",
    "DayNight",
    "Diverged",
    "ErdosRenyi",
    "EvalModeWarning",
    "Everyone",
    "Examples",
    "Experiment",
    "Exponential",
    "ExponentialDecay",
    "FedACG",
    "FedAc",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedCM",
    "FedCMAnytime",
    "FedDANE",
    "FedDyn",
    "FedExP",
    "FedLADA",
    "FedLESAM",
    "FedMoSWA",
    "FedMuon",
    "FedNova",
    "FedPD",
    "FedProx",
    "FedSAM",
    "FedSMOO",
    "FedSWA",
    "FedSpeed",
    "FedSplit",
    "FedYogi",
    "FedcmWarning",
    "FewExamplesWarning",
    "FileWork",
    "FixedSize",
    "FunctionSchedule",
    "GeometricMedian",
    "Gradient",
    "Independent",
    "InnerProduct",
    "Krum",
    "LabelFlip",
    "LittleIsEnough",
    "LocalOptimizer",
    "LocalRun",
    "LongWarmupWarning",
    "ManyWorkersWarning",
    "Median",
    "MetricsTable",
    "Mime",
    "MimeLite",
    "MoFedSAM",
    "Noise",
    "Nothing",
    "Participation",
    "Polynomial",
    "Privacy",
    "PrivacyPlan",
    "PythonExperiment",
    "QGDSGDm",
    "RandomDataWarning",
    "RateSchedule",
    "Ring",
    "RobustRule",
    "Round",
    "RoundMetrics",
    "Run",
    "RunState",
    "Scaffold",
    "Scaled",
    "SignFlip",
    "SignSGD",
    "SlowMo",
    "SlowPrecisionWarning",
    "Step",
    "StepDecay",
    "Stop",
    "Stopped",
    "Stragglers",
    "Topology",
    "Torus",
    "Trace",
    "TrainingFailed",
    "TrainingResult",
    "TrainingRound",
    "Trimmed",
    "TunedAlgorithm",
    "TuningResult",
    "UniformWork",
    "UserError",
    "Vector",
    "WriteFailed",
    "advise",
    "load_experiment",
    "make_experiment",
    "plan_privacy",
    "report",
    "resume",
    "rounds",
    "run",
    "sweep",
    "train",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in _OLD_NAMES:
        warnings.warn(f"fedcm.{name} is now fedcm.{_OLD_NAMES[name]}", DeprecationWarning, stacklevel=2)
        name = _OLD_NAMES[name]
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'fedcm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
