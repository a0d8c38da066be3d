"""ε against published values, closed forms and the other accountant; the noise that a budget needs."""

import math

import pytest
from scipy import integrate, stats

import fedcm
from fedcm.core.participation import Everyone, FixedSize, Independent
from fedcm.privacy.accountant import Accountant, Sampling, calibrate_noise, count_expected_cohort

EVERYONE = Sampling.of(Everyone())


def poisson(probability: float) -> Sampling:
    return Sampling.of(Independent(probability))


def compute_delta_of_gaussian(noise: float, epsilon: float) -> float:
    """δ of one Gaussian mechanism (Balle & Wang, 2018, theorem 8)."""
    normal = stats.norm.cdf
    left = 1 / (2 * noise) - epsilon * noise
    return float(normal(left) - math.exp(epsilon) * normal(left - 1 / noise))


# tensorflow/privacy, compute_dp_sgd_privacy_test.py: examples, batch size, noise, epochs, δ and ε by RDP
@pytest.mark.parametrize(
    ("examples", "batch", "noise", "epochs", "delta", "published"),
    [(60000, 150, 1.3, 15, 1e-5, 0.7242234026109595), (100000, 100, 1.0, 30, 1e-7, 1.4154988495444845)],
)
def test_published_values_of_dp_sgd(
    examples: int, batch: int, noise: float, epochs: int, delta: float, published: float
) -> None:
    accountant, rounds = Accountant(poisson(batch / examples), noise, delta), epochs * examples // batch
    assert accountant.compute_rdp_epsilon(rounds) == pytest.approx(published, rel=1e-2)
    assert 0.8 * published < accountant.compute_epsilon(rounds) < published


def test_published_value_of_a_subsampled_gaussian() -> None:
    """google/differential-privacy, pld_privacy_accountant_test.py: q = 0.2, noise 0.5, three rounds."""
    assert Accountant(poisson(0.2), 0.5, 0.15594).compute_epsilon(3) == pytest.approx(1, abs=2e-3)


def test_rounds_of_everyone_are_one_gaussian_with_less_noise() -> None:
    """The same file: three rounds with noise √3 are one with noise 1, whose δ at ε = 1 is 0.126936."""
    assert Accountant(EVERYONE, math.sqrt(3), 0.126936).compute_epsilon(3) == pytest.approx(1, abs=1e-4)
    epsilon = Accountant(EVERYONE, 4.0, 1e-5).compute_epsilon(16)
    assert compute_delta_of_gaussian(1.0, epsilon) == pytest.approx(1e-5, rel=1e-6)


def test_one_sampled_round_has_the_delta_of_its_mixture() -> None:
    """δ(ε) by numerical integration of the mixture (1 − q)·N(0, σ²) + q·N(1, σ²), the worse of both directions."""
    noise, probability, delta = 0.8, 0.3, 1e-3

    def alone(x: float) -> float:
        return float(stats.norm.pdf(x, 0, noise))

    def mixed(x: float) -> float:
        return (1 - probability) * alone(x) + probability * float(stats.norm.pdf(x, 1, noise))

    epsilon = Accountant(poisson(probability), noise, delta).compute_epsilon(1)
    forward = integrate.quad(lambda x: max(mixed(x) - math.exp(epsilon) * alone(x), 0), -8, 10, limit=400)[0]
    backward = integrate.quad(lambda x: max(alone(x) - math.exp(epsilon) * mixed(x), 0), -8, 10, limit=400)[0]
    assert max(forward, backward) == pytest.approx(delta, rel=1e-2)


@pytest.mark.parametrize("sampling", [poisson(0.05), EVERYONE, Sampling.of(FixedSize(10))], ids=str)
def test_renyi_divergences_give_a_little_more(sampling: Sampling) -> None:
    accountant = Accountant(sampling, 3.0, 1e-5)
    pld, rdp = accountant.compute_epsilon(50), accountant.compute_rdp_epsilon(50)
    assert pld <= rdp <= 1.25 * pld


def test_orders_that_cannot_be_computed_give_no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    assert Accountant(poisson(0.1), 0.936, 1e-5).compute_rdp_epsilon(100) > 0
    assert not caplog.records


def test_a_discrete_gaussian_has_the_renyi_divergences_of_a_continuous_one() -> None:
    """Σ_x P(x − μ)^α / P(x)^(α−1) = exp(α(α−1)μ² / 2σ²) for whole α and μ, so sampled rounds have the same RDP too."""
    sigma, reach = 3, range(-200, 201)
    norm = math.fsum(math.exp(-x * x / (2 * sigma**2)) for x in reach)

    def log_probability(x: int) -> float:
        return -x * x / (2 * sigma**2) - math.log(norm)

    for order in (2, 3, 8):
        for shift in (1, 4):
            terms = (order * log_probability(x - shift) + (1 - order) * log_probability(x) for x in reach)
            moment = math.log(math.fsum(map(math.exp, terms)))
            assert moment == pytest.approx(order * (order - 1) * shift**2 / (2 * sigma**2), rel=1e-9)


