"""Whoever may write sees what is written in, and a role for one team is none for another."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kbmesh.auth import LOCAL_PRINCIPAL, Principal
from services.ingest.domain.access import may_write
from services.ingest.domain.models import OwnerType

IDS = [UUID(int=number) for number in range(4)]
ids = st.sampled_from(IDS)
roles = st.one_of(
    st.sampled_from(["editor", "admin", "viewer", "", "team::editor"]),
    st.builds("team:{}:{}".format, ids, st.sampled_from(["editor", "admin", "viewer", ""])),
)
principals = st.builds(Principal, ids, st.frozensets(ids), st.frozensets(roles))
owner_types = st.sampled_from(OwnerType)


@given(principals, owner_types, ids)
def test_writing_is_for_owners_and_for_members_with_a_writing_role(
    principal: Principal, owner_type: OwnerType, owner: UUID
) -> None:
    writing = {"editor", "admin", f"team:{owner}:editor", f"team:{owner}:admin"}
    editor = owner in principal.teams and bool(writing & principal.roles)
    expected = owner == principal.sub if owner_type is OwnerType.USER else editor

    assert may_write(principal, owner_type, owner) is expected


@given(principals, ids, ids)
def test_roles_of_other_teams_change_nothing(principal: Principal, team: UUID, other: UUID) -> None:
    if team == other:
        return
    more = Principal(principal.sub, principal.teams, principal.roles | {f"team:{other}:editor"})

    assert may_write(more, OwnerType.TEAM, team) == may_write(principal, OwnerType.TEAM, team)


def test_the_local_user_may_do_everything_in_its_own() -> None:
    assert may_write(LOCAL_PRINCIPAL, OwnerType.USER, LOCAL_PRINCIPAL.sub)
