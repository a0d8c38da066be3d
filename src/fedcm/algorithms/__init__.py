"""The bundled algorithms, one module for each. `registry` finds algorithms by name or import path."""

from fedcm.algorithms.fedadam import FedAdam
from fedcm.algorithms.fedavg import FedAvg
from fedcm.algorithms.fedcm import FedCM
from fedcm.algorithms.feddyn import FedDyn
from fedcm.algorithms.scaffold import Scaffold
from fedcm.core.algorithm import Algorithm

ALGORITHMS: dict[str, type[Algorithm]] = {
    "fedavg": FedAvg,
    "fedcm": FedCM,
    "fedadam": FedAdam,
    "scaffold": Scaffold,
    "feddyn": FedDyn,
}

__all__ = ["ALGORITHMS", "FedAdam", "FedAvg", "FedCM", "FedDyn", "Scaffold"]
