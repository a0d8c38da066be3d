"""Numbers in sentences, from constants of the code and from arithmetic with them."""

import functools
import math
import re

from page_numbers import ROOT
from quotes import Quote, read_code

from fedcm.models import MODELS, build_model
from fedcm.privacy.accountant import Accountant, Sampling, calibrate_noise

THREATS, FEDERATION, PRIVATE = (f"docs/guides/{name}.md" for name in ("federation-threats", "federation", "privacy"))
GATE = "federation/gate/limited_connections.py"
RATES = "tests/identities/test_small_rates.py"
SEQUENCES = {"lstm", "transformer"}
SITES, ROUNDS, DELTA = Sampling(1.0, 1.0, "add or remove one client"), 50, 1e-3


@functools.cache
def count_parameters(name: str, **options: int) -> int:
    """Return the number of parameters as docs/models.md counts them."""
    shape, classes = ((80,), 97) if name in SEQUENCES else ((3, 32, 32), 10)
    return sum(parameter.numel() for parameter in build_model(name, shape, classes, options, 0).parameters())


def get_states_of_resnet18() -> float:
    """Return the GB of the client states of 500 clients."""
    return 500 * count_parameters("resnet18") * 4 / 1e9


def get_noise_of_sites() -> float:
    """Return the noise of a sum, in thresholds, for ε = 8."""
    return calibrate_noise(SITES, 8.0, DELTA, ROUNDS)


def get_epsilon_against_a_site() -> float:
    """Return ε against a site of three that subtracts its own share of the noise."""
    return Accountant(SITES, get_noise_of_sites() * math.sqrt(2 / 3), DELTA).compute_epsilon(ROUNDS)


