"""A federation without a network: the sites' code runs in this process, behind the channel interface."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedcm.config.experiment import read_experiment, to_toml
from fedcm.config.sections import Experiment
from fedcm.errors import UserError
from fedcm.federation.experiment import prepare_experiment
from fedcm.federation.frames import Arrays, select_own_fields
from fedcm.federation.provision.deal import deal
from fedcm.federation.server.channel import Deadline, SiteAnswer
from fedcm.federation.site.finished_runs import mark_finished
from fedcm.federation.site.trainer import SiteTrainer

SITES = ["a", "b", "c"]
Spoil = Callable[[str, dict[str, Any], Arrays], tuple[Mapping[str, Any], Arrays] | None]


def make_experiment(algorithm: str = "fedcm", rounds: int = 4, **tables: Any) -> Experiment:
    """Make a small experiment for three sites; `tables` replace top-level keys."""
    return read_experiment(
        {
            "name": "trial",
            "rounds": rounds,
            "seed": 5,
            "split": {"kind": "dirichlet", "clients": 3, "concentration": 0.6},
            "model": {"name": "mlp", "hidden": [8]},
            "algorithm": {"name": algorithm},
            "client": {"epochs": 1, "batch_size": 50, "lr": 0.1},
            "evaluation": {"every": 2},
            "engine": {"stack": 1, "layout": "channels_last", "compile": "off"},
            **tables,
        }
    )


def make_federated(chosen: Experiment) -> Experiment:
    """Return the experiment as the server sees it."""
    settings = chosen.federation.model_copy(update={"sites": SITES})
    return prepare_experiment(chosen.model_copy(update={"federation": settings}))


def write_kits(chosen: Experiment, folder: Path) -> Path:
    """Write the kits of a server and three sites, with only their data and settings."""
    deal(chosen, SITES, folder / "dealt")
    for site in SITES:
        (folder / site).mkdir()
        (folder / site / "site.toml").write_text(f'[data]\nsource = "../dealt/{site}.npz"\n')
    (folder / "server").mkdir()
    (folder / "server" / "server.toml").write_text('[test]\nsource = "../dealt/test.npz"\n')
    return folder


class InProcessChannel:
    """A channel to sites in this process; `spoil` may change or drop the answer to a round, `spoil_scores` scores."""

    def __init__(
        self, folder: Path, chosen: Experiment, spoil: Spoil | None = None, spoil_scores: Spoil | None = None
    ) -> None:
        self.text = to_toml(chosen)
        self.names = sorted(chosen.federation.sites)
        self.folder = folder
        self.spoil = spoil
        self.spoil_scores = spoil_scores
        self.absent: set[str] = set()
        self.asked: list[tuple[str, list[str]]] = []
        self.sites: dict[str, SiteTrainer] = {}

    def list_connected_sites(self) -> set[str]:
        return set(SITES) - self.absent

    def check_stopped(self) -> None:
        pass

    def limit_replies(self, size: int) -> None:
        self.reply_limit = size

    def ask(
        self, task: str, fields: Mapping[str, Any], arrays: Arrays, sites: Sequence[str], deadline: Deadline
    ) -> Iterator[SiteAnswer]:
        self.asked.append((task, list(sites)))
        for site in sorted(sites, reverse=True):  # the order of answers must not matter
            try:
                answer = self._answer(task, dict(fields), arrays, site)
            except UserError as refusal:
                answer = {"refused": str(refusal)}, {}
            if answer is not None:
                yield SiteAnswer(site, *answer)

    def _answer(
        self, task: str, fields: dict[str, Any], arrays: Arrays, site: str
    ) -> tuple[Mapping[str, Any], Arrays] | None:
        if site not in self.sites:
            self.sites[site] = SiteTrainer(self.folder / site, self.text, self.names.index(site), len(self.names))
        if task == "describe":
            return self.sites[site].describe(), {}
        if task == "finish":
            mark_finished(self.folder / site / "state", fields["runs"])
            return {}, {}
        if task == "offer":
            return self.sites[site].offer(**select_own_fields(fields, site)), {}
        fields = select_own_fields(fields, site)
        if task == "secure":
            answer = self.sites[site].aggregate(**fields, arrays=arrays)
        else:
            request = getattr(self.sites[site], task)
            answer = request(**fields, sent={name: np.array(array) for name, array in arrays.items()})
        spoil = self.spoil if task in ("train", "secure") else self.spoil_scores
        return answer if spoil is None else spoil(site, *answer)
