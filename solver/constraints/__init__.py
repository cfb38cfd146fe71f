"""The rule families, one module each: what a decision must obey. Their order does not matter."""

from __future__ import annotations

from ...model.decision import RuleFamily
from . import (
    affinity,
    capacity,
    elastic,
    eligibility,
    gang,
    guarantee,
    preemption,
    quota,
    reservation,
    reserved,
    topology,
)

FAMILIES = {
    RuleFamily.GANG: gang.add,
    RuleFamily.ELIGIBILITY: eligibility.add,
    RuleFamily.CAPACITY: capacity.add,
    RuleFamily.TOPOLOGY: topology.add,
    RuleFamily.PREEMPTION: preemption.add,
    RuleFamily.QUOTA: quota.add,
    RuleFamily.RESERVATION: reservation.add,
    RuleFamily.AFFINITY: affinity.add,
    RuleFamily.GUARANTEE: guarantee.add,
    RuleFamily.RESERVED: reserved.add,
    RuleFamily.ELASTIC: elastic.add,
}
