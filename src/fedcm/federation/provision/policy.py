"""The engine's policy in a kit: the files of `local/`, which replace those of the engine's tool.

If a file is missing, the engine uses the `.default` beside it, and without a policy it allows everything. So none of
the engine's defaults stays, and the default policy allows nothing.
"""

from typing import Any

from fedcm.federation.engine import CONTROLLER, EXECUTOR, JOB_VALIDATOR, STORAGE
from fedcm.federation.plan import Party

# the engine searches the whole kit for a file of this name, the top folder first, and runs code that it names
TOP_FILES = {"comm_config.json": {"allow_adhoc_conns": False}}

ROLES = ("project_admin", "org_admin", "lead", "member")
_NOTHING = {
    "submit_job": "none",
    "clone_job": "none",
    "manage_job": "none",  # abort, delete
    "download_job": "none",
    "view": "none",
    "operate": "none",  # restart, shut down, look at machines
    "shell_commands": "none",  # ls, cat, grep at the server and the sites
    "byoc": "none",  # code that comes with a job
    "server-predeployed-flwr": "none",
}
_OWN = "n:submitter"  # only for jobs that this admin submitted
_GRANTED = {
    "lead": {"submit_job": "any", "view": "any", "abort_job": _OWN, "download_job": _OWN, "app_command": _OWN},
    "member": {"view": "any"},
}
_MANY = 100_000
_RESOURCES = "nvflare.app_common.resource"

Table = dict[str, Any]


def make_local_files(party: Party) -> dict[str, Table]:
    """Return the JSON files of a kit's `local/`, by name."""
    if party.kind == "admin":
        return {"resources.json": _make_admin_resources()}
    return {
        "resources.json": _make_server_resources() if party.kind == "server" else _make_site_resources(),
        "authorization.json": _make_authorization(_GRANTED),
        "authorization.json.default": _make_authorization({}),
        "log_config.json": _make_log_config(),
    }


def _make_server_resources() -> Table:
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [CONTROLLER],  # classes that a job may name
        "app_validator": {"path": JOB_VALIDATOR},
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": _MANY,  # the list of members decides
                "heart_beat_timeout": 60,  # seconds; sites send one every 10
                "admin_timeout": 10.0,
                "check_engine_frequency": 0.5,  # seconds until the end of a job is noticed
                "shutdown_period": 3.0,  # seconds to wait for sites to leave
            }
        ],
        "snapshot_persistor": {
            "path": "nvflare.app_common.state_persistors.storage_state_persistor.StorageStatePersistor",
            "args": {"uri_root": "/", "storage": {"path": STORAGE, "args": {"folder": "snapshots"}}},
        },
        "components": [
            {
                "id": "job_scheduler",
                "path": "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler",
                # try a job that waits for a site again soon, and for an hour
                "args": {
                    "max_jobs": 1,
                    "min_schedule_interval": 1.0,
                    "max_schedule_interval": 5.0,
                    "max_schedule_count": 720,
                },
            },
            {
                "id": "job_manager",
                "path": "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                "args": {"uri_root": "jobs/all", "job_store_id": "job_store"},
            },
            {"id": "job_store", "path": STORAGE, "args": {"folder": "."}},
            {
                "id": "process_launcher",
                "path": "nvflare.app_common.job_launcher.server_process_launcher.ServerProcessJobLauncher",
                "args": {},
            },
        ],
    }


def _make_site_resources() -> Table:
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [EXECUTOR],  # classes that a job may name
        "app_validator": {"path": JOB_VALIDATOR},
        "allow_log_streaming": False,
        # seconds
        "client": {"retry_timeout": 30, "client_register_interval": 1.0},
        "components": [
            {
                "id": "resource_manager",
                "path": f"{_RESOURCES}_managers.passthrough_resource_manager.PassthroughResourceManager",
                "args": {},
            },
            {
                "id": "resource_consumer",
                "path": f"{_RESOURCES}_consumers.passthrough_resource_consumer.PassthroughResourceConsumer",
                "args": {},
            },
            {
                "id": "process_launcher",
                "path": "nvflare.app_common.job_launcher.client_process_launcher.ClientProcessJobLauncher",
                "args": {},
            },
        ],
    }


def _make_admin_resources() -> Table:
    session = {"idle_timeout": 900.0, "login_timeout": 10.0, "authenticate_msg_timeout": 5.0, "with_debug": False}
    return {"format_version": 1, "admin": session | {"prompt": "> "}}


def _make_authorization(granted: dict[str, dict[str, str]]) -> Table:
    return {"format_version": "1.0", "permissions": {role: _NOTHING | granted.get(role, {}) for role in ROLES}}


def _make_log_config() -> Table:
    """Return the engine's own settings without two further files that repeat the same lines."""
    line = "%(asctime)s - %(name)s - %(levelname)s - %(fl_ctx)s - %(message)s"
    file = {
        "class": "logging.handlers.RotatingFileHandler",
        "formatter": "baseFormatter",
        "mode": "a",
        "maxBytes": 20 * 2**20,
        "backupCount": 5,
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "baseFormatter": {"()": "nvflare.fuel.utils.log_utils.BaseFormatter", "fmt": line},
            "consoleFormatter": {"()": "nvflare.fuel.utils.log_utils.ColorFormatter", "fmt": line},
        },
        "handlers": {
            "consoleHandler": {
                "class": "logging.StreamHandler",
                "level": "DEBUG",
                "formatter": "consoleFormatter",
                "stream": "ext://sys.stdout",
            },
            "logFileHandler": file | {"level": "DEBUG", "filename": "log.txt"},
            "errorFileHandler": file | {"level": "ERROR", "filename": "error_log.txt"},
        },
        "loggers": {"root": {"level": "INFO", "handlers": ["consoleHandler", "logFileHandler", "errorFileHandler"]}},
    }
