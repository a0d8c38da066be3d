"""Training and eval mode of a model's modules: each stays as the user handed it over, and evaluation changes none.

A module in eval mode is frozen: batch norm uses its running statistics as constants, dropout does nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.dropout import _DropoutNd

from fedcm.errors import UserError
from fedcm.system.notices import EvalModeWarning, warn


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[nn.Module]:
    """Inside, the whole model is in eval mode; afterwards every module is in the mode that it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield model
    finally:
        for module, mode in modes:  # parents before children; by `train`, which a module may have overridden
            if module.training != mode:
                module.train(mode)
        for module, mode in modes:  # a module with two parents
            module.training = mode


def updates_statistics(module: nn.Module) -> bool:
    """Whether a step changes the running statistics of this norm."""
    return isinstance(module, _NormBase) and module.training and module.track_running_stats


def uses_batch_statistics(module: nn.Module) -> bool:
    """Whether this norm's output for one example depends on the others of the batch."""
    return isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)


def reject_updated_statistics(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if updates_statistics(module):
            raise UserError(
                f"the model must not change running statistics in its steps, and {type(module).__name__} at "
                f"{name or 'its root'!r} does, because it is in training mode: they are no parameters, so they would "
                "depend on which client trained last; use nn.GroupNorm instead, freeze it by calling its eval() (its "
                "statistics are then constants), or give it track_running_stats=False (it then uses each batch's own)"
            )


def warn_of_eval_mode(model: nn.Module) -> None:
    """A model that was evaluated last, and not put back, trains without dropout: perhaps by mistake."""
    if not model.training and any(_drops(module) for module in model.modules()):
        warn(
            f"the model {type(model).__name__} is in eval mode and stays in it, so its dropout is off; call "
            "model.train() before you hand it over to have dropout on",
            EvalModeWarning,
        )


def _drops(module: nn.Module) -> bool:
    """Whether it has dropout that its mode turned off: layers of their own, or a setting of recurrent and attention
    layers."""
    rate = module.p if isinstance(module, _DropoutNd) else getattr(module, "dropout", 0.0)
    return not module.training and isinstance(rate, int | float) and rate > 0
