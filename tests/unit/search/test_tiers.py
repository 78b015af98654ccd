import pytest

from kbmesh.common.v1 import tier_pb2
from kbmesh.errors import InvalidArgument
from kbmesh.provenance import Tier
from kbmesh.tiers import tier_from_proto, tier_to_proto


@pytest.mark.parametrize("tier", [*Tier, None])
def test_a_tier_survives_the_wire(tier: Tier | None) -> None:
    assert tier_from_proto(tier_to_proto(tier)) is tier


def test_every_tier_of_the_contract_is_known() -> None:
    assert {tier_from_proto(value) for value in tier_pb2.Tier.values()} == {*Tier, None}


def test_a_tier_from_the_future_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="unknown_tier"):
        tier_from_proto(99)  # type: ignore[arg-type] # proto3 enums are open
