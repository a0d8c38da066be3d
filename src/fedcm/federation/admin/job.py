"""A run as a job of the engine: only configuration. The code that it names must be installed at the sites."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcm.config.experiment import to_toml
from fedcm.config.sections import Experiment
from fedcm.federation.engine import CONTROLLER, EXECUTOR
from fedcm.federation.experiment import compute_quorum

_APP = "app"
_TASKS = ("describe", "offer", "train", "secure", "evaluate", "validate", "finish")
_INTERVAL = (
    0.05  # seconds between a site's requests for a task; the engine's default of 2 s would dominate short rounds
)


def write_job(folder: Path, run: str, experiment: Experiment, *, resume: bool) -> Path:
    """Write a job's folder, named like the run, into `folder` and return its path.

    Args:
        folder: An existing folder.
        run: The run's name.
        experiment: The experiment, with every site named in `federation.sites`.
        resume: Whether the run may exist already at the server.
    """
    sites, text = sorted(experiment.federation.sites), to_toml(_hide_folder_of_weights(experiment))
    workflow = {"id": "rounds", "path": CONTROLLER, "args": {"run": run, "experiment": text, "resume": resume}}
    executor = {"path": EXECUTOR, "args": {"experiment": text, "sites": sites}}
    server = {
        "format_version": 2,
        "server": {"task_request_interval": _INTERVAL},
        "workflows": [workflow],
        "components": [],
    }
    client = {"format_version": 2, "executors": [{"tasks": list(_TASKS), "executor": executor}], "components": []}
    meta = {
        "name": run,
        "resource_spec": {},
        "min_clients": compute_quorum(len(sites), experiment.federation.quorum),  # later sites are not in this job
        "deploy_map": {_APP: ["server", *sites]},
        "custom_props": {"experiment": text},  # to submit a lost run again
    }
    job = folder / run
    config = job / _APP / "config"
    config.mkdir(parents=True)
    _write_json(job / "meta.json", meta)
    _write_json(config / "config_fed_server.json", server)
    _write_json(config / "config_fed_client.json", client)
    return job


def _hide_folder_of_weights(experiment: Experiment) -> Experiment:
    """Return the experiment with the name of its file of weights only: server and sites use their own copies."""
    weights = experiment.model.weights
    name_only = experiment.model.model_copy(update={"weights": None if weights is None else Path(weights).name})
    return experiment.model_copy(update={"model": name_only})


def get_experiment_text(meta: Mapping[str, Any]) -> str:
    """Return the experiment's TOML from the engine's record of a job."""
    return meta["custom_props"]["experiment"]


def _write_json(path: Path, table: dict[str, Any]) -> None:
    path.write_text(json.dumps(table, indent=2), encoding="utf-8")
