"""Describe how an experiment splits its data over clients: a summary, and a figure of the labels of each client."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedcm.config.sections import Experiment
from fedcm.data import load_dataset
from fedcm.data.partition import count_labels, measure_label_mix
from fedcm.errors import UserError
from fedcm.reports.figures.label_mix import draw_label_mix
from fedcm.runs.data_split import draw_split, draw_validation


class SplitReport(NamedTuple):
    """The description of a split."""

    summary: dict[str, float]
    figure: Path


def report_split(experiment: Experiment, figure: Path, data_dir: Path | None = None) -> SplitReport:
    """Measure and draw how an experiment splits its data.

    Args:
        experiment: The experiment.
        figure: The figure's file, which ends in .png, .pdf or .svg.
        data_dir: Folder of prepared datasets.

    Raises:
        UserError: If the labels are not classes, or the data cannot be split.
    """
    dataset = load_dataset(experiment.data.source, data_dir)
    if dataset.classes is None:
        raise UserError("the labels must be classes to show their split, got the numbers of a regression")
    held_back = draw_validation(experiment.split, dataset, experiment.seed, experiment.data.validation)
    parts = draw_split(experiment.split, dataset, experiment.seed, held_back and held_back.remaining)
    counts = count_labels(parts, dataset.train.labels.numpy())
    sizes = np.array([len(part) for part in parts])
    summary = measure_label_mix(counts, sizes) | {"unused_examples": dataset.train.size - int(sizes.sum())}
    return SplitReport(summary, draw_label_mix(counts, f"{experiment.name}: {dataset.name}", figure))
