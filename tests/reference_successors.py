"""Successors of FedCM that look for flat minima, transcribed line by line: slow, literal, independent of the library.

The style and the `World` are those of `reference.py`; `reference_successors_momentum.py` holds the other successors.
"Read" in a docstring means read in the authors' code; "from memory" means not checked against the paper's text.

Conventions for what the papers leave open:

- An empty cohort changes nothing, not even a history of models.
- world.weight(i) weighs the mean of algorithms without client states.
- world.step_decay·y is added to the step, never to the gradient that sets the perturbation. The authors do the same
  with their optimiser's weight decay. world.weight_decay and world.clip act inside every gradient, both of SAM's too;
  the authors clip the finished direction at 10 instead.
- A perturbation along the zero vector is zero.
"""

from collections.abc import Iterator

import torch
from reference import World
from torch import Tensor

EPSILON = 1e-7  # FL-Simulator and FedLESAM add it to every norm they divide by


def scaled(rho: float, v: Tensor, epsilon: float) -> Tensor:
    """ρ·v/(‖v‖ + ε) with one norm over all parameters; zero if v is zero."""
    norm = v.norm()
    return torch.zeros_like(v) if norm == 0 else rho * v / (norm + epsilon)


def fedsam(world: World, x: Tensor, rounds: int, rho: float, epsilon: float = EPSILON) -> Iterator[dict[str, Tensor]]:
    """Qu, Li, Duan, Liu, Tang, Lu: Generalized Federated Learning via Sharpness Aware Minimization, ICML 2022
    (arXiv 2206.02618), Algorithm 1, FedSAM. Caldarola et al., ECCV 2022 (arXiv 2203.11834), is the same with SAM.

    Read in woodenchild95/FL-Simulator (client/fedsam.py, optimizer/ESAM.py, server/FedSAM.py): SAM on every local
    step, both gradients on the same minibatch; the server averages. server_lr is the paper's η_g.
    """
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            total = torch.zeros_like(x)
            for i in cohort:
                w = x
                for batch in world.minibatches(t, i):
                    g = world.gradient(w, batch)
                    w_tilde = w + scaled(rho, g, epsilon)
                    g_tilde = world.gradient(w_tilde, batch)
                    w = w - eta * (g_tilde + world.step_decay * w)
                total = total + world.weight(i) * (w - x)
            x = x + world.server_lr * total / sum(world.weight(i) for i in cohort)
        yield {"x": x}


def mofedsam(
    world: World, x: Tensor, rounds: int, alpha: float, rho: float, epsilon: float = EPSILON
) -> Iterator[dict[str, Tensor]]:
    """Qu et al., ICML 2022 (arXiv 2206.02618), Algorithm 1, MoFedSAM: FedCM whose gradient is SAM's.

    The paper's letter for α is β. Read in FL-Simulator (client/mofedsam.py, server/MoFedSAM.py), which divides by the
    first client's K and by the previous round's η_l. For unequal K_i this follows `reference.fedcm`: each client's
    change is divided by its own K, and η_g = server_lr·η_l·(mean K).
    """
    delta = torch.zeros_like(x)
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            total, steps = torch.zeros_like(x), 0.0
            for i in cohort:
                w, k = x, 0
                for batch in world.minibatches(t, i):
                    g = world.gradient(w, batch)
                    w_tilde = w + scaled(rho, g, epsilon)
                    g_tilde = world.gradient(w_tilde, batch)
                    w = w - eta * (alpha * g_tilde + (1 - alpha) * delta + world.step_decay * w)
                    k = k + 1
                total = total + world.weight(i) * (w - x) / (eta * k)
                steps = steps + world.weight(i) * k
            weights = sum(world.weight(i) for i in cohort)
            delta = -total / weights
            x = x - world.server_lr * eta * steps / weights * delta
        yield {"x": x, "delta": delta}


def fedcm_lookahead(
    world: World, x: Tensor, rounds: int, alpha: float, rho: float, epsilon: float = EPSILON
) -> Iterator[dict[str, Tensor]]:
    """FedCM with a look-ahead gradient: the direction is α·g(y + ρΔ/‖Δ‖) + (1 − α)Δ. One gradient per step.

    No paper has exactly this. ρ = 0 is FedCM; α = 1 with equal K_i is FedLESAM with the server's memory. The nearest
    relative is FedWMSAM (Li et al., NeurIPS 2025, arXiv 2511.22080), which perturbs towards the server's predicted
    path instead, corrects Δ per client and adapts α. In the first round Δ = 0, so nothing is perturbed.
    The server is `reference.fedcm`'s.
    """
    delta = torch.zeros_like(x)
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            total, steps = torch.zeros_like(x), 0.0
            ahead = scaled(rho, delta, epsilon)
            for i in cohort:
                y, k = x, 0
                for batch in world.minibatches(t, i):
                    g = world.gradient(y + ahead, batch)
                    y = y - eta * (alpha * g + (1 - alpha) * delta + world.step_decay * y)
                    k = k + 1
                total = total + world.weight(i) * (y - x) / (eta * k)
                steps = steps + world.weight(i) * k
            weights = sum(world.weight(i) for i in cohort)
            delta = -total / weights
            x = x - world.server_lr * eta * steps / weights * delta
        yield {"x": x, "delta": delta}


