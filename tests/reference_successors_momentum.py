"""Successors of FedCM with other momenta, server rates, schedules and preconditioners, transcribed line by line.

The conventions are those of `reference_successors.py`.
"""

from collections.abc import Iterator

import torch
from reference import Shape, World
from torch import Tensor


def fedacg(world: World, x: Tensor, rounds: int, lam: float, beta: float) -> Iterator[dict[str, Tensor]]:
    """Kim, Kim, Han: Communication-Efficient Federated Learning with Accelerated Client Gradient, CVPR 2024
    (arXiv 2201.03172), Algorithm 1. m points downhill, as in the paper.

    Read in geehokim/FedACG (servers/base.py, trainers/base_trainer.py, clients/base_client.py): the clients start from
    and stay near θ = x + λm. The code's penalty is β‖w − θ‖², so its gradient is 2β(w − θ); a paper that writes
    (β/2)‖w − θ‖² has twice this β.
    The code has no server rate. Here server_lr multiplies the mean change once, so that it enters x and m alike and
    x_{t+1} = x_t + m_{t+1} stays true.
    """
    m = torch.zeros_like(x)
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            theta = x + lam * m
            total = torch.zeros_like(x)
            for i in cohort:
                w = theta
                for batch in world.minibatches(t, i):
                    g = world.gradient(w, batch)
                    w = w - eta * (g + 2 * beta * (w - theta) + world.step_decay * w)
                total = total + world.weight(i) * (w - theta)
            change = world.server_lr * total / sum(world.weight(i) for i in cohort)
            m = lam * m + change
            x = x + m
        yield {"x": x, "-m": -m}


def ghbm(world: World, x: Tensor, rounds: int, beta: float, tau: int) -> Iterator[dict[str, Tensor]]:
    """Zaccone, Karimireddy, Masone, Ciccone: Communication-Efficient Heterogeneous Federated Learning with Generalized
    Heavy-Ball Momentum, TMLR 2025 (arXiv 2311.18578), GHBM.

    Read in RickZack/GHBM (center_server/ghbm_center_server.py, fed_clients/ghbm_client.py; nesterov off):
    m = (x_{t−τ} − x_t)/τ, zero in the first τ rounds; a client adds β·m/(η_l·K) to each gradient, with this round's
    η_l and its own K. Rounds with an empty cohort are not counted. server_lr is the server's SGD rate; m contains it.
    """
    models = [x]  # the last τ + 1 models
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            m = (models[0] - x) / tau if len(models) == tau + 1 else torch.zeros_like(x)
            total = torch.zeros_like(x)
            for i in cohort:
                y, batches = x, world.minibatches(t, i)
                for batch in batches:
                    g = world.gradient(y, batch)
                    y = y - eta * (g + beta * m / (eta * len(batches)) + world.step_decay * y)
                total = total + world.weight(i) * (y - x)
            x = x + world.server_lr * total / sum(world.weight(i) for i in cohort)
            models = [*models, x][-(tau + 1) :]
        yield {"x": x, "m": (models[0] - x) / tau if len(models) == tau + 1 else torch.zeros_like(x)}


def fedcm_anytime(world: World, x: Tensor, rounds: int, alpha: float, k: float) -> Iterator[dict[str, Tensor]]:
    """FedCM-Anytime, this project's own method, from the equations of docs/algorithms/fedcm-anytime.md.

    It is `reference.fedcm` with α_t = max(α, 1/(t+1)) after t updates, and with the polynomial-decay average of the
    models x_1, x_2, … (Shamir & Zhang, ICML 2013, from memory). A round with an empty cohort is no update.
    """
    delta, x_bar = torch.zeros_like(x), x
    updates = 0
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            alpha_t = max(alpha, 1 / (updates + 1))
            total, steps = torch.zeros_like(x), 0.0
            for i in cohort:
                y, taken = x, 0
                for batch in world.minibatches(t, i):
                    g = world.gradient(y, batch)
                    v = alpha_t * g + (1 - alpha_t) * delta
                    y = y - eta * (v + world.step_decay * y)
                    taken = taken + 1
                total = total + world.weight(i) * (x - y) / (eta * taken)
                steps = steps + world.weight(i) * taken
            weights = sum(world.weight(i) for i in cohort)
            delta = total / weights
            x = x - world.server_lr * eta * steps / weights * delta
            updates = updates + 1
            gamma = (k + 1) / (updates + k) if k else 1.0  # k = 0: no average
            x_bar = (1 - gamma) * x_bar + gamma * x
        yield {"x": x, "x_bar": x_bar, "delta": delta}


