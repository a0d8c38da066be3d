"""A run as a job of the engine: configuration alone. The code that it names is installed at the sites, or refused."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcm.config.experiment import Experiment, to_toml
from fedcm.federation.quorum import quorum_of

APP = "app"
CONTROLLER = "fedcm.federation.server.controller.FederatedTraining"
EXECUTOR = "fedcm.federation.site.site_executor.SiteExecutor"
TASKS = ("describe", "train")
_INTERVAL = 0.05  # seconds between a site's requests for a task; the engine's own 2 s would be most of a short round


def write_job(folder: Path, run: str, experiment: Experiment, *, go_on: bool) -> Path:
    """The job's folder, named like the run; `go_on` says whether the run may be there already."""
    sites, text = sorted(experiment.federation.sites), to_toml(experiment)
    workflow = {"id": "rounds", "path": CONTROLLER, "args": {"run": run, "experiment": text, "go_on": go_on}}
    executor = {"path": EXECUTOR, "args": {"experiment": text, "sites": sites}}
    server = {
        "format_version": 2,
        "server": {"task_request_interval": _INTERVAL},
        "workflows": [workflow],
        "components": [],
    }
    client = {"format_version": 2, "executors": [{"tasks": list(TASKS), "executor": executor}], "components": []}
    meta = {
        "name": run,
        "resource_spec": {},
        "min_clients": quorum_of(len(sites), experiment.federation.quorum),  # who comes later is not in this job
        "deploy_map": {APP: ["server", *sites]},
        "custom_props": {"experiment": text},  # whence a run that was lost is submitted again
    }
    job = folder / run
    config = job / APP / "config"
    config.mkdir(parents=True)
    _write(job / "meta.json", meta)
    _write(config / "config_fed_server.json", server)
    _write(config / "config_fed_client.json", client)
    return job


def experiment_in(meta: Mapping[str, Any]) -> str:
    """The experiment's TOML, from what the engine remembers of a job."""
    return meta["custom_props"]["experiment"]


def _write(path: Path, table: dict[str, Any]) -> None:
    path.write_text(json.dumps(table, indent=2), encoding="utf-8")
