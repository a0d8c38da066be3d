"""What can be found out about an algorithm by running its functions once on example vectors.

violations    the rules of the contract that it breaks
templates     the shapes of its messages
costs         what a round costs a client
"""

from fedcm.core.contract.costs import RoundCosts, measure_costs
from fedcm.core.contract.templates import MessageTemplates, make_templates
from fedcm.core.contract.violations import find_violations

__all__ = ["MessageTemplates", "RoundCosts", "find_violations", "make_templates", "measure_costs"]