def fedexp(world: World, x: Tensor, rounds: int, epsilon: float) -> Iterator[dict[str, Tensor]]:
    """Jhunjhunwala, Wang, Joshi: FedExP: Speeding Up Federated Averaging via Extrapolation, ICLR 2023
    (arXiv 2301.09604), Algorithm 1: η_g = max(1, Σ‖Δ_i‖² / (2M(‖Δ̄‖² + ε))), Δ_i = x − y_i, over the cohort's M clients.

    The paper's formula is from memory and agrees with wenh06/fl-sim (read). The authors' code (Divyansh03/FedExP,
    main.py, read) weighs the clients by size and differs in ε: S·ε in place of ε, with ε multiplied by the square of
    the rate's decay each round. It evaluates the mean of the last two models, here "average" (x itself in the first
    round). server_lr multiplies η_g.
    """
    eta_g, average = torch.ones((), dtype=x.dtype), x
    first = True
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            total, squares = torch.zeros_like(x), torch.zeros((), dtype=x.dtype)
            for i in cohort:
                y = x
                for batch in world.minibatches(t, i):
                    g = world.gradient(y, batch)
                    y = y - eta * (g + world.step_decay * y)
                delta_i = x - y
                total = total + world.weight(i) * delta_i
                squares = squares + world.weight(i) * (delta_i**2).sum()
            weights = sum(world.weight(i) for i in cohort)
            delta = total / weights
            eta_g = torch.clamp(squares / weights / (2 * ((delta**2).sum() + epsilon)), min=1)
            before, x = x, x - world.server_lr * eta_g * delta
            average = x if first else (x + before) / 2
            first = False
        yield {"x": x, "eta_g": eta_g, "average": average}


def fedlada(
    world: World, x: Tensor, rounds: int, alpha: float, beta1: float, beta2: float, epsilon: float
) -> Iterator[dict[str, Tensor]]:
    """Sun, Shen, Sun, Ding, Tao: Efficient Federated Learning via Local Adaptive Amended Optimizer with Linear Speedup,
    IEEE TPAMI 2023 (arXiv 2308.00522), FedLADA: local AMSGrad, amended by the server's mean direction g_a.

    Read in DadrasAli/fedbrew (clients/torch_fedlada_client.py, servers/fedlada.py), a port by others. m starts at zero
    in every round, v and v̂ at the server's v; no bias correction and no ε beside √v̂; the server's v starts at ε².
    The server is `reference.fedcm`'s: own K_i, η_g = server_lr·η_l·(mean K).
    """
    g_a, v = torch.zeros_like(x), torch.full_like(x, epsilon**2)
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            total, total_v, steps = torch.zeros_like(x), torch.zeros_like(x), 0.0
            for i in cohort:
                y, k = x, 0
                m_i, v_i, v_hat = torch.zeros_like(x), v, v
                for batch in world.minibatches(t, i):
                    g = world.gradient(y, batch)
                    m_i = beta1 * m_i + (1 - beta1) * g
                    v_i = beta2 * v_i + (1 - beta2) * g**2
                    v_hat = torch.maximum(v_hat, v_i)
                    y = y - eta * (alpha * m_i / v_hat.sqrt() + (1 - alpha) * g_a + world.step_decay * y)
                    k = k + 1
                total = total + world.weight(i) * (y - x) / (eta * k)
                total_v = total_v + world.weight(i) * v_hat
                steps = steps + world.weight(i) * k
            weights = sum(world.weight(i) for i in cohort)
            g_a, v = -total / weights, total_v / weights
            x = x - world.server_lr * eta * steps / weights * g_a
        yield {"x": x, "g_a": g_a, "v": v}


