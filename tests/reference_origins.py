"""The methods around FedCM whose clients keep nothing between rounds, transcribed line by line from their papers.

Slow, literal, and independent of the library, in the style of `reference.py`; `reference_origins_stateful.py` has the
methods with client states and those without a server. Signs are the papers'. `s` is `world.server_lr`; s = 1 is the
paper. `world.step_decay` times the current point is added to every local step, outside of any momentum. Clients are
weighted by `world.weight`. A round with an empty cohort changes nothing. "x" is the model that would be evaluated.
"""

from collections.abc import Iterator, Mapping

import torch
from reference import World
from torch import Tensor

Yields = Iterator[dict[str, Tensor]]


def mean(world: World, values: Mapping[int, Tensor]) -> Tensor:
    """Σ p_i v_i over the cohort, p_i = weight_i / Σ weight."""
    total = torch.zeros_like(next(iter(values.values())))
    for i, value in values.items():
        total = total + world.weight(i) * value
    return total / sum(world.weight(i) for i in values)


def fedprox(world: World, x: Tensor, rounds: int, mu: float) -> Yields:
    """Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks, MLSys 2020,
    arXiv 1812.06127, Algorithm 2, with minibatch steps on h(w) = F_i(w) + μ/2 ‖w − x‖² as the local solver.

    Relied on: the paper; litian96/FedDANE (pggd.py has the same proximal term). s: x + s·(mean − x).
    """
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            change = {}
            for i in cohort:
                w = x
                for batch in world.minibatches(t, i):
                    g = world.gradient(w, batch) + mu * (w - x)
                    w = w - eta * (g + world.step_decay * w)
                change[i] = w - x
            x = x + world.server_lr * mean(world, change)
        yield {"x": x}


def run_sgd(world: World, x: Tensor, t: int) -> dict[int, Tensor]:
    """The cohort's y_i − x after plain local SGD from x."""
    change = {}
    for i in world.cohort(t):
        y = x
        for batch in world.minibatches(t, i):
            y = y - world.client_lr(t) * (world.gradient(y, batch) + world.step_decay * y)
        change[i] = y - x
    return change


def fedavgm(world: World, x: Tensor, rounds: int, beta: float) -> Yields:
    """Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification,
    arXiv 1909.06335, section 4.3: v ← βv + Δw, w ← w − v, where Δw = x − mean y.

    Relied on: the paper. The momentum is not damped: no factor (1 − β). s: w ← w − s·v.
    """
    v = torch.zeros_like(x)
    for t in range(rounds):
        if world.cohort(t):
            delta_w = -mean(world, run_sgd(world, x, t))
            v = beta * v + delta_w
            x = x - world.server_lr * v
        yield {"x": x, "v": v}


def fedadagrad(world: World, x: Tensor, rounds: int, beta1: float, tau: float) -> Yields:
    """Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive Federated Optimization, ICLR 2021,
    arXiv 2003.00295, Algorithm 2 with FedAdagrad's line: v ← v + Δ². No bias correction.

    Relied on: the paper (it asks for v_{−1} ≥ τ²; here it is τ², as in `reference.fedadam`). s is the paper's η.
    """
    m, v = torch.zeros_like(x), torch.full_like(x, tau**2)
    for t in range(rounds):
        if world.cohort(t):
            delta = mean(world, run_sgd(world, x, t))
            m = beta1 * m + (1 - beta1) * delta
            v = v + delta**2
            x = x + world.server_lr * m / (v.sqrt() + tau)
        yield {"x": x, "-m": -m, "v": v}


def fedyogi(world: World, x: Tensor, rounds: int, beta1: float, beta2: float, tau: float) -> Yields:
    """Reddi et al. 2021 (see `fedadagrad`), Algorithm 2 with FedYogi's line: v ← v − (1 − β2) Δ² sign(v − Δ²)."""
    m, v = torch.zeros_like(x), torch.full_like(x, tau**2)
    for t in range(rounds):
        if world.cohort(t):
            delta = mean(world, run_sgd(world, x, t))
            m = beta1 * m + (1 - beta1) * delta
            v = v - (1 - beta2) * delta**2 * torch.sign(v - delta**2)
            x = x + world.server_lr * m / (v.sqrt() + tau)
        yield {"x": x, "-m": -m, "v": v}