def test_the_pld_of_a_fine_discrete_gaussian_is_the_continuous_one() -> None:
    """δ(ε) of the noise as it is drawn, with the sensitivity of 64 steps instead of 2²⁰, by summation."""
    steps, epsilon = 64, 1.0
    sigma = 2 * steps
    reach = range(-12 * sigma, 12 * sigma + steps)
    weights = {x: math.exp(-x * x / (2 * sigma**2)) for x in range(reach.start - steps, reach.stop)}
    norm = math.fsum(weights.values())
    found = math.fsum(max(weights[x - steps] - math.exp(epsilon) * weights[x], 0) / norm for x in reach)
    assert found == pytest.approx(compute_delta_of_gaussian(2.0, epsilon), rel=1e-3)


def test_fixed_cohorts_and_everyone_get_no_amplification() -> None:
    fixed, everyone, drawn = (Sampling.of(kind) for kind in (FixedSize(5), Everyone(), Independent(0.05)))
    one, other = Accountant(fixed, 4.0, 1e-5), Accountant(everyone, 2.0, 1e-5)
    assert one.compute_epsilon(20) == other.compute_epsilon(20)  # replacing a client changes the sum twice as much
    assert fixed.adjacency == "replace one client"
    assert drawn.adjacency == everyone.adjacency == "add or remove one client"
    assert Accountant(drawn, 2.0, 1e-5).compute_epsilon(20) < 0.3 * other.compute_epsilon(20)


def test_an_unknown_participation_is_an_error() -> None:
    with pytest.raises(fedcm.UserError, match="privacy needs participation"):
        Sampling.of(object())  # pyright: ignore[reportArgumentType]


def test_the_expected_cohort() -> None:
    kinds = (Independent(0.025), FixedSize(7), FixedSize(500), Everyone())
    assert [count_expected_cohort(kind, 100) for kind in kinds] == [2.5, 7, 100, 100]


@pytest.mark.parametrize(
    ("sampling", "epsilon", "rounds"),
    [(EVERYONE, 8.0, 100), (EVERYONE, 0.1, 5), (poisson(0.1), 2.0, 20), (Sampling.of(FixedSize(3)), 1.0, 3)],
    ids=str,
)
def test_calibrated_noise_is_just_enough(sampling: Sampling, epsilon: float, rounds: int) -> None:
    noise = calibrate_noise(sampling, epsilon, 1e-5, rounds)
    assert Accountant(sampling, noise, 1e-5).compute_epsilon(rounds) <= epsilon
    assert Accountant(sampling, noise / 1.002, 1e-5).compute_epsilon(rounds) > epsilon


def test_a_budget_that_no_noise_meets_is_an_error() -> None:
    with pytest.raises(fedcm.UserError, match="need more noise than a thousand times a report"):
        calibrate_noise(Sampling.of(FixedSize(3)), 0.1, 1e-6, 500)


def test_the_budget_pays_for_the_rounds_up_to_it() -> None:
    accountant = Accountant(poisson(0.1), 1.0, 1e-5)
    rounds = accountant.count_rounds(3.0, 1000)
    assert accountant.compute_epsilon(rounds) <= 3.0 < accountant.compute_epsilon(rounds + 1)
    assert accountant.count_rounds(3.0, rounds - 1) == rounds - 1
    assert accountant.count_rounds(0.1, 1000) == 0


def test_the_bound_of_a_round_is_never_below_its_epsilon_nor_beyond_the_horizon() -> None:
    accountant = Accountant(poisson(0.1), 2.0, 1e-5)
    bounds = [accountant.bound_epsilon(rounds, 37) for rounds in range(1, 41)]
    exact = {rounds: accountant.compute_epsilon(rounds) for rounds in (1, 7, 8, 15, 17, 37)}
    assert bounds == sorted(bounds)
    assert bounds[36] == exact[37] == max(bounds[:37])
    assert all(exact[rounds] <= bounds[rounds - 1] < 1.07 * exact[rounds] for rounds in exact)
    assert [bounds[rounds - 1] for rounds in (7, 8, 15)] == [exact[rounds] for rounds in (7, 8, 15)]
    assert accountant.compute_epsilon(0) == 0


def test_hardly_any_noise_has_an_upper_bound_without_amplification() -> None:
    sampled, everyone = (Accountant(Sampling.of(kind), 1e-7, 1e-5) for kind in (Independent(0.1), Everyone()))
    assert sampled.compute_epsilon(10) == everyone.compute_epsilon(10) > 1e12
