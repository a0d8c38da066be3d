"""The papers' identities as functions: each runs a federation and raises AssertionError if its identity does not hold.

Tests call them on the right algorithms, `test_mutants.py` on wrong ones.

Two vectors agree when no entry differs by more than 1e-12 (float64) or 400 rounding units, 5e-5 (float32), of the
larger vector's greatest entry. The reason for hundreds of units: a client's movement is a difference of two points of
size ~5 after tens of steps, and is divided by η_l·K_i ≥ 0.01, so that some hundred are lost by honest arithmetic.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from federation import Federation, PastRound, Quadratic, find_optimum
from torch import Tensor

from fedcm.algorithms import FedAdam, FedCM, FedDyn, Scaffold
from fedcm.core.algorithm import Vector

LIMIT = {torch.float64: 1e-12, torch.float32: 400 * torch.finfo(torch.float32).eps}


def assert_close(actual: Vector, expected: Vector, what: str) -> None:
    assert actual.dtype == expected.dtype, f"{what}: {actual.dtype} against {expected.dtype}"
    scale = max(float(actual.abs().max()), float(expected.abs().max()))
    error = float((actual - expected).abs().max())
    limit = LIMIT[actual.dtype] * scale
    assert error <= limit, f"{what}: differs by {error:.3g} at a scale of {scale:.3g}, limit {limit:.3g}"


def mean(vectors: Sequence[Vector]) -> Vector:
    return torch.stack(list(vectors)).mean(0)


def compute_mean_gradient(past: PastRound) -> Vector:
    """mean_i (mean_k g_ik): with equal K_i the mean of all minibatch gradients of the round."""
    return mean([mean(local.gradients) for local in past.locals.values()])


def compute_mean_moved(past: PastRound) -> Vector:
    return mean([past.before.params - local.end for local in past.locals.values()])


# FedAvg


def check_fedavg_step(federation: Federation) -> None:
    """x ← x − s·η_l·mean_i Σ_k g_ik; with s = 1 it is the mean of the clients' models."""
    for past in federation.run():
        if not past.locals:
            continue
        pull = past.round.server_lr * past.round.client_lr
        summed = mean([torch.stack(local.gradients).sum(0) for local in past.locals.values()])
        assert_close(past.after.params, past.before.params - pull * summed, f"round {past.round.index}")
        if past.round.server_lr == 1:
            assert_close(past.after.params, mean([local.end for local in past.locals.values()]), "mean of models")


# FedCM


def check_lemma_1(federation: Federation) -> None:
    """Δ_{t+1} = α·mean_i(mean_k g_ik) + (1 − α)·Δ_t, from Δ_0 = 0."""
    alpha = _fedcm(federation).alpha
    history = federation.run()
    assert not history[0].before.momentum.any(), "Δ_0 must be 0"
    for past in history:
        if past.locals:
            expected = alpha * compute_mean_gradient(past) + (1 - alpha) * past.before.momentum
            assert_close(past.after.momentum, expected, f"Δ after round {past.round.index}")


def check_fedcm_server_step(federation: Federation) -> None:
    """x ← x − s·η_l·K·Δ_{t+1}, K the cohort's mean; at equal K_i and s = 1 the mean of the clients' models."""
    for past in federation.run():
        if not past.locals:
            continue
        taken = [len(local.gradients) for local in past.locals.values()]
        step = past.round.server_lr * past.round.client_lr * sum(taken) / len(taken)
        assert_close(past.after.params, past.before.params - step * past.after.momentum, f"round {past.round.index}")
        if past.round.server_lr == 1 and len(set(taken)) == 1:
            assert_close(past.after.params, mean([local.end for local in past.locals.values()]), "mean of models")


def check_z_descends(federation: Federation) -> None:
    """z_t = x_t + ((1 − α)/α)(x_t − x_{t−1}) obeys z_{t+1} = z_t − η_g·(mean minibatch gradient).

    The proof uses x_t − x_{t−1} = −η_g·Δ_t with this round's η_g: so η_g = s·η_l·K must be the same in every round
    (equal K_i, constant η_l), and no round may be empty.
    """
    alpha = _fedcm(federation).alpha
    (steps,) = set(federation.steps)
    (client_lr,) = set(federation.client_lrs)
    global_lr = federation.server_lr * client_lr * steps
    history = federation.run()
    previous = history[0].before.params
    for past in history:
        now, following = past.before.params, past.after.params
        z = now + (1 - alpha) / alpha * (now - previous)
        z_following = following + (1 - alpha) / alpha * (following - now)
        assert_close(z_following, z - global_lr * compute_mean_gradient(past), f"z after round {past.round.index}")
        previous = now


