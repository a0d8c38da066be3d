"""What a party's operator reads and fills in: the README of a kit, and its settings."""

from fedcm.federation.plan import Party
from fedcm.federation.provision.invitation import Invitation

_SITE = """\
# What this site gives to the federation. Nothing in here leaves the site, and no experiment can change it.

[data]
source = "data.npz"      # an .npz (x, y), a folder of them, or package.module:function; relative to this file

[limits]
# max_examples = 100000  # use at most so many examples
min_examples = 1         # take part only with at least so many
experiments = ["*"]      # names of experiments that may run here, as patterns
code = []                # models and algorithms that an experiment may name beside the bundled: "package.module:name"

[training]
threads = 1              # more are faster and may change the last bits
device = "cpu"
"""

_SERVER = """\
# What the server does beside training; every line is optional.

# [test]
# source = "test.npz"    # held-out examples (x, y) that the server evaluates on; relative to this file

# [limits]
# code = []              # models and algorithms that an experiment may name beside the bundled: "package.module:name"
"""

_HEAD = """\
# {title}

This folder belongs to {owner} of the federation **{federation}** and to nobody else: it holds a private key.
The server is `{host}`, port {port}.

## Once

    pip install 'fedcm[federation]'
"""

_FOR_SITE = """\
Say in `site.toml` where your data are and what may be done with them. Then, in this folder:

    fedcm federation check .

tells whether your data load, your certificate is valid and the server can be reached.

## To take part

    fedcm federation site .

It stays in the foreground until Ctrl-C; `fedcm federation unit .` prints a systemd unit that runs it for good.

Your data stay here: only what a model learnt from them is sent. No experiment can bring code, read your files or run
commands here: `local/authorization.json` and `local/resources.json` say so to the engine.
"""

_FOR_SERVER = """\
Sites must reach port {port} of this machine, and admins port {admin_port}. In this folder:

    fedcm federation check .

tells whether all is well.

## To serve

    fedcm federation server .

It stays in the foreground until Ctrl-C; `fedcm federation unit .` prints a systemd unit that runs it for good. Training
runs are in `runs/`. Held-out examples to evaluate on can be named in `server.toml`.
"""

_FOR_ADMIN = """\
## To run an experiment

    fedcm federation run EXPERIMENT.toml --kit .

`fedcm federation status --kit .` tells who is there and what runs; `stop`, `resume`, `logs` and `fetch` are for your
own runs.
"""

_FOR_VIEWER = """\
## To look

    fedcm federation status --kit .

tells who is there and what runs. This certificate is for looking, and not for running experiments.
"""

_RENEWAL = """\
## Before {ends}

The certificate ends on **{ends}**. Some weeks before, in this folder:

    fedcm federation renew .

Send the file `{name}.request.zip` that it makes to the organiser, who sends back `{name}.signed.zip`. Then:

    fedcm federation join {name}.signed.zip .

{again}Everything else in this folder stays; `startup/` and `local/` are written anew, the old certificate is in `old/`.
"""


def readme(party: Party, invitation: Invitation, ends: str) -> str:
    plan = invitation.plan
    name = party.name
    titles = {"server": f"The server of {plan.name}", "site": f"{name}, {plan.name}", "admin": f"{name}, {plan.name}"}
    owners = {"server": "the server", "site": f"the site **{name}**", "admin": f"**{name}**"}
    words = {
        "title": titles[party.kind],
        "owner": owners[party.kind],
        "federation": plan.name,
        "name": name,
        "host": plan.server.host,
        "port": plan.server.port_for_admins if party.kind == "admin" else plan.server.port,
        "admin_port": plan.server.port_for_admins,
        "ends": ends,
        "again": "" if party.kind == "admin" else "Start it again for the new one to count. ",
    }
    for_role = {"server": _FOR_SERVER, "client": _FOR_SITE, "lead": _FOR_ADMIN, "member": _FOR_VIEWER}[party.role]
    return "\n".join(part.format(**words) for part in (_HEAD, for_role, _RENEWAL))


def settings(party: Party) -> dict[str, str]:
    """By name, the files that the operator fills in."""
    return {"server": {"server.toml": _SERVER}, "site": {"site.toml": _SITE}, "admin": {}}[party.kind]
