"""Find the shape of every message of an algorithm, by one round of it on zero gradients.

Workers add the fields of reports before they have seen one, so the shapes must be known. Most fields have the shape of
the parameters, but an algorithm can report a scalar, too.
"""

from typing import Any, NamedTuple

import torch

from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Round, Step, Vector

_CLIENT_LR = 0.1


class MessageTemplates(NamedTuple):
    """One message of each kind; only shapes and dtypes have a meaning."""

    server: Any
    broadcast: Any
    client_state: Any
    survey: Any
    report: Any


def make_templates(
    algorithm: Algorithm[Any, Any, Any, Any],
    params: Vector,
    shapes: tuple[torch.Size, ...],
    gradient: Gradient = torch.zeros_like,
    full_gradient: Gradient = torch.zeros_like,
) -> MessageTemplates:
    """Run every function of an algorithm once and return the messages.

    Args:
        algorithm: The algorithm.
        params: The parameters of the model.
        shapes: The shapes of the model's parameters, in their order in the flat vector.
        gradient: The gradient of the only minibatch.
        full_gradient: The gradient over all data of the client.
    """
    with torch.no_grad():
        server, kept = algorithm.init_server(params), algorithm.init_client(params)
        survey = algorithm.survey(full_gradient, params, kept)
        server = algorithm.merge(server, survey, Round(0, _CLIENT_LR, 1.0, 1, 1, float("nan")))
        sent = algorithm.broadcast(server)
        start, local = algorithm.start(sent, kept), algorithm.init_local(full_gradient, sent, kept)
        count = params.new_ones(1)
        step = Step(0, count, _CLIENT_LR, shapes)
        direction, local = algorithm.step(gradient, start, sent, kept, local, step)
        end = start - _CLIENT_LR * direction
        run = LocalRun(start, end, direction, count, _CLIENT_LR, full_gradient, local)
        report, kept = algorithm.report(run, sent, kept)
    return MessageTemplates(server, sent, kept, survey, report)
