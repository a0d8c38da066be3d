"""A hostile site whose replies are well formed: it must not decide the model, and the record must name it."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hostile_sites import BY_EXAMPLES, DEFENCES, HOSTILE, HostileChannel, run_attacked
from sites_here import SITES, InProcessChannel, make_experiment, make_federated, write_kits
from test_server import metrics, run_all

from fedcm.errors import UserError
from fedcm.federation.server.alarms import SiteAlarm
from fedcm.federation.server.reports.screening import (
    find_opposed_reports,
    measure_cosines,
    measure_influence,
    shorten_large_reports,
)


class One(NamedTuple):
    vector: torch.Tensor


class ModelAndControl(NamedTuple):
    movement: torch.Tensor
    control: torch.Tensor


def accuracy(folder: Path, algorithm: str, attack: str, settings: dict[str, Any], rounds: int = 11) -> float:
    folder.mkdir()
    return run_attacked(folder, algorithm, attack, settings, rounds)[-1]["test_accuracy"]


@pytest.mark.parametrize("algorithm", ["fedavg", "fedcm"])
@pytest.mark.parametrize("attack", ["sign flipped", "sign flipped, three-fold"])
def test_a_median_survives_a_flipped_sign(algorithm: str, attack: str, tmp_path: Path) -> None:
    honest = accuracy(tmp_path / "honest", algorithm, "none", {})
    unprotected = accuracy(tmp_path / "unprotected", algorithm, attack, DEFENCES["no bound"])
    protected = accuracy(tmp_path / "protected", algorithm, attack, DEFENCES["median"])
    assert protected > unprotected + 0.05
    assert protected > honest - 0.15


def test_the_default_bound_survives_a_huge_report(tmp_path: Path) -> None:
    lines: list[str] = []
    (tmp_path / "a").mkdir()
    found = run_attacked(tmp_path / "a", "fedavg", "constant 1e3 from round 10", {}, 12, lines)
    assert accuracy(tmp_path / "b", "fedavg", "constant 1e3 from round 10", DEFENCES["no bound"], 12) < 0.3
    assert found[-1]["test_accuracy"] > 0.8
    assert [line.get("shortened", []) for line in found[9:]] == [[], [HOSTILE], [HOSTILE]]
    assert any(
        line.startswith("round 10: ALARM: look at b: the norm of its report is")
        and "norm_ratio = 5" in line
        and line.endswith("it counts at the median")
        for line in lines
    )


@pytest.mark.parametrize("algorithm", ["fedavg", "fedcm", "scaffold"])
@pytest.mark.parametrize("attack", ["sign flipped", "sign flipped, three-fold"])
def test_the_defaults_survive_a_flipped_sign_of_similar_sites(algorithm: str, attack: str, tmp_path: Path) -> None:
    lines: list[str] = []
    (tmp_path / "a").mkdir()
    found = run_attacked(tmp_path / "a", algorithm, attack, {}, 8, lines)
    assert found[-1]["test_accuracy"] > accuracy(tmp_path / "b", algorithm, "none", {}, 8) - 0.1
    assert any(HOSTILE in line["missed"] + line.get("shortened", []) for line in found)
    alarms = [line for line in lines if isinstance(line, SiteAlarm)]
    assert {line.site for line in alarms} == {HOSTILE}
    assert any("min_cosine = -0.5" in line or "norm_ratio = 5" in line for line in alarms)


def test_the_defaults_survive_overstated_examples_with_a_flipped_sign(tmp_path: Path) -> None:
    attack = "sign flipped, examples overstated to 1e9"
    assert accuracy(tmp_path / "a", "fedavg", attack, BY_EXAMPLES["defaults"], 8) > 0.7
    assert accuracy(tmp_path / "b", "fedavg", attack, BY_EXAMPLES["no bound"], 8) < 0.3


def test_a_flipped_report_of_fedcm_is_far_from_the_servers_guess(tmp_path: Path) -> None:
    """After ten honest rounds the server expects Δ; a flipped report has an ordinary norm and is far from it."""
    lines: list[str] = []
    settings = {"federation": {"min_cosine": -1.0}}
    found = run_attacked(tmp_path, "fedcm", "sign flipped from round 10", settings, 12, lines)
    assert [line.get("shortened", []) for line in found] == [*[[]] * 10, [HOSTILE], [HOSTILE]]
    alarm = "round 10: ALARM: look at b: the distance of its report from the expected one is"
    assert any(line.startswith(alarm) for line in lines)


def test_a_report_is_compared_with_the_guess() -> None:
    """All three have norm 1; seen from (1, 0), the third is far away."""
    guess = One(torch.tensor([1.0, 0.0]))
    angles = {0: 0.1, 1: -0.1, 2: 1.0}
    reports = {one: One(torch.tensor([math.cos(angle), math.sin(angle)])) for one, angle in angles.items()}
    assert not shorten_large_reports(reports, 5.0)
    short = shorten_large_reports(reports, 5.0, guess)
    assert list(short) == [2]
    distance, median = 2 * math.sin(0.5), 2 * math.sin(0.05)  # the chords
    assert f"{distance:.4g}" in short[2].reason
    expected = [1 + (math.cos(1) - 1) * median / distance, math.sin(1) * median / distance]
    np.testing.assert_allclose(short[2].report[0], expected, rtol=1e-6)


def test_a_report_of_several_fields_is_shortened_as_one_vector() -> None:
    small = ModelAndControl(torch.tensor([3.0, 0.0]), torch.tensor([4.0]))
    large = ModelAndControl(torch.tensor([0.0, 30.0]), torch.tensor([40.0]))
    (short,) = shorten_large_reports({0: small, 1: large, 2: small}, 5.0).values()
    assert isinstance(short.report, ModelAndControl), "it keeps its type"
    torch.testing.assert_close(short.report, ModelAndControl(torch.tensor([0.0, 3.0]), torch.tensor([4.0])))


def test_a_site_that_was_away_counts_at_once(tmp_path: Path) -> None:
    """While b is away, a and c come to agree; its report is then far from Δ, and shortened, but it counts."""
    chosen = make_experiment(
        "fedcm",
        rounds=60,
        split={"kind": "dirichlet", "clients": 3, "concentration": 0.1},
        client={"steps": 20, "batch_size": 50, "lr": 0.3},
        evaluation={"every": 60},
        federation={"quorum": 0.6, "wait": 0, "drop_after": 2, "retry_after": 1},
    )

    def leave(site: str, fields: dict[str, Any], arrays: Any) -> Any:
        return None if site == "b" and 1 <= fields["round"] < 45 else (fields, arrays)

    run = run_all(InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen), leave), chosen)
    found = metrics(run)
    assert all("b" in line["missed"] or line["asked"] == 2 for line in found[1:45])
    late = [line for line in found[45:] if line["asked"] == 3]
    assert len(late) > 10
    assert [line["missed"] for line in late] == [[]] * len(late)
    assert any(line.get("shortened") == ["b"] for line in late), "otherwise this shows nothing"


def test_a_report_that_points_against_the_others_does_not_count() -> None:
    rows = [[1.0, 0.0], [1.0, 0.1], [1.0, -0.1], [-0.4, 1.0], [-1.0, 0.2]]
    reports = {one: (torch.tensor(row),) for one, row in enumerate(rows)}
    cosines = measure_cosines(reports)
    assert list(find_opposed_reports(cosines, -0.5)) == [4]
    assert list(find_opposed_reports(cosines, 0.0)) == [3, 4]
    assert not find_opposed_reports(cosines, -1.0)


def test_an_overstated_number_of_examples_is_bounded_by_the_experiment(tmp_path: Path) -> None:
    attack = "sign flipped, examples overstated to 1e9"
    assert accuracy(tmp_path / "a", "fedavg", attack, BY_EXAMPLES["no bound"]) < 0.3
    settings = {**BY_EXAMPLES["max_examples"], "federation": {"max_examples": 600, "min_cosine": -1.0}}
    bounded = accuracy(tmp_path / "b", "fedavg", attack, settings)
    equal = accuracy(tmp_path / "c", "fedavg", "sign flipped", DEFENCES["no bound"])
    assert bounded > equal - 0.1, "it counts no more than the other sites, which have 479 examples each"


def test_a_later_larger_description_does_not_raise_a_weight(tmp_path: Path) -> None:
    """The site claims more examples in round 1; it must describe itself again, and counts as before."""
    client = {"steps": 3, "batch_size": 20, "lr": 0.1}
    chosen = make_experiment("fedavg", rounds=3, client=client, server={"weights": "examples"})

    class Growing(HostileChannel):
        def _answer(self, task: str, fields: dict[str, Any], arrays: Any, site: str) -> Any:
            self.overstated = any(asked == "train" for asked, _ in self.asked)
            answer = super()._answer(task, fields, arrays, site)
            if task == "train" and site == HOSTILE and fields["round"] == 0:
                return {**answer[0], "examples": 10**9, "loss": math.nan}, answer[1]
            return answer

    lines: list[str] = []
    channel = Growing(write_kits(chosen, tmp_path), make_federated(chosen))
    run = run_all(channel, chosen, lines)
    assert ("describe", [HOSTILE]) in channel.asked
    assert [line["missed"] for line in metrics(run)] == [[HOSTILE], [], []]
    assert "b" in [line.site for line in lines if isinstance(line, SiteAlarm)]
    assert any("ALARM: look at b: it described" in line and "1000000000 now" in line for line in lines)
    shares = [line["influence"][HOSTILE]["share"] for line in metrics(run)[1:]]
    assert all(share < 0.9 for share in shares)


def test_the_record_has_the_influence_of_each_site_and_the_log_an_alarm(tmp_path: Path) -> None:
    lines: list[str] = []
    for line in run_attacked(tmp_path, "fedcm", "sign flipped", {"federation": {"norm_ratio": 1e6}}, 3, lines):
        assert sorted(line["influence"]) == SITES
        assert sum(own["share"] for own in line["influence"].values()) == pytest.approx(1, abs=1e-5)
    assert any(line.startswith("round 2: ALARM: look at b: ") for line in lines)
    assert {line.site for line in lines if isinstance(line, SiteAlarm)} == {"b"}
    assert not any("ALARM: look at a" in line or "ALARM: look at c" in line for line in lines)


def test_a_site_that_points_against_the_others_raises_an_alarm_also_if_it_counts(tmp_path: Path) -> None:
    lines: list[str] = []
    found = run_attacked(tmp_path, "fedavg", "sign flipped", {"federation": {"min_cosine": -1.0}}, 2, lines)
    assert [line["missed"] for line in found] == [[], []]
    alarms = [line for line in lines if isinstance(line, SiteAlarm)]
    start = "ALARM: look at b: its report points against those of the other sites (cosine -0.9"
    assert [line.startswith(f"round {round}: {start}") for round, line in enumerate(alarms)] == [True, True]


@pytest.mark.parametrize("attack", ["sign flipped", "sign flipped, three-fold"])
def test_a_flipped_report_of_fedcm_points_against_the_others_although_it_is_far_away(
    attack: str, tmp_path: Path
) -> None:
    """Shortened, it would be close to Δ and point where Δ points: its own direction decides."""
    found = run_attacked(tmp_path, "fedcm", f"{attack} from round 10", {}, 12)
    assert [line["missed"] for line in found[9:]] == [[], [HOSTILE], [HOSTILE]]
    assert all(line["influence"][HOSTILE]["cosine"] < -0.9 for line in found[10:])


@pytest.mark.parametrize(("settings", "shortened"), [({}, True), (DEFENCES["median"], False)], ids=["plain", "median"])
def test_long_reports_are_shortened_by_default_only_for_the_plain_mean(
    settings: dict[str, Any], shortened: bool, tmp_path: Path
) -> None:
    found = run_attacked(tmp_path, "fedavg", "constant 1e3 from round 10", settings, 11)
    assert (found[-1].get("shortened") == [HOSTILE]) == shortened
    assert found[-1]["missed"] == []


def test_a_shortened_report_with_a_large_weight_raises_an_alarm(tmp_path: Path) -> None:
    """It is no longer than the others, but with 1e9 examples it is the mean."""
    lines: list[str] = []
    found = run_attacked(
        tmp_path, "fedavg", "constant 1e3, examples overstated to 1e9", BY_EXAMPLES["defaults"], 2, lines
    )
    assert [line["shortened"] for line in found] == [[HOSTILE], [HOSTILE]]
    assert all(line["influence"][HOSTILE]["share"] > 0.99 for line in found)
    assert any(line.startswith("round 1: ALARM: look at b: it moves the mean more than all") for line in lines)


@pytest.mark.parametrize("setting", [{"norm_ratio": 5.0}, {"min_cosine": 0.0}])
def test_secure_aggregation_excludes_comparisons(setting: dict[str, float]) -> None:
    (name,) = setting
    with pytest.raises(UserError, match=f"federation.{name} compares single reports, which secure aggregation hides"):
        make_federated(make_experiment(federation={"secure_aggregation": True, **setting}))


def test_honest_sites_cause_no_alarm(tmp_path: Path) -> None:
    lines: list[str] = []
    run_attacked(tmp_path, "fedavg", "none", {}, 5, lines)
    assert not [line for line in lines if "ALARM" in line or "does not count" in line]


def test_a_bound_by_the_median_needs_three_reports() -> None:
    small, large = One(torch.ones(3)), One(100 * torch.ones(3))
    assert not shorten_large_reports({0: small, 1: large}, 5.0)
    assert list(shorten_large_reports({0: small, 1: large, 2: small}, 5.0)) == [1]
    assert list(shorten_large_reports({0: small, 1: large, 2: small, 3: large}, 5.0)) == [1, 3]
    assert not shorten_large_reports({0: small, 1: large, 2: small}, 0.0)


def test_influence_is_the_distance_that_a_site_moves_the_mean() -> None:
    rows = np.random.default_rng(0).normal(size=(4, 5))
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    mean = weights @ rows / weights.sum()
    apart = []
    for left_out in range(4):
        others = np.delete(np.arange(4), left_out)
        apart.append(np.linalg.norm(mean - weights[others] @ rows[others] / weights[others].sum()))
    reports = {client: (torch.from_numpy(row),) for client, row in enumerate(rows)}
    found = measure_influence(reports, dict(enumerate(weights.tolist())), measure_cosines(reports))
    np.testing.assert_allclose([found[client].share for client in range(4)], np.array(apart) / sum(apart))
    middle = np.median(rows, axis=0)
    cosines = rows @ middle / np.linalg.norm(rows, axis=1) / np.linalg.norm(middle)
    np.testing.assert_allclose([found[client].cosine for client in range(4)], cosines)


@pytest.mark.parametrize("mean", ["median", {"kind": "krum", "hostile": 0}, {"kind": "clipped", "bound": 0.5}])
def test_a_robust_mean_has_the_bits_of_the_simulation(mean: Any, tmp_path: Path) -> None:
    from test_server import parameters, simulate

    chosen = make_experiment("scaffold", rounds=3, server={"mean": mean})
    run = run_all(InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen)), chosen)
    assert parameters(run) == simulate(chosen, tmp_path)


def test_a_federation_rejects_simulated_attacks() -> None:
    with pytest.raises(UserError, match=r"\[attack\] must be left out; simulate hostile clients"):
        make_federated(make_experiment(attack={"kind": "sign-flip"}))
