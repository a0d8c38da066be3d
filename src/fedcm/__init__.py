"""Federated learning with client-level momentum.

Everything is imported when first used, so that `fedcm --help` answers without loading torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcm.algorithm import Algorithm, Gradient, LocalRun, Nothing, Round, Vector
    from fedcm.algorithms import FedAdam, FedAvg, FedCM, FedDyn, Scaffold
    from fedcm.api import Trained, train
    from fedcm.data.dataset import ClientsOnDemand, Dataset, Examples
    from fedcm.notices import EvalModeWarning, FedcmWarning, RandomDataWarning
    from fedcm.refusal import Refused
    from fedcm.sampling import Everyone, FixedSize, Independent, Participation

__version__ = "0.1.0"

_HOME = {
    "Algorithm": "fedcm.algorithm",
    "Gradient": "fedcm.algorithm",
    "LocalRun": "fedcm.algorithm",
    "Nothing": "fedcm.algorithm",
    "Round": "fedcm.algorithm",
    "Vector": "fedcm.algorithm",
    "FedAdam": "fedcm.algorithms",
    "FedAvg": "fedcm.algorithms",
    "FedCM": "fedcm.algorithms",
    "FedDyn": "fedcm.algorithms",
    "Scaffold": "fedcm.algorithms",
    "ClientsOnDemand": "fedcm.data.dataset",
    "Dataset": "fedcm.data.dataset",
    "Examples": "fedcm.data.dataset",
    "EvalModeWarning": "fedcm.notices",
    "FedcmWarning": "fedcm.notices",
    "RandomDataWarning": "fedcm.notices",
    "Everyone": "fedcm.sampling",
    "FixedSize": "fedcm.sampling",
    "Independent": "fedcm.sampling",
    "Participation": "fedcm.sampling",
    "Refused": "fedcm.refusal",
    "Trained": "fedcm.api",
    "train": "fedcm.api",
}

__all__ = [
    "Algorithm",
    "ClientsOnDemand",
    "Dataset",
    "EvalModeWarning",
    "Everyone",
    "Examples",
    "FedAdam",
    "FedAvg",
    "FedCM",
    "FedDyn",
    "FedcmWarning",
    "FixedSize",
    "Gradient",
    "Independent",
    "LocalRun",
    "Nothing",
    "Participation",
    "RandomDataWarning",
    "Refused",
    "Round",
    "Scaffold",
    "Trained",
    "Vector",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'fedcm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
