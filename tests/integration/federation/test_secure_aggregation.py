"""Secure aggregation between real processes over mutual TLS: the simulation's bits, also when processes are killed."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fleet import Fleet, bits, lines
from scenes import run_to_end
from test_killed import ROUNDS, SITES, in_the_middle_of_a_round, long_rounds

pytestmark = pytest.mark.federation

SECURE = {"classes": 10, "secure_aggregation": True}
Dealt = Callable[..., list[str]]


@pytest.fixture
def three(fleet: Fleet, dealt: Dealt, tmp_path: Path) -> Fleet:
    dealt(long_rounds(tmp_path / "dealt.toml", "fedcm"), fleet, *SITES)
    for site in SITES:
        file = fleet.site(site) / "site.toml"
        text = file.read_text()
        assert text.count("[limits]\n") == 1
        file.write_text(text.replace("[limits]\n", "[limits]\nsecure_sites = 2\n"))  # no site sends a plain report
    return fleet.start(*SITES)


def simulate(folder: Path, algorithm: str) -> str:
    return bits(run_to_end(long_rounds(folder / "simulated.toml", algorithm), folder, f"simulated-{algorithm}"))


def test_a_secure_run_ends_with_the_bits_of_the_simulation_even_if_training_is_killed(
    three: Fleet, tmp_path: Path
) -> None:
    for algorithm in ("fedcm", "scaffold"):
        experiment = long_rounds(tmp_path / "secure.toml", algorithm, federation=SECURE)
        run = three.follow("run", experiment, "--name", algorithm)
        in_the_middle_of_a_round(three, algorithm, 1, "b")
        if algorithm == "scaffold":
            three.running["b"].part("training").kill()
        assert run.wait() == 0, run.output + three.collect_output()
        assert bits(three.folder / "runs" / algorithm) == simulate(tmp_path, algorithm)
        rounds = lines(three.at_server(algorithm))
        assert [line["clients"] for line in rounds] == [[0, 1, 2]] * ROUNDS
        assert all(line["bytes_up"] > 3 * 8 * 1000 for line in rounds)
    refused = three.run(long_rounds(tmp_path / "open.toml", "fedcm"), "open")
    assert refused.code != 0
    assert "takes part only with secure aggregation over at least 2 sites" in refused.err + refused.out


def test_a_secure_run_finishes_without_a_killed_site(three: Fleet, tmp_path: Path) -> None:
    links = SECURE | {"threshold": 2, "quorum": 0.6, "wait": 2}
    run = three.follow("run", long_rounds(tmp_path / "secure.toml", "fedcm", federation=links), "--name", "r")
    in_the_middle_of_a_round(three, "r", 1, "b")
    three.running["b"].kill()
    assert run.wait() == 0, run.output + three.collect_output()
    rounds = lines(three.folder / "runs" / "r")
    assert [line["clients"] for line in rounds] == [[0, 1, 2]] + [[0, 2]] * (ROUNDS - 1)
    assert [line["missed"] for line in rounds] == [[]] + [["b"]] * (ROUNDS - 1)