def fednova(world: World, x: Tensor, rounds: int, rho: float = 0.0) -> Yields:
    """Wang, Liu, Liang, Joshi, Poor: Tackling the Objective Inconsistency Problem in Heterogeneous Federated
    Optimization, NeurIPS 2020, arXiv 2007.07481, Algorithm 1; ρ is the factor of the clients' heavy-ball momentum.

    A client's change is a sum of its gradients with weights a; the first of K gradients has 1 + ρ + … + ρ^{K−1}, the
    last 1. ‖a‖₁ is their sum, K for plain SGD. d_i = (x − y)/‖a_i‖₁ and x ← x − s·τ_eff·Σ p_i d_i with
    τ_eff = Σ p_i ‖a_i‖₁. Relied on: JYWa/FedNova; its momentum buffer starts at 0 in every round.
    """
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            d, norm = {}, {}
            for i in cohort:
                y, buffer, batches = x, torch.zeros_like(x), world.minibatches(t, i)
                for batch in batches:
                    buffer = rho * buffer + world.gradient(y, batch)
                    y = y - eta * (buffer + world.step_decay * y)
                a = [sum(rho**power for power in range(len(batches) - k)) for k in range(len(batches))]
                norm[i] = torch.tensor(float(sum(a)), dtype=x.dtype)
                d[i] = (x - y) / norm[i]
            tau_eff = mean(world, norm)
            x = x - world.server_lr * tau_eff * mean(world, d)
        yield {"x": x}


def mimelite(world: World, x: Tensor, rounds: int, beta: float) -> Yields:
    """Karimireddy, Jaggi, Kale, Mohri, Reddi, Stich, Suresh: Breaking the Centralized Barrier for Cross-Device
    Federated Learning (Mime), NeurIPS 2021, arXiv 2008.03606, Algorithm 1 (MimeLite), base optimiser SGD with momentum:
    step (1 − β)g + βm, with m fixed during the round; then m ← (1 − β)·mean ∇f_i(x) + βm at the old x, on all data.

    Relied on: google/fedjax for the structure, the paper for the factor (1 − β). s: x ← x + s·mean(y − x).
    """
    m = torch.zeros_like(x)
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            change, full = {}, {}
            for i in cohort:
                y = x
                for batch in world.minibatches(t, i):
                    y = y - eta * ((1 - beta) * world.gradient(y, batch) + beta * m + world.step_decay * y)
                change[i], full[i] = y - x, world.gradient(x, world.all_data(i))
            x = x + world.server_lr * mean(world, change)
            m = (1 - beta) * mean(world, full) + beta * m
        yield {"x": x, "m": m}


def mime(world: World, x: Tensor, rounds: int, beta: float) -> Yields:
    """Karimireddy et al. 2021 (see `mimelite`), Algorithm 1 (Mime): g(y) is replaced by g(y) − g(x) + c, both on the
    same minibatch; c = mean of the cohort's ∇f_i(x) on all data, which a first exchange of the round collects.

    Relied on: google/fedjax, mime.py.
    """
    m = torch.zeros_like(x)
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            c = mean(world, {i: world.gradient(x, world.all_data(i)) for i in cohort})
            change = {}
            for i in cohort:
                y = x
                for batch in world.minibatches(t, i):
                    g = world.gradient(y, batch) - world.gradient(x, batch) + c
                    y = y - eta * ((1 - beta) * g + beta * m + world.step_decay * y)
                change[i] = y - x
            x = x + world.server_lr * mean(world, change)
            m = (1 - beta) * c + beta * m
        yield {"x": x, "m": m}


def slowmo(world: World, x: Tensor, rounds: int, beta: float) -> Yields:
    """Wang, Tantia, Ballas, Rabbat: SlowMo: Improving Communication-Efficient Distributed SGD with Slow Momentum,
    ICLR 2020, arXiv 1910.00643, Algorithm 1, base optimiser plain SGD: u ← βu + (x − mean y)/γ, x ← x − αγu.

    γ is this round's η_l and α is s. Relied on: fairscale's SlowMoDistributedDataParallel.
    """
    u = torch.zeros_like(x)
    for t in range(rounds):
        if world.cohort(t):
            gamma = world.client_lr(t)
            u = beta * u - mean(world, run_sgd(world, x, t)) / gamma
            x = x - world.server_lr * gamma * u
        yield {"x": x, "u": u}


def feddane(world: World, x: Tensor, rounds: int, mu: float) -> Yields:
    """Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: FedDANE: A Federated Newton-Type Method, Asilomar 2019,
    arXiv 2001.01920, Algorithm 2. First exchange: g = mean ∇F_i(x). Second: minimise
    F_i(w) + ⟨g − ∇F_i(x), w⟩ + μ/2 ‖w − x‖² from x by minibatch steps; x ← x + s·(mean w − x).

    Relied on: litian96/FedDANE. The paper draws a second cohort for the second exchange; the authors' code draws both
    with the round's seed, so it is the same cohort. Here too. Gradients at x are over all data.
    """
    g_t = torch.zeros_like(x)
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            full = {i: world.gradient(x, world.all_data(i)) for i in cohort}
            g_t = mean(world, full)
            change = {}
            for i in cohort:
                w = x
                for batch in world.minibatches(t, i):
                    g = world.gradient(w, batch) + (g_t - full[i]) + mu * (w - x)
                    w = w - eta * (g + world.step_decay * w)
                change[i] = w - x
            x = x + world.server_lr * mean(world, change)
        yield {"x": x, "g": g_t}


