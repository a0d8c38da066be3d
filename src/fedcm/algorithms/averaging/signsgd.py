"""signSGD with majority vote: clients report the signs of their movements, and the server steps along the majority.

    client   y ← y − η_l·g                             K_i times from y = x
    report   sign = sign(x − y)                        −1, 0 or 1 in every coordinate
    server   x ← x − s·η_l·sign(mean(sign))

The paper takes one step per round (K_i = 1); more local steps are an extension. The simulator counts a sign as a float
of the model's precision, although one bit would be enough.

Bernstein, Wang, Azizzadenesheli & Anandkumar, "signSGD: Compressed Optimisation for Non-Convex Problems", ICML 2018.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

from fedcm.algorithms.messages import Model
from fedcm.core.algorithm import Algorithm, LocalRun, Nothing, Round, Vector


class Report(NamedTuple):
    sign: Vector


@final
@dataclass(frozen=True)
class SignSGD(Algorithm[Model, Model, Nothing, Report]):
    """signSGD with majority vote; see the module's docstring. It has no hyperparameters."""

    paper = "Bernstein et al., ICML 2018"

    def init_server(self, params: Vector) -> Model:
        return Model(params)

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: Model) -> Model:
        return server

    def report(self, run: LocalRun, sent: Model, kept: Nothing) -> tuple[Report, Nothing]:
        return Report(run.direction_sum.sign()), kept

    def update(self, server: Model, mean: Report, round: Round) -> Model:
        return Model(server.params - round.server_lr * round.client_lr * mean.sign.sign())