def swa_rate(eta: float, rho: float, k: int, steps: int) -> float:
    """FedSWA's equation 3, k = 0 … K − 1: from η_l down towards ρ·η_l, which the last step does not quite reach."""
    return eta * (1 - k / steps) + k / steps * rho * eta


def fedswa(world: World, x: Tensor, rounds: int, rho: float, alpha: float) -> Iterator[dict[str, Tensor]]:
    """Liu, Liu, Shang, Liu, Liu, Feng: Improving Generalization in Federated Learning with Highly Heterogeneous Data
    via Momentum-Based Stochastic Controlled Weight Averaging, ICML 2025 (arXiv 2507.20016), Algorithm 1, FedSWA.

    Read in two accounts by others that quote the paper's equations and line numbers, and in junkangLiu0/FedSWA
    (main_FedSWA.py), whose schedule agrees but whose constants do not: ρ = 0, twice the rate, α = 1.
    Each client's schedule spans its own K. server_lr multiplies α.
    """
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            total = torch.zeros_like(x)
            for i in cohort:
                theta, batches = x, world.minibatches(t, i)
                for k, batch in enumerate(batches):
                    g = world.gradient(theta, batch)
                    theta = theta - swa_rate(eta, rho, k, len(batches)) * (g + world.step_decay * theta)
                total = total + world.weight(i) * theta
            v = total / sum(world.weight(i) for i in cohort)
            x = x + world.server_lr * alpha * (v - x)
        yield {"x": x}


def fedmoswa(
    world: World, x: Tensor, rounds: int, rho: float, alpha: float, gamma: float
) -> Iterator[dict[str, Tensor]]:
    """Liu et al., ICML 2025 (arXiv 2507.20016), Algorithm 1, FedMoSWA, option II; sources as for `fedswa`.

    SCAFFOLD on FedSWA's schedule, with m moving by γ towards the cohort's mean c_i⁺ whatever the population. The
    released code differs: the flag MoFedSWA runs a constant rate and γ = 0.4, and sets m to the mean in the first
    round; its unused function divides by K·(η_l + ρη_l)/2 in place of Ση_k. server_lr multiplies α.
    """
    m = torch.zeros_like(x)
    world.clients = {i: torch.zeros_like(x) for i in range(world.population)}
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            total, total_c = torch.zeros_like(x), torch.zeros_like(x)
            for i in cohort:
                theta, c_i, rates = x, world.clients[i], 0.0
                batches = world.minibatches(t, i)
                for k, batch in enumerate(batches):
                    g = world.gradient(theta, batch)
                    rate = swa_rate(eta, rho, k, len(batches))
                    theta = theta - rate * (g - c_i + m + world.step_decay * theta)
                    rates = rates + rate
                c_plus = c_i - m + (x - theta) / rates
                world.clients[i] = c_plus
                total = total + theta
                total_c = total_c + (c_plus - m)
            m = m + gamma * total_c / len(cohort)
            x = x + world.server_lr * alpha * (total / len(cohort) - x)
        yield {"x": x, "m": m}