def find_version(package: str) -> float:
    """Return the first two parts of the version in constraints.txt."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    found = re.search(rf"^{package}==(\d+\.\d+)", text, re.MULTILINE)
    assert found, package
    return float(found[1])


def get_python() -> float:
    """Return the oldest version of Python."""
    found = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert found
    return float(found[1])


def get_longest_silence() -> float:
    """Return the seconds after which a silent connection is closed: until it is asked, and until it must answer."""
    return sum(
        read_code("federation/gate/transport.py", rf"keepalive_{key}_ms\", (\d+)") for key in ("time", "timeout")
    )


QUOTES = [
    *(
        Quote(page, r"Python ([\d.]+\d) or newer", get_python)
        for page in ("README.md", "docs/get-started.md", FEDERATION)
    ),
    Quote(
        "docs/algorithms/fedcm.md",
        r"to (\S+) of Δ's norm, for each of the rates η_l = ([\d.]+), (\S+) and",
        lambda: [
            read_code(RATES, pattern) for pattern in (r"CLOSE = (\S+)", r"RATES = \[(\S+)", r"RATES = \[\S+ (\S+)")
        ],
    ),
    Quote("docs/decisions/0008-a-real-federation.md", r"NVIDIA FLARE ([\d.]+\d)", lambda: find_version("nvflare")),
    *(
        Quote("docs/models.md", rf"\| `{name}` \|.*\| ([\d,]+) \|", functools.partial(count_parameters, name))
        for name in MODELS
    ),
    Quote(
        "docs/models.md",
        r"standard deviation ([\d.]+); ([\d.]+)/√",
        lambda: (read_code("models/transformer.py", "_DEVIATION = ([^ \n]+)"),) * 2,
    ),
    Quote(
        "docs/guides/text.md",
        r"\| LSTM .*\| ([\d,]+) \|",
        lambda: count_parameters("lstm", embedding=8, hidden=128, layers=1),
    ),
    Quote("docs/guides/text.md", r"\| transformer .*\| ([\d,]+) \|", lambda: count_parameters("transformer", width=64)),
    Quote("docs/decisions/0002-exact-sums.md", r"an entry is at most (\S+\d⁻\S+)\.", lambda: 2.0**-49),
    Quote("docs/decisions/0004-client-states-in-slots.md", r"that is (\d+) GB", get_states_of_resnet18),
    Quote("docs/decisions/0006-rounded-client-states.md", r"ResNet-18 take (\d+) GB", get_states_of_resnet18),
    Quote(
        "docs/decisions/0006-rounded-client-states.md",
        r"file: (\d+) GB instead of (\d+)",
        lambda: (get_states_of_resnet18() / 2, get_states_of_resnet18()),
    ),
    Quote(
        "docs/decisions/0005-choices-by-trial.md",
        r"takes less than (\d+) ms",
        lambda: 1000 * read_code("runs/autotune.py", r"_TINY_STEP = (\S+)"),
    ),
    Quote(
        "docs/decisions/0005-choices-by-trial.md",
        r"more than (\d+) minutes",
        lambda: read_code("runs/autotune.py", r"_LONG_RUN = (\S+)") / 60,
    ),
    Quote(
        "docs/decisions/0005-choices-by-trial.md",
        r"at most ([\d.]+) of its time",
        lambda: read_code("runs/autotune.py", r"_WORTHWHILE = (\S+)"),
    ),
    Quote(
        "docs/decisions/0007-what-a-step-costs.md",
        r"has occurred (\d+) times",
        lambda: read_code("core/local/traced_function.py", r"_TRACE_AFTER = (\S+)"),
    ),
    Quote(
        "docs/design.md",
        r"examples of (\d+) kB",
        lambda: read_code("system/storage/mapped_files.py", r"_LONG = (\S+)") / 1000,
    ),
    Quote(
        "docs/experiments.md",
        r"features of (\d+) MiB",
        lambda: read_code("data/sources/npz.py", r"_LARGE = (\S+)") / 2**20,
    ),
    Quote("docs/guides/evaluation.md", r"100 classes take (\d+) MB", lambda: 10_000 * 100 * 4 / 1e6),
    Quote(
        THREATS,
        r"takes more than (\d+) s",
        lambda: read_code("federation/gate/transport.py", r"handshake_timeout_ms\", (\d+)"),
    ),
    Quote(
        THREATS,
        r"above (\d+) times the median",
        lambda: read_code("federation/server/rounds.py", r"_NORM_RATIO = (\S+)"),
    ),
    Quote(
        THREATS,
        r"(\d+) bytes per entry of the report and (\d+) MiB",
        lambda: (
            read_code("federation/server/replies.py", r"_BYTES_PER_ENTRY = (\S+)"),
            read_code("federation/server/replies.py", r"_BYTES_BESIDES = (\S+)") / 2**20,
        ),
    ),
    Quote(THREATS, r"frame of more than (\d+) MiB", lambda: read_code(GATE, r"MAX_FRAME = (\S+)") / 2**20),
    Quote(
        THREATS,
        r"beyond (\d+), and then one every (\d+) s",
        lambda: (
            read_code(GATE, r"CONNECTIONS = .*burst=(\d+)"),
            1 / read_code(GATE, r"CONNECTIONS = .*second=([\d.]+)"),
        ),
    ),
    Quote(THREATS, r"say its name within (\d+) s", lambda: read_code(GATE, r"NAME_TIMEOUT = (\S+)")),
    Quote(THREATS, r"not answer for (\d+) s is closed", get_longest_silence),
    Quote(THREATS, r"the (\d+) s are set", get_longest_silence),
    Quote(
        FEDERATION,
        r"gives it up after (\d+) s",
        lambda: read_code("federation/gate/connections.py", r"_PING_TIMEOUT = (\S+)"),
    ),
    Quote(
        FEDERATION,
        r"at most (\d+) GB per run",
        lambda: read_code("federation/settings.py", r"megabytes: Count = (\d+)") / 1000,
    ),
    Quote(
        FEDERATION,
        r"at least (\d+) s\.",
        lambda: read_code("federation/server/requests.py", r"_DOUBTFUL_WAIT = (\S+)"),
    ),
    Quote(
        "docs/guides/report.md",
        r"best value between ([\d.]+) and ([\d.]+) that",
        lambda: [
            read_code("reports/claims/alpha_sweeps.py", rf"_NEAR = \({text}")
            for text in (r"([\d.]+)", r"[\d.]+, ([\d.]+)")
        ],
    ),
    Quote("docs/guides/report.md", r"every (\d+) seconds", lambda: read_code("reports/live.py", r"_INTERVAL = (\S+)")),
    Quote("docs/guides/report.md", r"ends (\d+) seconds", lambda: read_code("reports/live.py", r"_PATIENCE = (\S+)")),
    Quote(PRIVATE, r"is (\d+) times smaller than with 700", lambda: 1000 / 70),
    Quote(
        PRIVATE,
        r"about ([\d.]+) where ([\d.]+) is recorded \(σ = ([\d.]+),",
        lambda: (round(2 * get_epsilon_against_a_site()) / 2, 8.0, get_noise_of_sites()),
    ),
    Quote(
        PRIVATE,
        r"noise of ([\d.]+) thresholds per parameter; in the mean of three sites over 600 parameters it is (\d+) times",
        lambda: (get_noise_of_sites(), get_noise_of_sites() * math.sqrt(600) / 3),
    ),
]
