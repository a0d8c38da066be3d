"""Federated learning with client-level momentum.

Everything is imported when first used, so that `fedcm --help` answers without loading torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcm.algorithms import FedAdam, FedAvg, FedCM, FedDyn, Scaffold
    from fedcm.api import Trained, train
    from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Nothing, Round, Vector
    from fedcm.core.participation import Everyone, FixedSize, Independent, Participation
    from fedcm.data.dataset import ClientsOnDemand, Dataset, Examples
    from fedcm.errors import UserError
    from fedcm.system.notices import EvalModeWarning, FedcmWarning, RandomDataWarning

__version__ = "0.1.0"

_HOME = {
    "Algorithm": "fedcm.core.algorithm",
    "Gradient": "fedcm.core.algorithm",
    "LocalRun": "fedcm.core.algorithm",
    "Nothing": "fedcm.core.algorithm",
    "Round": "fedcm.core.algorithm",
    "Vector": "fedcm.core.algorithm",
    "FedAdam": "fedcm.algorithms",
    "FedAvg": "fedcm.algorithms",
    "FedCM": "fedcm.algorithms",
    "FedDyn": "fedcm.algorithms",
    "Scaffold": "fedcm.algorithms",
    "ClientsOnDemand": "fedcm.data.dataset",
    "Dataset": "fedcm.data.dataset",
    "Examples": "fedcm.data.dataset",
    "EvalModeWarning": "fedcm.system.notices",
    "FedcmWarning": "fedcm.system.notices",
    "RandomDataWarning": "fedcm.system.notices",
    "Everyone": "fedcm.core.participation",
    "FixedSize": "fedcm.core.participation",
    "Independent": "fedcm.core.participation",
    "Participation": "fedcm.core.participation",
    "UserError": "fedcm.errors",
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
    "Round",
    "Scaffold",
    "Trained",
    "UserError",
    "Vector",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'fedcm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
