"""Provenance tiers on the wire, for every contract that carries one."""

from typing import Final

from kbmesh.common.v1 import tier_pb2
from kbmesh.errors import InvalidArgument
from kbmesh.provenance import Tier

_TO_PROTO: Final[dict[Tier, tier_pb2.Tier.ValueType]] = {
    Tier.CUSTOMER_FACT: tier_pb2.TIER_CUSTOMER_FACT,
    Tier.PLATFORM_BEST_PRACTICE: tier_pb2.TIER_PLATFORM_BEST_PRACTICE,
    Tier.INDUSTRY_BENCHMARK: tier_pb2.TIER_INDUSTRY_BENCHMARK,
    Tier.ADVISORY_GUIDANCE: tier_pb2.TIER_ADVISORY_GUIDANCE,
}
_FROM_PROTO: Final = {value: tier for tier, value in _TO_PROTO.items()}


def tier_to_proto(tier: Tier | None) -> tier_pb2.Tier.ValueType:
    """None is TIER_UNSPECIFIED."""
    return tier_pb2.TIER_UNSPECIFIED if tier is None else _TO_PROTO[tier]


def tier_from_proto(value: tier_pb2.Tier.ValueType) -> Tier | None:
    """TIER_UNSPECIFIED is None.

    Raises:
        InvalidArgument: a number that this version does not know.
    """
    if value == tier_pb2.TIER_UNSPECIFIED:
        return None
    try:
        return _FROM_PROTO[value]
    except KeyError:
        raise InvalidArgument(f"unknown tier {value}", code="unknown_tier") from None
