"""Simulated attacks: some clients report something false, or train on poisoned data.

kinds      the attacks and their options
reports    changes the reports of hostile clients before they are averaged
poison     changes the training data of hostile clients, and triggers the test data
hostile    which clients are hostile
"""

from fedcm.core.attacks.kinds import (
    ATTACKS,
    Attack,
    Backdoor,
    InnerProduct,
    LabelFlip,
    LittleIsEnough,
    Noise,
    Scaled,
    SignFlip,
)

__all__ = [
    "ATTACKS",
    "Attack",
    "Backdoor",
    "InnerProduct",
    "LabelFlip",
    "LittleIsEnough",
    "Noise",
    "Scaled",
    "SignFlip",
]