# FedAdam


def check_adam(federation: Federation) -> None:
    """Unrolled: m = (1−β1) Σ_j β1^j d, v = β2^t·τ² + (1−β2) Σ_j β2^j d², x ← x − s·m/(√v + τ); d is the mean movement.

    No bias correction, and an empty round is no round.
    """
    adam = federation.algorithm
    assert isinstance(adam, FedAdam)
    movements: list[Vector] = []
    for past in federation.run():
        if not past.locals:
            continue
        movements.insert(0, compute_mean_moved(past))
        powers = range(len(movements))
        m = (1 - adam.beta1) * torch.stack([adam.beta1**j * movements[j] for j in powers]).sum(0)
        v = (1 - adam.beta2) * torch.stack([adam.beta2**j * movements[j] ** 2 for j in powers]).sum(0)
        v = v + adam.beta2 ** len(movements) * adam.tau**2
        expected = past.before.params - past.round.server_lr * m / (v.sqrt() + adam.tau)
        assert_close(past.after.params, expected, f"round {past.round.index}")


# SCAFFOLD


def check_control_is_the_mean_of_all_controls(federation: Federation) -> None:
    """c = (1/N) Σ_i c_i over all N clients after every round; controls of new clients are 0."""
    seen: set[int] = set()
    for past in federation.run():
        seen |= past.locals.keys()
        for client, kept in past.kept_after.items():
            assert client in seen or not kept.control.any(), f"client {client} is new, so its control must be 0"
        mean_over_all = mean([kept.control for kept in past.kept_after.values()])
        assert_close(past.after.control, mean_over_all, f"c after round {past.round.index}")


def check_controls_are_client_gradients(federation: Federation) -> None:
    """Option I: c_i⁺ = ∇f_i(x). Option II telescopes: c_i⁺ = c_i − c + (x − y_i)/(K_i·η_l) = mean_k g_ik.

    Clients outside the cohort keep theirs, bit for bit.
    """
    assert isinstance(federation.algorithm, Scaffold)
    option = federation.algorithm.option
    for past in federation.run():
        for client, kept in past.kept_after.items():
            what = f"client {client} after round {past.round.index}"
            if client not in past.locals:
                assert torch.equal(kept.control, past.kept_before[client].control), f"{what} must be as before"
            elif option == "II":
                assert_close(kept.control, mean(past.locals[client].gradients), what)
            else:
                at = past.before.params
                own = federation.clients[client].gradient(at) + federation.weight_decay * at
                assert_close(kept.control, own, what)


def check_scaffold_step(federation: Federation) -> None:
    """x ← x − s·η_l·mean_i Σ_k (g_ik − c_i + c), with the controls before the round."""
    for past in federation.run():
        if not past.locals:
            continue
        sums: list[Vector] = []
        for client, local in past.locals.items():
            correction = past.before.control - past.kept_before[client].control
            sums.append(torch.stack(local.gradients).sum(0) + len(local.gradients) * correction)
        expected = past.before.params - past.round.server_lr * past.round.client_lr * mean(sums)
        assert_close(past.after.params, expected, f"round {past.round.index}")


def check_options_agree(federation: Federation) -> None:
    """At K = 1 and full batches, c_i − c + (x − y_i)/η_l is ∇f_i(x) itself, so options I and II are one algorithm."""
    assert set(federation.steps) == {1}
    assert federation.noise == 0
    one, two = (replace(federation, algorithm=Scaffold(option)).run() for option in ("I", "II"))
    for a, b in zip(one, two, strict=True):
        assert_close(a.after.params, b.after.params, f"x after round {a.round.index}")
        assert_close(a.after.control, b.after.control, f"c after round {a.round.index}")


# FedDyn


