"""The methods around FedCM with client states, and those without a server, transcribed line by line from their papers.

See `reference_origins.py` for the conventions. Client states are in `world.clients`. Clients have equal weights.
Without a server (functions with `mixing`) everybody takes part in every round: the cohort is not asked for, and there
is no server learning rate.
"""

from typing import Any, cast

import torch
from reference import World
from reference_origins import Yields
from torch import Tensor


def average(vectors: list[Tensor]) -> Tensor:
    return torch.stack(vectors).sum(0) / len(vectors)


def vrl_sgd(world: World, x: Tensor, rounds: int, centred: bool = True) -> Yields:
    """Liang, Shen, Liu, Pan, Chen, Cheng: Variance Reduced Local SGD with Lower Communication Complexity,
    arXiv 1912.12844, Algorithm 1: step g − Δ_i; x̂ = mean y_i; Δ_i ← Δ_i + (x̂ − y_i)/(kγ). Everybody takes part.

    With unequal K_i the paper's formula is ambiguous. `centred` True: Δ_i ← Δ_i + d_i − mean d with
    d_i = (x − y_i)/(γK_i), which keeps ΣΔ_i = 0 and is SCAFFOLD II. False: the literal formula with the client's own
    K_i, whose ΣΔ_i drifts from 0. Both are the paper when all K_i are equal. s: x + s·(x̂ − x); Δ uses x̂.
    Relied on: zerolxf/VRL-SGD, DistributedSgd.py.
    """
    everybody = range(world.population)
    world.clients = {i: torch.zeros_like(x) for i in everybody}
    for t in range(rounds):
        cohort, gamma = world.cohort(t), world.client_lr(t)
        if cohort:
            assert sorted(cohort) == list(everybody), "VRL-SGD is defined for full participation"
            y, steps = {}, {}
            for i in cohort:
                y[i], steps[i] = x, 0
                for batch in world.minibatches(t, i):
                    v = world.gradient(y[i], batch) - world.clients[i]
                    y[i] = y[i] - gamma * (v + world.step_decay * y[i])
                    steps[i] += 1
            x_hat = average(list(y.values()))
            direction = {i: (x - y[i]) / (gamma * steps[i]) for i in cohort}
            for i in cohort:
                literal = (x_hat - y[i]) / (gamma * steps[i])
                rise = direction[i] - average(list(direction.values())) if centred else literal
                world.clients[i] = world.clients[i] + rise
            x = x + world.server_lr * (x_hat - x)
        yield {"x": x}


def fedpd(world: World, x: Tensor, rounds: int, sigma: float) -> Yields:
    """Zhang, Hong, Dhople, Yin, Liu: FedPD: A Federated Learning Framework With Adaptivity to Non-IID Data, IEEE TSP,
    2021, arXiv 2005.11418, Algorithm 2 with p = 0 and Algorithm 3, option II (SGD). σ is the paper's η, η_l its η_1.

    A client starts from its own last x_i, not from the server's x_0: x_i ← x_i − η_l (g + λ_i + (x_i − x_0)/σ). Then
    λ_i ← λ_i + (x_i − x_0)/σ, and it sends x_i⁺ = x_i + σλ_i. The state is (x_i, λ_i), at first (x_0, 0).
    Ours, not the paper's: absent clients keep their state, and the server averages the last x_i⁺ of all N, at first
    x_0; s: x_0 + s·(mean − x_0). Relied on: the paper's PDF and code in 564612540/FedPD (the authors').
    """
    states = {i: (x, torch.zeros_like(x)) for i in range(world.population)}
    world.clients = cast(Any, states)
    sent = dict.fromkeys(range(world.population), x)
    plus = x
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            for i in cohort:
                x_i, dual = states[i]
                for batch in world.minibatches(t, i):
                    g = world.gradient(x_i, batch) + dual + (x_i - x) / sigma
                    x_i = x_i - eta * (g + world.step_decay * x_i)
                dual = dual + (x_i - x) / sigma
                states[i] = (x_i, dual)
                sent[i] = x_i + sigma * dual
            plus = average(list(sent.values()))
            x = x + world.server_lr * (plus - x)
        yield {"x": x, "x+": plus}


def fedsplit(world: World, x: Tensor, rounds: int, sigma: float) -> Yields:
    """Pathak, Wainwright: FedSplit: an Algorithmic Framework for Fast Federated Optimization, NeurIPS 2020,
    arXiv 2005.05238, Algorithm 1: u ≈ argmin f_i(u) + ‖u − (2x − z_i)‖²/(2σ) (σ is the paper's s),
    z_i ← z_i + 2(u − x), x = mean z_i. Minibatch steps stand in for the prox; they start at its centre 2x − z_i.

    Ours, not the paper's: absent clients keep z_i, and the server averages the z_i of all N; its learning rate s:
    x + s·(mean z − x). Relied on: wenh06/fl-sim for the equations (it starts from the client's last u); memory of the
    paper's section on inexact prox for the start.
    """
    world.clients = dict.fromkeys(range(world.population), x)
    z_mean = x
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            for i in cohort:
                centre = 2 * x - world.clients[i]
                u = centre
                for batch in world.minibatches(t, i):
                    g = world.gradient(u, batch) + (u - centre) / sigma
                    u = u - eta * (g + world.step_decay * u)
                world.clients[i] = world.clients[i] + 2 * (u - x)
            z_mean = average([world.clients[i] for i in range(world.population)])
            x = x + world.server_lr * (z_mean - x)
        yield {"x": x, "z": z_mean}


