"""The shares of a site's examples that are not trained on: validation data, and test data of the site's own.

A site draws which examples these are, and the server computes how many from the number that the site reports. The draw
is a function of (seed, client), so that it is that of a simulation with the natural split.
"""

from typing import NamedTuple

import numpy as np

from fedcm.config.sections import Experiment
from fedcm.data.client_tests import divide_part
from fedcm.data.validation import count_held_back, hold_back_of_client


class SiteParts(NamedTuple):
    """The examples of a site, as indices; parts that are not held back are empty."""

    training: np.ndarray
    tests: np.ndarray
    validation: np.ndarray


class SiteShares(NamedTuple):
    """The shares of each site's examples that an experiment holds back."""

    validation: float | None = None
    tests: float | None = None  # of the examples that are not validation data

    @classmethod
    def of(cls, experiment: Experiment) -> "SiteShares":
        """Return the shares of an experiment."""
        return cls(experiment.data.validation, experiment.evaluation.clients)

    def count_validation(self, examples: int) -> int:
        """Return how many of a site's examples are validation data."""
        return 0 if self.validation is None else count_held_back(examples, self.validation)

    def count_tests(self, examples: int) -> int:
        """Return how many of a site's examples are its test data."""
        return 0 if self.tests is None else count_held_back(examples - self.count_validation(examples), self.tests)

    def count_training(self, examples: int) -> int:
        """Return how many of a site's examples it trains on; at least one.

        >>> SiteShares(validation=0.1, tests=0.5).count_training(20), SiteShares().count_training(20)
        (9, 20)
        """
        return examples - self.count_validation(examples) - self.count_tests(examples)

    def draw(self, examples: int, seed: int, client: int) -> SiteParts:
        """Draw the parts of a site's examples.

        Args:
            examples: The number of the site's examples.
            seed: The experiment's seed.
            client: The site's index among the run's sites.
        """
        training, tests, validation = np.arange(examples), np.zeros(0, np.int64), np.zeros(0, np.int64)
        if self.validation is not None:
            validation, training = hold_back_of_client(training, self.validation, seed, client)
        if self.tests is not None:
            training, tests = divide_part(training, self.tests, seed, client)
        return SiteParts(training, tests, validation)
