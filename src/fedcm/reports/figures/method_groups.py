"""The groups of the bundled algorithms, by name.

They repeat `fedcm.algorithms.GROUPS`, because a report about digests does not import torch, which the algorithms need.
"""

METHOD_GROUPS = {
    "averaging": ("fedavg", "fedprox", "fednova", "fedexp", "fedswa", "signsgd"),
    "server momentum": ("fedavgm", "slowmo", "fedacg"),
    "client momentum": ("fedcm", "fedcm-anytime", "mimelite", "mime", "ghbm", "mfl", "fedac"),
    "variance reduction": ("scaffold", "fedmoswa", "vrl-sgd", "feddane"),
    "primal-dual": ("feddyn", "fedpd", "fedsplit"),
    "sharpness-aware": ("fedsam", "mofedsam", "fedlesam", "fedspeed", "fedsmoo"),
    "adaptive": ("fedadam", "fedyogi", "fedadagrad", "adaalter", "fedlada", "fedmuon"),
    "decentralised": ("d-sgd", "qg-dsgdm"),
}
OTHER_METHODS = "other"
_GROUP_BY_NAME = {name: group for group, names in METHOD_GROUPS.items() for name in names}


def get_method_group(algorithm: str) -> str:
    """Return the group of an algorithm.

    >>> get_method_group("fedcm"), get_method_group("my_module:Own")
    ('client momentum', 'other')
    """
    return _GROUP_BY_NAME.get(algorithm, OTHER_METHODS)