def check_correction_is_the_mean_of_all_corrections(federation: Federation) -> None:
    """h = (1/N) Σ_i h_i over all N clients after every round, and both start at 0."""
    history = federation.run()
    assert not history[0].before.correction.any(), "h must start at 0"
    assert not any(kept.correction.any() for kept in history[0].kept_before.values()), "h_i must start at 0"
    for past in history:
        mean_over_all = mean([kept.correction for kept in past.kept_after.values()])
        assert_close(past.after.correction, mean_over_all, f"h after round {past.round.index}")


def check_feddyn_step(federation: Federation) -> None:
    """h_i ← h_i − a(y_i − x) for the cohort, h ← h − (a/N) Σ_{i∈S} (y_i − x), x ← mean(y_i) − h/a."""
    alpha = _feddyn(federation).alpha
    for past in federation.run():
        if not past.locals:
            continue
        for client, kept in past.kept_after.items():
            before = past.kept_before[client].correction
            if client in past.locals:
                before = before - alpha * (past.locals[client].end - past.before.params)
            assert_close(kept.correction, before, f"client {client} after round {past.round.index}")
        moved = torch.stack([local.end - past.before.params for local in past.locals.values()]).sum(0)
        correction = past.before.correction - alpha / past.round.population * moved
        assert_close(past.after.correction, correction, f"h after round {past.round.index}")
        expected = mean([local.end for local in past.locals.values()]) - correction / alpha
        assert_close(past.after.params, expected, f"round {past.round.index}")


def check_feddyn_local_steps(federation: Federation) -> None:
    """y ← y − η_l·(g_k − h_i + a(y − x)), replayed from the recorded gradients."""
    alpha = _feddyn(federation).alpha
    for past in federation.run():
        for client, local in past.locals.items():
            at = past.before.params
            for gradient in local.gradients:
                pull = alpha * (at - past.before.params)
                at = at - past.round.client_lr * (gradient - past.kept_before[client].correction + pull)
            assert_close(local.end, at, f"client {client} in round {past.round.index}")


def check_corrections_are_gradients_at_local_optima(federation: Federation) -> None:
    """If clients solve their local problems exactly, first-order optimality gives h_i = ∇f_i(y_i)."""
    for past in federation.run():
        for client, local in past.locals.items():
            own = federation.clients[client].gradient(local.end)
            apart = float((past.kept_after[client].correction - own).norm())
            assert apart <= 1e-9, f"client {client} after round {past.round.index}: differs by {apart:.3g}"


# Limits


def compute_final_params(federation: Federation) -> Vector:
    return federation.run()[-1].after.params


def compute_distance_from_optimum(federation: Federation) -> float:
    return float((compute_final_params(federation) - find_optimum(federation.clients)).norm())


def check_reaches_the_optimum(federation: Federation) -> None:
    """(Σ A_i) x = Σ A_i b_i to 1e-9: far below any drift, far above rounding."""
    distance = compute_distance_from_optimum(federation)
    assert distance <= 1e-9, f"{distance:.3g} from the optimum"


def compute_fedavg_limit(
    clients: Sequence[Quadratic], steps: Sequence[int], lr: float, own_steps: bool = False
) -> Vector:
    """Return the fixed point of FedAvg with full participation: Σ_i w_i (I − (I − lr·A_i)^{K_i})(x − b_i) = 0.

    w_i = 1 for FedAvg. With lr = α·η_l and w_i = 1/K_i (`own_steps`) it is FedCM's: its Δ is 0 when it stands still.
    """
    pulls: list[Tensor] = []
    for client, own in zip(clients, steps, strict=True):
        unit = torch.eye(len(client.centre), dtype=client.centre.dtype)
        pull = unit - torch.linalg.matrix_power(unit - lr * client.curvature, own)
        pulls.append(pull / own if own_steps else pull)
    target = torch.stack([pull @ client.centre for pull, client in zip(pulls, clients, strict=True)]).sum(0)
    return torch.linalg.solve(torch.stack(pulls).sum(0), target)


# Two runs


def check_same_trajectory(one: Federation, other: Federation) -> None:
    for a, b in zip(one.run(), other.run(), strict=True):
        assert_close(a.after.params, b.after.params, f"after round {a.round.index}")


def _fedcm(federation: Federation) -> FedCM:
    assert isinstance(federation.algorithm, FedCM)
    return federation.algorithm


def _feddyn(federation: Federation) -> FedDyn:
    assert isinstance(federation.algorithm, FedDyn)
    return federation.algorithm
