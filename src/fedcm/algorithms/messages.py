"""Messages that several algorithms share. Every field points uphill."""

from typing import NamedTuple

from fedcm.core.algorithm import Vector


class Model(NamedTuple):
    """The parameters of the model alone."""

    params: Vector


class ModelAndMomentum(NamedTuple):
    """The parameters of the model and a momentum of the same shape."""

    params: Vector
    momentum: Vector


class Moved(NamedTuple):
    """How far a client moved: its parameters before its local steps − those after them."""

    moved: Vector


class MeanDirection(NamedTuple):
    """The mean direction of a client's local steps."""

    direction: Vector
