"""Choose what the engine may do with these batches."""

from fedcm.config.sections import EngineSection, Experiment
from fedcm.data.augmentation import Augment
from fedcm.data.federated import FederatedData
from fedcm.data.structures.collate import Collate
from fedcm.errors import UserError


def restrict_engine(
    experiment: Experiment, data: FederatedData, augment: Augment | None, collate: Collate | None
) -> EngineSection:
    """Return the engine without stacks and compilation if the batches rule them out.

    Raises:
        UserError: If the experiment asks for them all the same.
    """
    reasons = {
        "data.augment": augment is not None,
        "data.collate": collate is not None,
        "data.fresh": bool(experiment.data.fresh),
        "model.personal": bool(experiment.model.personal),
        "features or labels of several tensors, unequal lengths or ignored labels": not data.is_stackable,
    }
    engine = experiment.engine
    for reason, applies in reasons.items():
        if applies and engine.stack not in ("auto", 1):
            raise UserError(f"clients with {reason} cannot be stacked, got engine.stack = {engine.stack}; set it to 1")
        if applies:
            engine = engine.model_copy(update={"stack": 1})
    if data.has_fixed_shapes and collate is None:
        return engine
    if engine.compile == "on":  # torch compiles again for every new length, and gives up after some: bits would vary
        raise UserError(
            "a compiled model needs batches of one shape, but data.collate or unequal lengths change it; set "
            "engine.compile = 'off'"
        )
    return engine.model_copy(update={"compile": "off"})