def fedac(world: World, x: Tensor, rounds: int, alpha: float, beta: float, gamma: float) -> Yields:
    """Yuan, Ma: Federated Accelerated Stochastic Gradient Descent, NeurIPS 2020, arXiv 2006.08950, Algorithm 1.

    The paper's η is η_l, its γ is `gamma`·η_l, so that a decaying η_l decays both. Clients start from the server's w
    and w^ag; the server averages both (s moves that fraction of the way, for both). w^ag is the model.
    Decay: the gradient at w^md becomes g + step_decay·w^md. Relied on: hongliny/FedAc-NeurIPS20, logistic.py.
    """
    w, ag = x, x
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            change_w, change_ag = {}, {}
            for i in cohort:
                w_i, ag_i = w, ag
                for batch in world.minibatches(t, i):
                    md = w_i / beta + (1 - 1 / beta) * ag_i
                    g = world.gradient(md, batch) + world.step_decay * md
                    ag_i = md - eta * g
                    w_i = (1 - 1 / alpha) * w_i + md / alpha - gamma * eta * g
                change_w[i], change_ag[i] = w_i - w, ag_i - ag
            w = w + world.server_lr * mean(world, change_w)
            ag = ag + world.server_lr * mean(world, change_ag)
        yield {"x": ag, "w": w}


def local_adaalter(
    world: World, x: Tensor, rounds: int, epsilon: float, initial: float = 0.0, growing: bool = False
) -> Yields:
    """Xie, Koyejo, Gupta, Lin: Local AdaAlter: Communication-Efficient Stochastic Gradient Descent with Adaptive
    Learning Rates, arXiv 1911.09030, Algorithm 4: the accumulator h is fixed during the round, h ← h + mean_i Σ_k g².

    `growing` False is the authors' code (xcgoner/AISTATS2020-AdaAlter-GluonNLP): g/√(h + ε), as relied on here. True is
    the paper as remembered: g/√(h + kε) in local step k = 1, 2, …, where ε stands for its ε², and h_0 = `initial` = 1.
    The decay is outside of the division, as in the code. s: x + s·mean(y − x); h has no rate.
    """
    h = torch.full_like(x, initial)
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            change, squares = {}, {}
            for i in cohort:
                y, k, cache = x, 0, torch.zeros_like(x)
                for batch in world.minibatches(t, i):
                    k = k + 1
                    g = world.gradient(y, batch)
                    y = y - eta * (g / (h + (k if growing else 1) * epsilon).sqrt() + world.step_decay * y)
                    cache = cache + g * g
                change[i], squares[i] = y - x, cache
            x = x + world.server_lr * mean(world, change)
            h = h + mean(world, squares)
        yield {"x": x, "h": h}


def mfl(world: World, x: Tensor, rounds: int, gamma: float) -> Yields:
    """Liu, Chen, Chen, Zhang: Accelerating Federated Learning via Momentum Gradient Descent, IEEE TPDS 31(8), 2020,
    arXiv 1910.03197, Algorithm 1: d ← γd + g, w ← w − ηd; after the local steps the server averages w and d.

    Relied on: memory of the paper; JedMills/FedGBO (a published re-implementation) for the averaging of both. d_0 = 0.
    s: x + s·(mean w − x); d has no rate.
    """
    d = torch.zeros_like(x)
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            change, momentum = {}, {}
            for i in cohort:
                w_i, d_i = x, d
                for batch in world.minibatches(t, i):
                    d_i = gamma * d_i + world.gradient(w_i, batch)
                    w_i = w_i - eta * (d_i + world.step_decay * w_i)
                change[i], momentum[i] = w_i - x, d_i
            x = x + world.server_lr * mean(world, change)
            d = mean(world, momentum)
        yield {"x": x, "d": d}


def signsgd(world: World, x: Tensor, rounds: int, delta: float | None = None) -> Yields:
    """Bernstein, Wang, Azizzadenesheli, Anandkumar: signSGD: Compressed Optimisation for Non-Convex Problems, ICML
    2018, arXiv 1802.04434, majority vote, with local steps: a client sends sign(x − y) in place of sign(g).

    Relied on: memory of the paper and a public summary of it. x ← x − s·δ·sign(Σ weight_i·sign_i); δ is
    η_l by default, so that K = 1 is the paper. sign(0) = 0, also for a tie.
    """
    for t in range(rounds):
        if world.cohort(t):
            votes = {i: torch.sign(-change) for i, change in run_sgd(world, x, t).items()}
            step = world.client_lr(t) if delta is None else delta
            x = x - world.server_lr * step * torch.sign(mean(world, votes))
        yield {"x": x}
