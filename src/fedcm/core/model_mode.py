"""Training and eval mode of a model's modules.

Each module trains in the mode in which the user handed it over, and an evaluation restores all modes. A module in eval
mode is frozen: batch norm uses its running statistics as constants, dropout does nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.dropout import _DropoutNd

from fedcm.errors import UserError
from fedcm.system.user_warnings import EvalModeWarning, warn_user


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[nn.Module]:
    """Put the whole model into eval mode, and restore the mode of every module at the end."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield model
    finally:
        for module, mode in modes:  # parents before children, through `train`, because a module may override it
            if module.training != mode:
                module.train(mode)
        for module, mode in modes:  # a module with two parents may have been set twice
            module.training = mode


def updates_statistics(module: nn.Module) -> bool:
    """Return whether a step changes the running statistics of this module."""
    return isinstance(module, _NormBase) and module.training and module.track_running_stats


def uses_batch_statistics(module: nn.Module) -> bool:
    """Return whether the output of this norm for one example depends on the other examples of the batch."""
    return isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)


def reject_updated_statistics(model: nn.Module) -> None:
    """Raise UserError if a training step changes running statistics, which are no parameters."""
    for name, module in model.named_modules():
        if updates_statistics(module):
            raise UserError(
                f"the model must not change running statistics in its steps, but {type(module).__name__} at "
                f"{name or 'its root'!r} does, because it is in training mode: the statistics are not parameters, so "
                "they would depend on which client trained last; use nn.GroupNorm instead, freeze the module by "
                "calling its eval() (its statistics are then constants), or give it track_running_stats=False (it then "
                "uses the statistics of each batch)"
            )


def warn_of_eval_mode(model: nn.Module) -> None:
    """Warn if the model is in eval mode and has dropout, which is then off, perhaps by mistake."""
    if not model.training and any(_has_disabled_dropout(module) for module in model.modules()):
        warn_user(
            f"the model {type(model).__name__} is in eval mode and stays in it, so its dropout is off; call "
            "model.train() first to train with dropout",
            EvalModeWarning,
        )


def _has_disabled_dropout(module: nn.Module) -> bool:
    """Return whether eval mode disables dropout of this module: a dropout layer, or a recurrent or attention layer."""
    rate = module.p if isinstance(module, _DropoutNd) else getattr(module, "dropout", 0.0)
    return not module.training and isinstance(rate, int | float) and rate > 0
