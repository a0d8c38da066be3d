"""Metrics of torchmetrics by name: task and number of classes or labels are filled in from the data."""

import inspect
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from torch import Tensor

from fedcm.core.losses import reshape_outputs
from fedcm.core.scoring.summed import SUMMED_NAMES
from fedcm.core.scoring.traits import MetricTraits
from fedcm.core.scoring.whole import WholeMetric
from fedcm.data.dataset import IGNORED
from fedcm.errors import UserError, suggest
from fedcm.system.error_messages import describe_error

_CLASSES = {
    "f1": "F1Score",
    "precision": "Precision",
    "recall": "Recall",
    "specificity": "Specificity",
    "auroc": "AUROC",
    "average_precision": "AveragePrecision",
    "jaccard": "JaccardIndex",
    "kappa": "CohenKappa",
    "mcc": "MatthewsCorrCoef",
    "calibration_error": "CalibrationError",
    "r2": "R2Score",
    "pearson": "PearsonCorrCoef",
    "spearman": "SpearmanCorrCoef",
    "explained_variance": "ExplainedVariance",
}
_AVERAGED = ("f1", "precision", "recall", "specificity")  # by default over classes: over examples they are the accuracy
_SHARES = ("Accuracy", "F1Score", "FBetaScore", "Precision", "Recall", "Specificity", "AUROC", "AveragePrecision")
_SHARES += ("JaccardIndex", "ExactMatch")  # between 0 and 1


class Task(NamedTuple):
    """What outputs and labels mean."""

    kind: Literal["multiclass", "multilabel", "binary", "regression"]
    size: int  # classes, or labels per example


def infer_task(outputs: Any, labels: Any) -> Task:
    """Return the task, from the outputs and labels of some examples.

    Integer labels with one output per class are "multiclass". Labels of zeros and ones with one output per label are
    "multilabel", or "binary" if an example has one label. All others are numbers of a regression.

    Raises:
        UserError: If outputs or labels are not tensors.
    """
    if not (isinstance(outputs, Tensor) and isinstance(labels, Tensor)):
        raise UserError("metrics of torchmetrics need outputs and labels that are tensors")
    one_per_class = labels.shape[1:] == outputs.shape[2:] or (outputs.dim() == 2 and labels.shape[1:] == (1,))
    if not labels.is_floating_point() and outputs.dim() >= 2 and outputs.shape[1] >= 2 and one_per_class:
        return Task("multiclass", outputs.shape[1])
    own = labels[0].numel()
    if outputs.numel() == labels.numel() and bool(((labels == 0) | (labels == 1)).all()):
        return Task("multilabel", own) if own > 1 else Task("binary", 1)
    return Task("regression", own)


def make_torchmetrics_metric(
    name: str, column: str, options: Mapping[str, Any], task: Task, higher_is_better: bool | None = None
) -> WholeMetric:
    """Return a metric of torchmetrics.

    Args:
        name: A short name such as "f1", or the name of a class of torchmetrics.
        column: Its name in metrics.jsonl.
        options: Arguments of the class; they override what follows from the task.
        task: What outputs and labels mean.
        higher_is_better: The direction; by default what torchmetrics says.

    Raises:
        UserError: If torchmetrics is not installed, has no such class, or the class rejects its arguments.
    """
    kind = _find_class(name)
    parameters = _list_parameters(kind)
    filled: dict[str, Any] = {
        "task": task.kind,
        "num_classes": task.size,
        "num_labels": task.size,
        "num_outputs": task.size,
    }
    if task.kind != "multiclass":
        del filled["num_classes"]
    if task.kind != "multilabel":
        del filled["num_labels"]
    if task.kind == "multiclass":
        filled["ignore_index"] = IGNORED
    if name in _AVERAGED:
        filled["average"] = "macro"
    if "task" in parameters and task.kind == "regression" and "task" not in options:
        raise UserError(f"the metric {name!r} needs classes, or labels of zeros and ones, and the labels are numbers")
    arguments = {key: value for key, value in filled.items() if key in parameters} | dict(options)
    try:
        metric = kind(**arguments)
    except Exception as error:
        given = ", ".join(f"{key} = {value!r}" for key, value in arguments.items())
        raise UserError(f"the metric {name!r} cannot be made with {given}: {describe_error(error)}") from error
    metric.distributed_available_fn = lambda: False  # it has all outputs; torchmetrics would wait for other processes
    better = higher_is_better if higher_is_better is not None else metric.higher_is_better is not False
    traits = MetricTraits(better, better and kind.__name__ in _SHARES)

    def compute(outputs: Any, labels: Any) -> Any:
        predictions, targets = _prepare(outputs, labels, task)
        metric.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # for example, that a class has no example
            metric.update(predictions, targets)
            value = metric.compute()
        metric.reset()
        return value

    return WholeMetric(column, traits, compute)


def _find_class(name: str) -> Any:
    try:
        import torchmetrics
    except ImportError as error:
        raise UserError(
            f"the metric {name!r} requires torchmetrics, which cannot be imported ({error}); install it with "
            "`pip install 'fedcm[metrics]'`"
        ) from error
    kind = getattr(torchmetrics, _CLASSES.get(name, name), None)
    if not (isinstance(kind, type) and issubclass(kind, torchmetrics.Metric)):
        hint = suggest(name, [*SUMMED_NAMES, *_CLASSES])
        raise UserError(f"there is no metric {name!r}; give a known one or the name of a class of torchmetrics; {hint}")
    return kind


def _list_parameters(kind: type) -> Mapping[str, Any]:
    """The arguments of a class; a class for several tasks chooses the right one in `__new__`."""
    function = kind.__new__ if kind.__new__ is not object.__new__ else kind.__init__
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return MappingProxyType({})
    return found if set(found) - {"cls", "args", "kwargs"} else inspect.signature(kind.__init__).parameters


def _prepare(outputs: Tensor, labels: Tensor, task: Task) -> tuple[Tensor, Tensor]:
    match task.kind:
        case "multiclass":
            return outputs, labels[:, 0] if outputs.dim() == 2 and labels.dim() == 2 else labels
        case "binary":
            return outputs.reshape(-1), labels.reshape(-1).long()
        case "multilabel":
            return outputs.reshape(labels.shape), labels.long()
        case _:
            shaped = reshape_outputs(outputs, labels)
            return (shaped.reshape(-1), labels.reshape(-1)) if task.size == 1 else (shaped, labels)
