"""Random changes of training batches, anew in every local step.

changes   from the setting `data.augment` to a function of a batch
images    crop, flip and cutout
"""

from fedcm.data.augmentation.changes import Augment, make_augment, reject_failing_augment

__all__ = ["Augment", "make_augment", "reject_failing_augment"]
