"""Secure aggregation without a network: exact sums, sites lost at any step, shares, masks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_parties import add_up, draw_reports, make_sites, name_sites, run_round

from fedcm.errors import UserError
from fedcm.federation.secure.masks import add_mask
from fedcm.federation.secure.messages import compute_threshold
from fedcm.federation.secure.shamir import PRIME, combine_shares, find_secret, split_secret

STEPS = ("advertise", "share", "mask", "confirm", "unmask")
SECRETS = st.binary(min_size=32, max_size=32)


@given(secret=SECRETS, holders=st.integers(1, 12), data=st.data())
def test_any_threshold_of_shares_give_the_secret(secret: bytes, holders: int, data: st.DataObject) -> None:
    threshold = data.draw(st.integers(1, holders))
    shares = split_secret(secret, range(1, holders + 1), threshold)
    chosen = data.draw(st.permutations(sorted(shares)))[:threshold]
    assert combine_shares({holder: shares[holder] for holder in chosen}, threshold) == secret
    with pytest.raises(ValueError, match="shares are needed"):
        combine_shares({holder: shares[holder] for holder in chosen[1:]}, threshold)


@pytest.mark.parametrize(("holders", "threshold", "false"), [(5, 3, 2), (30, 16, 3), (30, 21, 1)])
def test_the_secret_is_found_among_false_shares(holders: int, threshold: int, false: int) -> None:
    """With 3 false shares of 30, 9 % of the choices of 16 have none of them, and 200 are tried."""
    secret = b"\5" * 32
    shares = split_secret(secret, range(1, holders + 1), threshold)
    shares |= {holder: bytes(33) for holder in range(1, false + 1)}
    assert find_secret(shares, threshold, lambda found: found == secret) == secret
    with pytest.raises(ValueError, match="no choice of shares gives the secret"):
        find_secret(shares, threshold, lambda found: False)
    with pytest.raises(ValueError, match="shares are needed"):
        find_secret({1: shares[1]}, threshold, lambda found: True)


@given(secret=SECRETS, other=SECRETS, threshold=st.integers(2, 6))
def test_fewer_shares_fit_every_secret(secret: bytes, other: bytes, threshold: int) -> None:
    """One share less than the threshold and any other secret lie on one polynomial, so they say nothing."""
    shares = split_secret(secret, range(1, threshold + 1), threshold)
    known = {0: other} | {holder: shares[holder] for holder in range(1, threshold)}
    known = {holder: int.from_bytes(share, "big") for holder, share in known.items()}
    point = threshold + 1
    value = 0
    for x, y in known.items():  # the polynomial of degree threshold − 1 through the known points, at another point
        factor = 1
        for z in known:
            factor = factor * ((point - z) * pow(x - z, -1, PRIME) if z != x else 1) % PRIME
        value = (value + y * factor) % PRIME
    fitting = {x: known[x].to_bytes(33, "big") for x in known if x} | {point: value.to_bytes(33, "big")}
    assert combine_shares(fitting, threshold) == other


def test_shares_are_fresh_and_the_field_is_prime() -> None:
    assert split_secret(bytes(32), [1, 2], 2) != split_secret(bytes(32), [1, 2], 2)
    odd, twos = PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in range(2, 60):  # Miller-Rabin
        powers = [pow(base, odd << k, PRIME) for k in range(twos)]
        assert powers[0] == 1 or PRIME - 1 in powers


@pytest.mark.parametrize("length", [0, 1, 7, 2**17, 2**17 + 3])
def test_a_mask_is_the_keystream_of_chacha20_and_cancels(length: int) -> None:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    vector = np.zeros(length, dtype=np.uint64)
    add_mask(vector, b"\5" * 32, 1)
    whole = Cipher(ChaCha20(b"\5" * 32, bytes(16)), mode=None).encryptor().update(bytes(8 * length))
    assert vector.astype("<u8").tobytes() == whole
    add_mask(vector, b"\5" * 32, -1)
    assert not vector.any()


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_the_sum_is_exact_modulo_2_64(count: int) -> None:
    names = name_sites(count)
    reports = draw_reports(names, 50)
    total, _ = run_round(make_sites(names), reports)
    assert np.array_equal(total, add_up(reports, names))


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_sites_may_be_lost_at_any_step(data: st.DataObject) -> None:
    """The sum is over the sites whose masked reports arrived, or the round fails if a step has too few sites."""
    count = data.draw(st.integers(2, 6), label="sites")
    least = data.draw(st.integers(2, count), label="least")
    names = name_sites(count)
    when = {name: data.draw(st.sampled_from([*STEPS, "never"]), label=name) for name in names}
    lost = {step: [name for name in names if when[name] == step] for step in STEPS}
    reports = draw_reports(names, 5, count)
    left = {step: [name for name in names if when[name] not in STEPS[: STEPS.index(step) + 1]] for step in STEPS}
    threshold = compute_threshold(least, len(left["advertise"]))
    if min(map(len, left.values())) < threshold:
        with pytest.raises((UserError, StopIteration)):
            run_round(make_sites(names, least), reports, least, lost)
    else:
        total, server = run_round(make_sites(names, least), reports, least, lost)
        assert sorted(server.survivors) == left["mask"]
        assert np.array_equal(total, add_up(reports, left["mask"]))


def test_negative_sums_come_back_as_int64() -> None:
    reports = {
        name: np.array([value], dtype=np.int64).view(np.uint64)
        for name, value in zip("abc", (-5, 3, -(2**60)), strict=True)
    }
    total, _ = run_round(make_sites(list("abc")), reports)
    assert total.view(np.int64).tolist() == [-2 - 2**60]


@pytest.mark.parametrize(
    ("least", "sites", "threshold"), [(2, 2, 2), (2, 3, 2), (3, 3, 3), (2, 4, 3), (7, 10, 7), (2, 30, 16)]
)
def test_the_threshold_is_a_majority_and_at_least_the_setting(least: int, sites: int, threshold: int) -> None:
    assert compute_threshold(least, sites) == threshold


def compute_chi_square(data: bytes) -> float:
    counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
    return float(((counts - len(data) / 256) ** 2).sum() / (len(data) / 256))


def test_a_masked_report_alone_looks_uniform_and_never_repeats() -> None:
    """The bytes' chi-square has 255 degrees of freedom: below 380 but for one in 10⁶ uniform vectors."""
    names, length = name_sites(3), 20_000
    reports = {name: np.zeros(length, dtype=np.uint64) for name in names}
    seen: list[bytes] = []

    def look(step: str, site: str, answer: object) -> object:
        if step == "mask":
            assert isinstance(answer, np.ndarray)
            seen.append(answer.tobytes())
        return answer

    for _ in range(2):
        total, _ = run_round(make_sites(names), reports, change=look)
        assert not total.any()
    assert compute_chi_square(reports["s00"].tobytes()) > 10**6  # the test sees what is not uniform
    assert all(compute_chi_square(data) < 380 for data in seen)
    pairs = [
        np.frombuffer(one, np.uint64) - np.frombuffer(two, np.uint64) for one in seen for two in seen if one != two
    ]
    assert len(pairs) == 30
    assert all(compute_chi_square(pair.tobytes()) < 400 for pair in pairs)  # nor do two of them share a mask