def scaffold_m(world: World, x: Tensor, rounds: int, alpha: float, control: str = "gradients") -> Yields:
    """Cheng, Huang, Wu, Yuan: Momentum Benefits Non-IID Federated Learning Simply and Provably, ICLR 2024,
    arXiv 2306.16504, SCAFFOLD-M (the paper's β is α here): step α(g − c_i + c) + (1 − α)Δ; Δ ← mean_S (x − y)/(ηK);
    x ← x − γΔ; c_i ← mean_k g; c ← c + (1/N) Σ_S (new c_i − old c_i). Δ, c and c_i are 0 at first.

    `control` "movement" finds mean_k g from the movement instead, as SCAFFOLD II does: c_i − c + ((x − y)/(ηK) −
    (1 − α)Δ)/α. The two differ only in that the latter includes the step decay. As in `reference.fedcm` each change is
    divided by the client's own K, and γ = s·η_l·(mean K). NOT VERIFIED: neither the paper's text nor code was found;
    memory of the paper, and its reviews (FedAvg-M is FedCM; x ← x − γg).
    """
    delta, c = torch.zeros_like(x), torch.zeros_like(x)
    world.clients = {i: torch.zeros_like(x) for i in range(world.population)}
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            directions, rises, steps = [], [], 0
            for i in cohort:
                y, k, c_i, total_g = x, 0, world.clients[i], torch.zeros_like(x)
                for batch in world.minibatches(t, i):
                    g = world.gradient(y, batch)
                    y = y - eta * (alpha * (g - c_i + c) + (1 - alpha) * delta + world.step_decay * y)
                    k, total_g = k + 1, total_g + g
                moved = (x - y) / (eta * k)
                c_plus = total_g / k if control == "gradients" else c_i - c + (moved - (1 - alpha) * delta) / alpha
                directions.append(moved)
                rises.append(c_plus - c_i)
                steps = steps + k
                world.clients[i] = c_plus
            delta = average(directions)
            c = c + len(cohort) / world.population * average(rises)
            x = x - world.server_lr * eta * steps / len(cohort) * delta
        yield {"x": x, "delta": delta, "c": c}


def mix(mixing: Tensor, points: list[Tensor]) -> list[Tensor]:
    """x_i = Σ_j W_ij y_j."""
    return [sum((w * y for w, y in zip(row, points, strict=True)), torch.zeros_like(points[0])) for row in mixing]


def dsgd(world: World, x: Tensor, rounds: int, mixing: Tensor, beta: float = 0.0) -> Yields:
    """D-SGD: Lian et al., Can Decentralized Algorithms Outperform Centralized Algorithms?, NeurIPS 2017,
    arXiv 1705.09056; with K local steps: Koloskova et al., A Unified Theory of Decentralized SGD with Changing Topology
    and Local Updates, ICML 2020, arXiv 2003.10422, Algorithm 1. K local steps, then x_i ← Σ_j W_ij y_j.

    β > 0 is DSGDm: m_i ← βm_i + g, y_i ← y_i − ηm_i, m_i kept at the node and not mixed. Relied on:
    epfml/quasi-global-momentum, decentralized_sgd.py (gradient step first, then gossip). The state is (x_i, m_i).
    """
    states = {i: (x, torch.zeros_like(x)) for i in range(world.population)}
    world.clients = cast(Any, states)
    for t in range(rounds):
        eta, ends = world.client_lr(t), []
        for i in range(world.population):
            y, m = states[i]
            for batch in world.minibatches(t, i):
                m = beta * m + world.gradient(y, batch)
                y = y - eta * (m + world.step_decay * y)
            ends.append(y)
            states[i] = (y, m)
        for i, mixed in enumerate(mix(mixing, ends)):
            states[i] = (mixed, states[i][1])
        nodes = torch.stack([states[i][0] for i in range(world.population)])
        yield {"x": nodes.mean(0), "nodes": nodes, "m": torch.stack([states[i][1] for i in range(world.population)])}


def qg_dsgdm(world: World, x: Tensor, rounds: int, mixing: Tensor, beta: float, mu: float) -> Yields:
    """Lin, Karimireddy, Stich, Jaggi: Quasi-Global Momentum: Accelerating Decentralized Deep Learning on Heterogeneous
    Data, ICML 2021, arXiv 2102.04761, Algorithm 1 (QG-DSGDm), heavy ball.

    Every local step goes along β m̂_i + g with m̂_i fixed during the round; then gossip; then
    m̂_i ← μ m̂_i + (1 − μ)(x_i before the round − x_i after the gossip)/(η K_i). The paper has K = 1. Relied on:
    epfml/quasi-global-momentum, decentralized_qg_sgd.py; there m̂ stays fixed for `local_step` steps too, but each of
    these steps gossips. The state is (x_i, m̂_i).
    """
    states = {i: (x, torch.zeros_like(x)) for i in range(world.population)}
    world.clients = cast(Any, states)
    for t in range(rounds):
        eta, ends, steps = world.client_lr(t), [], []
        for i in range(world.population):
            y, m = states[i]
            k = 0
            for batch in world.minibatches(t, i):
                y = y - eta * (beta * m + world.gradient(y, batch) + world.step_decay * y)
                k = k + 1
            ends.append(y)
            steps.append(k)
        for i, mixed in enumerate(mix(mixing, ends)):
            before, m = states[i]
            states[i] = (mixed, mu * m + (1 - mu) * (before - mixed) / (eta * steps[i]))
        nodes = torch.stack([states[i][0] for i in range(world.population)])
        yield {"x": nodes.mean(0), "nodes": nodes, "m": torch.stack([states[i][1] for i in range(world.population)])}