def fedlesam(
    world: World, x: Tensor, rounds: int, rho: float, memory: str = "client", epsilon: float = EPSILON
) -> Iterator[dict[str, Tensor]]:
    """Fan, Hu, Yao, Niu, Zhang, Sugiyama, Wang: Locally Estimated Global Perturbations are Better than Local
    Perturbations for Federated Sharpness-aware Minimization, ICML 2024 (arXiv 2405.18890), Algorithm 1.

    The client's perturbation is ρ(w_old − w_t)/‖w_old − w_t‖, the same for all its steps; one gradient per step.

    memory "client" is the paper (abstract, read): w_old is the global model that this client received in its previous
    active round, a client state; world.clients holds it. A client in its first round has none and does not perturb
    (from memory: the paper's start value of w_old was not found).
    memory "server" is the released code (MediaBrain-SJTU/FedLESAM, server/FedLESAM.py, read): w_old is the global
    model of the previous round, for everyone, and there is no client state.
    The released optimizer/LESAM.py divides by the sum of the layers' norms and indexes a flat vector with the layer's
    number, so that each layer moves by one scalar. Both look like slips; here it is one norm of one vector.
    server_lr is η_g; it does not change the direction of w_old − w_t.
    """
    previous = x
    world.clients = {}
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            total = torch.zeros_like(x)
            for i in cohort:
                w_old = previous if memory == "server" else world.clients.get(i, x)
                perturbation = scaled(rho, w_old - x, epsilon)
                w = x
                for batch in world.minibatches(t, i):
                    g = world.gradient(w + perturbation, batch)
                    w = w - eta * (g + world.step_decay * w)
                total = total + world.weight(i) * (w - x)
                if memory == "client":
                    world.clients[i] = x
            previous = x
            x = x + world.server_lr * total / sum(world.weight(i) for i in cohort)
        yield {"x": x, "previous": previous}


def fedspeed(
    world: World,
    x: Tensor,
    rounds: int,
    lam: float,
    rho: float,
    alpha: float = 1.0,
    average: str = "everyone",
    epsilon: float = EPSILON,
) -> Iterator[dict[str, Tensor]]:
    """Sun, Shen, Huang, Ding, Tao: FedSpeed: Larger Local Interval, Less Communication Round, and Higher
    Generalization Accuracy, ICLR 2023 (arXiv 2302.10429), Algorithm 1.

    lam is the code's coefficient, 1/λ in the paper's letters; h_i = −λ·ĝ_i in the paper's letters.
    The paper (from memory) merges (1 − α)·g(w) + α·g(w + ρ'g), with ρ' = ρ/‖g‖ in its experiments.
    Read in FL-Simulator (client/fedspeed.py, server/FedSpeed.py): α = 1 and average "everyone", that is the cohort's
    mean w plus all N clients' mean h. This is FedDyn with SAM's gradient, for any cohort.
    average "cohort" is the paper's server (from memory): the cohort's mean of w + h_i. Both agree if all take part.
    The paper has no server rate: 1 is the paper, s moves that fraction of the way from x, as in `reference.feddyn`.
    """
    world.clients = {i: torch.zeros_like(x) for i in range(world.population)}
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            total_w, total_h = torch.zeros_like(x), torch.zeros_like(x)
            for i in cohort:
                w, h = x, world.clients[i]
                for batch in world.minibatches(t, i):
                    g1 = world.gradient(w, batch)
                    g2 = world.gradient(w + scaled(rho, g1, epsilon), batch)
                    g = (1 - alpha) * g1 + alpha * g2
                    w = w - eta * (g + lam * (w - x + h) + world.step_decay * w)
                world.clients[i] = h + (w - x)
                total_w = total_w + w
                total_h = total_h + world.clients[i]
            if average == "everyone":
                h_mean = sum(world.clients.values(), torch.zeros_like(x)) / world.population
            else:
                h_mean = total_h / len(cohort)
            x = x + world.server_lr * (total_w / len(cohort) + h_mean - x)
        h = sum(world.clients.values(), torch.zeros_like(x)) / world.population
        yield {"x": x, "h": h}


def fedsmoo(
    world: World, x: Tensor, rounds: int, lam: float, rho: float, epsilon: float = EPSILON
) -> Iterator[dict[str, Tensor]]:
    """Sun, Shen, Chen, Ding, Tao: Dynamic Regularized Sharpness Aware Minimization in Federated Learning: Approaching
    Global Consistency and Smooth Landscape, ICML 2023 (arXiv 2305.11584), Algorithm 1.

    Read in FL-Simulator (client/fedsmoo.py, optimizer/DRegSAM.py, server/FedSMOO.py). world.clients holds (h_i, μ_i).
    A step perturbs by ŝ, which points along g − μ_i − s with the old μ_i; then μ_i grows by ŝ − s, at every step.
    The server's s has length ρ and the direction of the cohort's mean μ. The authors say that this drops a small term
    of the paper's, the cohort's last ŝ. The model's part is FedSpeed's code: lam is 1/β in the paper's letters.
    server_lr moves that fraction of the way from x; it does not touch s.
    """
    zero = torch.zeros_like(x)
    states = dict.fromkeys(range(world.population), (zero, zero))
    world.clients = states  # pyright: ignore[reportAttributeAccessIssue]
    s = zero
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            total_w, total_mu = zero, zero
            for i in cohort:
                w, (h, mu) = x, states[i]
                for batch in world.minibatches(t, i):
                    g = world.gradient(w, batch)
                    s_hat = scaled(rho, g - mu - s, epsilon)
                    mu = mu + s_hat - s
                    g_tilde = world.gradient(w + s_hat, batch)
                    w = w - eta * (g_tilde + lam * (w - x + h) + world.step_decay * w)
                states[i] = (h + (w - x), mu)
                total_w = total_w + w
                total_mu = total_mu + mu
            s = scaled(rho, total_mu / len(cohort), epsilon)
            h_mean = sum((h for h, _ in states.values()), zero) / world.population
            x = x + world.server_lr * (total_w / len(cohort) + h_mean - x)
        h = sum((h for h, _ in states.values()), zero) / world.population
        yield {"x": x, "h": h, "s": s}
