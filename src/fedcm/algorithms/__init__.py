"""The bundled algorithms, one module for each, in groups. `registry` finds algorithms by name or import path."""

from fedcm.algorithms.adaptive.adaalter import AdaAlter
from fedcm.algorithms.adaptive.fedadagrad import FedAdagrad
from fedcm.algorithms.adaptive.fedadam import FedAdam
from fedcm.algorithms.adaptive.fedlada import FedLADA
from fedcm.algorithms.adaptive.fedmuon import FedMuon
from fedcm.algorithms.adaptive.fedyogi import FedYogi
from fedcm.algorithms.averaging.fedavg import FedAvg
from fedcm.algorithms.averaging.fedexp import FedExP
from fedcm.algorithms.averaging.fednova import FedNova
from fedcm.algorithms.averaging.fedprox import FedProx
from fedcm.algorithms.averaging.fedswa import FedSWA
from fedcm.algorithms.averaging.signsgd import SignSGD
from fedcm.algorithms.client_momentum.fedac import FedAc
from fedcm.algorithms.client_momentum.fedcm import FedCM
from fedcm.algorithms.client_momentum.fedcm_anytime import FedCMAnytime
from fedcm.algorithms.client_momentum.ghbm import GHBM
from fedcm.algorithms.client_momentum.mfl import MFL
from fedcm.algorithms.client_momentum.mime import Mime
from fedcm.algorithms.client_momentum.mimelite import MimeLite
from fedcm.algorithms.decentralised.dsgd import DSGD
from fedcm.algorithms.decentralised.qg_dsgdm import QGDSGDm
from fedcm.algorithms.primal_dual.feddyn import FedDyn
from fedcm.algorithms.primal_dual.fedpd import FedPD
from fedcm.algorithms.primal_dual.fedsplit import FedSplit
from fedcm.algorithms.server_momentum.fedacg import FedACG
from fedcm.algorithms.server_momentum.fedavgm import FedAvgM
from fedcm.algorithms.server_momentum.slowmo import SlowMo
from fedcm.algorithms.sharpness_aware.fedlesam import FedLESAM
from fedcm.algorithms.sharpness_aware.fedsam import FedSAM
from fedcm.algorithms.sharpness_aware.fedsmoo import FedSMOO
from fedcm.algorithms.sharpness_aware.fedspeed import FedSpeed
from fedcm.algorithms.sharpness_aware.mofedsam import MoFedSAM
from fedcm.algorithms.variance_reduction.feddane import FedDANE
from fedcm.algorithms.variance_reduction.fedmoswa import FedMoSWA
from fedcm.algorithms.variance_reduction.scaffold import Scaffold
from fedcm.algorithms.variance_reduction.vrl_sgd import VRLSGD
from fedcm.core.algorithm import Algorithm

GROUPS: dict[str, dict[str, type[Algorithm]]] = {
    "averaging": {
        "fedavg": FedAvg,
        "fedprox": FedProx,
        "fednova": FedNova,
        "fedexp": FedExP,
        "fedswa": FedSWA,
        "signsgd": SignSGD,
    },
    "server momentum": {
        "fedavgm": FedAvgM,
        "slowmo": SlowMo,
        "fedacg": FedACG,
    },
    "client momentum": {
        "fedcm": FedCM,
        "fedcm-anytime": FedCMAnytime,
        "mimelite": MimeLite,
        "mime": Mime,
        "ghbm": GHBM,
        "mfl": MFL,
        "fedac": FedAc,
    },
    "variance reduction": {
        "scaffold": Scaffold,
        "fedmoswa": FedMoSWA,
        "vrl-sgd": VRLSGD,
        "feddane": FedDANE,
    },
    "primal-dual": {
        "feddyn": FedDyn,
        "fedpd": FedPD,
        "fedsplit": FedSplit,
    },
    "sharpness-aware": {
        "fedsam": FedSAM,
        "mofedsam": MoFedSAM,
        "fedlesam": FedLESAM,
        "fedspeed": FedSpeed,
        "fedsmoo": FedSMOO,
    },
    "adaptive": {
        "fedadam": FedAdam,
        "fedyogi": FedYogi,
        "fedadagrad": FedAdagrad,
        "adaalter": AdaAlter,
        "fedlada": FedLADA,
        "fedmuon": FedMuon,
    },
    "decentralised": {
        "d-sgd": DSGD,
        "qg-dsgdm": QGDSGDm,
    },
}

ALGORITHMS: dict[str, type[Algorithm]] = {name: kind for group in GROUPS.values() for name, kind in group.items()}

PAPER_ALGORITHMS = ("fedavg", "fedcm", "fedadam", "scaffold", "feddyn")  # FedCM and the baselines of its paper

__all__ = [
    "ALGORITHMS",
    "DSGD",
    "GHBM",
    "GROUPS",
    "MFL",
    "PAPER_ALGORITHMS",
    "VRLSGD",
    "AdaAlter",
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
    "Mime",
    "MimeLite",
    "MoFedSAM",
    "QGDSGDm",
    "Scaffold",
    "SignSGD",
    "SlowMo",
]
