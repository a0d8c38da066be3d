"""The README of a kit, and the settings files that its operator fills in."""

from fedcm.federation.kit import SERVER_FILE, SITE_FILE
from fedcm.federation.plan import Party
from fedcm.federation.provision.invitation import Invitation

_SITE_TOML = """\
# This site's own settings. They never leave the site, and no experiment can change them.

[data]
source = "data.npz"      # an .npz (x, y), a folder of them, or package.module:function; relative to this file

[limits]
# max_examples = 100000  # use at most this many examples
min_examples = 1         # do not take part with fewer examples
experiments = ["*"]      # patterns of the names of allowed experiments
code = []                # allowed models and algorithms that are not bundled: "package.module:name"
scores = true            # whether the server gets scores of models on this site's data
# secure_sites = 3       # take part only with secure aggregation over at least this many sites
# epsilon = 8.0          # take part only in private runs that cost at most this, at delta = 1e-5

[training]
threads = 1              # more are faster and may change the last bits
device = "cpu"

[storage]
states = 20              # newest client states of a run that are kept, for a server restored from a backup
megabytes = 1000         # at most this many per run, but always the newest 3 states
days = 7                 # after a run has finished, until its states are removed
# key = "/safe/state.key" # encrypt them: 32 random bytes (head -c 32 /dev/urandom) that only you can read (chmod 600)
"""

_SERVER_TOML = """\
# The server's own settings; every line is optional.

# [test]
# source = "test.npz"    # test examples (x, y) to evaluate on; relative to this file

# [validation]
# source = "validation.npz"    # examples on which choices are made, such as when to stop

# [limits]
# code = []              # allowed models and algorithms that are not bundled: "package.module:name"
"""

_HEAD = """\
# {title}

This folder is the kit of {owner} in the federation **{federation}**. It holds a private key: give it to nobody.
The server is `{host}`, port {port}.

## Install

    pip install 'fedcm[federation]'
"""

_FOR_SITE = """\
Say in `site.toml` where your data are and what experiments may use. Then, in this folder, check that your data load,
your certificate is valid and the server can be reached:

    fedcm federation check .

## Take part

    fedcm federation site .

It runs in the foreground until Ctrl-C. `fedcm federation unit .` prints a systemd unit that keeps it running.

Your data stay here: only what a model learnt from them is sent. No experiment can bring code, read your files or run
commands here: `local/authorization.json` and `local/resources.json` forbid it to the engine.
"""

_FOR_SERVER = """\
Sites must be able to reach port {port} of this machine, and admins port {admin_port}. In this folder, check the kit:

    fedcm federation check .

## Serve

    fedcm federation server .

It runs in the foreground until Ctrl-C. `fedcm federation unit .` prints a systemd unit that keeps it running. Runs are
stored in `runs/`. To evaluate models, name test examples in `server.toml`.
"""

_FOR_ADMIN = """\
## Run an experiment

    fedcm federation run EXPERIMENT.toml --kit .

`fedcm federation status --kit .` shows which sites are connected and which runs exist. Use `stop`, `resume`, `logs` and
`fetch` for your own runs.
"""

_FOR_VIEWER = """\
## Look

    fedcm federation status --kit .

shows which sites are connected and which runs exist. This certificate does not allow you to run experiments.
"""

_RENEWAL = """\
## Renew before {ends}

The certificate ends on **{ends}**. Some weeks before, in this folder:

    fedcm federation renew .

Send the file `{name}.request.zip` to the organiser, who sends back `{name}.signed.zip`. Then:

    fedcm federation join {name}.signed.zip .

{restart}`startup/` and `local/` are written again, except for files in `local/` that you have changed or added. The
old certificate is kept in `old/`, and everything else in this folder stays.
"""


def make_readme(party: Party, invitation: Invitation, ends: str) -> str:
    """Return the README of a party's kit; `ends` is the day on which its certificate expires."""
    plan = invitation.plan
    name = party.name
    titles = {"server": f"The server of {plan.name}", "site": f"{name}, {plan.name}", "admin": f"{name}, {plan.name}"}
    owners = {"server": "the server", "site": f"the site **{name}**", "admin": f"**{name}**"}
    values = {
        "title": titles[party.kind],
        "owner": owners[party.kind],
        "federation": plan.name,
        "name": name,
        "host": plan.server.host,
        "port": plan.server.port_for_admins if party.kind == "admin" else plan.server.port,
        "admin_port": plan.server.port_for_admins,
        "ends": ends,
        "restart": "" if party.kind == "admin" else f"Restart the {party.kind} to use the new certificate. ",
    }
    for_role = {"server": _FOR_SERVER, "client": _FOR_SITE, "lead": _FOR_ADMIN, "member": _FOR_VIEWER}[party.role]
    return "\n".join(part.format(**values) for part in (_HEAD, for_role, _RENEWAL))


def make_settings_files(party: Party) -> dict[str, str]:
    """Return the files that the kit's operator fills in, by name."""
    return {"server": {SERVER_FILE: _SERVER_TOML}, "site": {SITE_FILE: _SITE_TOML}, "admin": {}}[party.kind]