def newton_schulz(matrix: Tensor, steps: int) -> Tensor:
    """Muon's quintic iteration towards the polar factor UVᵀ; its singular values end near 1, not at 1.

    Read in junkangLiu0/FedMuon (muon.py), which computes in bfloat16; here the matrix's own precision.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    rows, columns = matrix.shape
    z = matrix.T if rows > columns else matrix
    z = z / (z.norm() + 1e-7)
    for _ in range(steps):
        square = z @ z.T
        z = a * z + (b * square + c * square @ square) @ z
    return z.T if rows > columns else z


def polar(shape: Shape, flat: Tensor, steps: int, by_shape: bool) -> tuple[Tensor, Tensor]:
    """The flat vector with each weight matrix replaced by its polar factor, and a mask of the matrices' entries."""
    inputs, hidden, classes = shape
    parts, masks = [], []
    sizes = [(hidden, inputs), (hidden,), (classes, hidden), (classes,)]
    for part, size in zip(torch.split(flat, [torch.Size(size).numel() for size in sizes]), sizes, strict=True):
        is_matrix = len(size) == 2
        if is_matrix:
            part = newton_schulz(part.reshape(size), steps).reshape(-1)
            part = part * max(1, size[0] / size[1]) ** 0.5 if by_shape else part
        parts.append(part)
        masks.append(torch.full_like(part, is_matrix, dtype=torch.bool))
    return torch.cat(parts), torch.cat(masks)


def fedmuon(
    world: World,
    x: Tensor,
    rounds: int,
    beta: float,
    gamma: float,
    steps: int = 5,
    others: str = "adam",
    nesterov: bool = False,
    by_shape: bool = False,
) -> Iterator[dict[str, Tensor]]:
    """Liu, Shang, Zhou, Liu, Liu, Liu: FedMuon: Accelerating Federated Learning with Matrix Orthogonalization, 2025
    (arXiv 2510.27403), Algorithm FedMuon. γ is the paper's α. (arXiv 2509.26337 is another FedMuon.)

    The paper's equations as quoted on junaidaliop.github.io/zij/math/fedmuon (read): M ← βM + g, the step is
    (1 − γ)·polar(M) + γΔ, Δ = mean(x − y)/(η_l·K), and the server averages y and M; clients start from its M. Here K
    is the cohort's mean; server_lr multiplies the mean change, not Δ.
    The authors' code (junkangLiu0/FedMuon, main_FedMuon.py and muon.py, read): matrices are all parameters with two or
    more axes, a kernel flattened to (out, rest); M has a factor 1 − β, which the polar factor ignores;
    nesterov and by_shape (times √max(1, rows/columns)) are on; the matrices' step has a rate of its own (--alpha 0.5
    to 10 times η_l); weight decay 0.01 is decoupled. The other parameters take AdamW steps (0.9, 0.95, ε 1e-10) from a
    fresh state in every round, also blended with γΔ: others "adam". others "sgd" takes the gradient instead, which
    makes FedCM(α = 1 − γ) of these parameters. M holds the momentum of the matrices only.
    """
    delta, momentum = torch.zeros_like(x), torch.zeros_like(x)
    _, is_matrix = polar(world.shape, x, steps, by_shape)
    for t in range(rounds):
        cohort, eta = world.cohort(t), world.client_lr(t)
        if cohort:
            total, total_m, total_k = torch.zeros_like(x), torch.zeros_like(x), 0.0
            for i in cohort:
                y, m, k = x, momentum, 0
                first, second = torch.zeros_like(x), torch.zeros_like(x)
                for batch in world.minibatches(t, i):
                    k = k + 1
                    g = world.gradient(y, batch)
                    m = torch.where(is_matrix, beta * m + g, 0)
                    orthogonal, _ = polar(world.shape, g + beta * m if nesterov else m, steps, by_shape)
                    first = 0.9 * first + 0.1 * g
                    second = 0.95 * second + 0.05 * g**2
                    adam = first / (1 - 0.9**k) / ((second / (1 - 0.95**k)).sqrt() + 1e-10)
                    d = torch.where(is_matrix, orthogonal, adam if others == "adam" else g)
                    y = y - eta * ((1 - gamma) * d + gamma * delta + world.step_decay * y)
                total = total + world.weight(i) * (x - y)
                total_m = total_m + world.weight(i) * m
                total_k = total_k + world.weight(i) * k
            weights = sum(world.weight(i) for i in cohort)
            delta = total / weights / (eta * total_k / weights)
            momentum = total_m / weights
            x = x - world.server_lr * total / weights
        yield {"x": x, "delta": delta, "M": momentum}
