"""Who sees a team's document may not change its course without the role for it."""

from pathlib import Path
from uuid import UUID, uuid4

import pytest

from kbmesh.messaging import Topics
from kbmesh.postgres import Pool
from tests.support.documents import upload
from tests.support.gateway import bearer, client_of, make_gateway

EDITOR, READER, STRANGER, TEAM = UUID(int=1), UUID(int=2), UUID(int=3), UUID(int=4)


@pytest.mark.parametrize(
    ("caller", "status"),
    [
        (bearer(READER, teams=(TEAM,)), 403),
        (bearer(STRANGER), 404),
    ],
)
async def test_reprocessing_and_cancelling_take_the_role_of_an_editor(
    pool: Pool, tmp_path: Path, caller: dict[str, str], status: int
) -> None:
    async with client_of(make_gateway(pool, tmp_path, Topics("kbmesh"))) as http:
        http.headers.update(bearer(EDITOR, teams=(TEAM,), roles=("editor",)))
        created = await http.post(
            "/knowledge-bases", json={"name": "Team", "owner_type": "team", "owner_id": str(TEAM)}
        )
        kb = created.json()["id"]
        document = await upload(http, kb, b"Revenue is booked on delivery.")

        for path in (
            f"/documents/{document}/reprocess",
            f"/documents/{document}/reembed",
            f"/documents/{document}/cancel",
            f"/knowledge-bases/{kb}/reprocess",
            f"/knowledge-bases/{kb}/reembed",
        ):
            answer = await http.post(path, headers=caller)
            assert answer.status_code == status, path
            missing = path.replace(document, str(uuid4())).replace(kb, str(uuid4()))
            assert (await http.post(missing, headers=caller)).status_code == 404

        assert (await http.get(f"/documents/{document}")).json()["revision"] == 1
        assert (await http.post(f"/documents/{document}/cancel")).status_code == 200
