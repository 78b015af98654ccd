import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from kbmesh.messaging import Topics
from kbmesh.postgres import Pool
from services.ingest.domain.content_type import ContentType
from services.ingest.entrypoints.http import Gateway
from tests.support.documents import receipt
from tests.support.files import zipped
from tests.support.gateway import ALICE, BOB, MAX_BYTES, bearer, make_gateway, stored_files

TEXT = b"Revenue is booked on delivery. It is reported each month.\n"


@pytest.fixture
def gateway(pool: Pool, store_dir: Path) -> Gateway:
    return make_gateway(pool, store_dir, Topics("kbmesh"), idle_timeout_s=0.3)


async def upload(http: httpx.AsyncClient, kb: str, data: bytes = TEXT, **params: str) -> httpx.Response:
    query = {"filename": "policy.txt", **params}
    return await http.post(f"/knowledge-bases/{kb}/documents", params=query, content=data)


async def events(pool: Pool, topic: str) -> list[str]:
    rows = await pool.fetch("SELECT headers->>'ce_type' AS type FROM outbox WHERE topic = $1 ORDER BY id", topic)
    return [row["type"].rsplit(".", 1)[-1] for row in rows]


async def test_an_upload_is_accepted_stored_and_announced(
    http: httpx.AsyncClient, kb: str, pool: Pool, store_dir: Path
) -> None:
    answer = await upload(http, kb, category="governance_policy", source_priority="IndustryBenchmark")

    assert answer.status_code == 202
    body = answer.json()
    assert (body["revision"], body["status"], body["unchanged"]) == (1, "pending", False)
    assert answer.headers["location"] == f"/documents/{body['document_id']}"
    document = (await http.get(answer.headers["location"])).json()
    assert document["content_sha256"] == hashlib.sha256(TEXT).hexdigest()
    assert document["size_bytes"] == len(TEXT)
    assert document["content_type"] == "text/plain"
    assert (document["category"], document["source_priority"]) == ("governance_policy", "IndustryBenchmark")
    assert (document["uploader"], document["live_revision"]) == (str(ALICE), None)
    [stored] = stored_files(store_dir)
    assert stored.read_bytes() == TEXT
    assert await events(pool, "kbmesh.documents.v1") == ["DocumentUploaded"]
    assert await events(pool, "kbmesh.status.v1") == ["DocumentStatusChanged"]


@pytest.mark.parametrize("fields_first", [True, False])
async def test_a_form_may_have_its_fields_before_or_behind_the_file(
    http: httpx.AsyncClient, kb: str, fields_first: bool
) -> None:
    field = b'--b\r\nContent-Disposition: form-data; name="category"\r\n\r\nstrategy\r\n'
    file = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="plan.md"\r\n'
        b"Content-Type: text/markdown\r\n\r\n# Plan\n\nGrow.\r\n"
    )
    parts = field + file if fields_first else file + field
    answer = await http.post(
        f"/knowledge-bases/{kb}/documents",
        content=parts + b"--b--\r\n",
        headers={"Content-Type": "multipart/form-data; boundary=b"},
    )

    assert answer.status_code == 202, answer.text
    document = (await http.get(answer.headers["location"])).json()
    assert (document["filename"], document["category"]) == ("plan.md", "strategy")
    assert document["content_type"] == "text/markdown"


async def test_a_form_made_by_a_client_library_works(http: httpx.AsyncClient, kb: str) -> None:
    answer = await http.post(
        f"/knowledge-bases/{kb}/documents",
        files={"file": ("Größe 尺寸.txt", TEXT)},
        data={"category": "architecture"},
    )

    assert answer.status_code == 202, answer.text
    assert answer.json()["filename"] == "Größe 尺寸.txt"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "malformed_multipart"),
        (b"no boundary here", "malformed_multipart"),
        (b'--b\r\nContent-Disposition: form-data; name="category"\r\n\r\nother\r\n--b--\r\n', "file_missing"),
        (
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\ncut',
            "malformed_multipart",
        ),
        (
            b'--b\r\nContent-Disposition: form-data; name="category"\r\n\r\n' + b"x" * 40_000 + b"\r\n--b--\r\n",
            "malformed_multipart",
        ),
    ],
)
async def test_a_malformed_form_is_refused_and_leaves_nothing(
    http: httpx.AsyncClient, kb: str, store_dir: Path, body: bytes, code: str
) -> None:
    answer = await http.post(
        f"/knowledge-bases/{kb}/documents",
        content=body,
        headers={"Content-Type": "multipart/form-data; boundary=b"},
    )

    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert stored_files(store_dir) == []


@pytest.mark.parametrize("boundary", ["", "; boundary=", "; boundary=" + "b" * 300])
async def test_a_form_without_a_boundary_is_refused(http: httpx.AsyncClient, kb: str, boundary: str) -> None:
    content_type = "multipart/form-data" + boundary
    answer = await http.post(
        f"/knowledge-bases/{kb}/documents", content=b"x", headers={"Content-Type": content_type}
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_multipart")


@pytest.mark.parametrize(
    ("data", "filename", "content_type"),
    [
        (zipped("[Content_Types].xml", "xl/workbook.xml"), "renamed.docx", ContentType.XLSX),
        (b"{\\rtf1 Rows}", "letter.doc", ContentType.RTF),
        (b"a,b\n1,2\n", "rows.csv", ContentType.CSV),
    ],
)
async def test_the_content_decides_the_type_whatever_the_name(
    http: httpx.AsyncClient, kb: str, data: bytes, filename: str, content_type: ContentType
) -> None:
    location = (await upload(http, kb, data, filename=filename)).headers["Location"]
    assert (await http.get(location)).json()["content_type"] == content_type


@pytest.mark.parametrize(
    ("data", "params", "status", "code"),
    [
        (b"", {}, 400, "empty_file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40, {"filename": "a.pdf"}, 415, "unsupported_type"),
        (b"MZ\x90\x00" + bytes(range(256)) * 40, {"filename": "a.txt"}, 415, "unsupported_type"),
        (b"x" * (MAX_BYTES + 1), {}, 413, "too_large"),
        (TEXT, {"category": "secret"}, 400, "unknown_category"),
        (TEXT, {"source_priority": "Gospel"}, 400, "unknown_source_priority"),
        (TEXT, {"filename": ""}, 400, "filename_missing"),
        (TEXT, {"filename": "../.."}, 400, "filename_missing"),
        (TEXT, {"filename": "x" * 256}, 400, "filename_too_long"),
    ],
)
async def test_bad_uploads_are_refused_with_a_code_and_leave_nothing(
    http: httpx.AsyncClient,
    kb: str,
    pool: Pool,
    store_dir: Path,
    data: bytes,
    params: dict[str, str],
    status: int,
    code: str,
) -> None:
    answer = await upload(http, kb, data, **params)

    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert stored_files(store_dir) == []
    assert await pool.fetchval("SELECT count(*) FROM documents") == 0
    assert (await upload(http, kb)).status_code == 202


async def test_a_file_of_exactly_the_limit_is_taken(http: httpx.AsyncClient, kb: str) -> None:
    assert (await upload(http, kb, b"x" * MAX_BYTES)).status_code == 202


async def test_an_upload_over_the_limit_is_refused_while_it_streams(
    http: httpx.AsyncClient, kb: str, store_dir: Path
) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 100_000
            yield b"x" * 100_000

    answer = await http.post(f"/knowledge-bases/{kb}/documents", params={"filename": "big.txt"}, content=endless())

    assert answer.status_code == 413
    assert sent <= MAX_BYTES + 300_000
    assert stored_files(store_dir) == []


async def test_an_upload_that_stands_still_is_given_up(http: httpx.AsyncClient, kb: str, store_dir: Path) -> None:
    async def stalling() -> AsyncIterator[bytes]:
        yield TEXT
        await asyncio.sleep(30)

    answer = await http.post(
        f"/knowledge-bases/{kb}/documents", params={"filename": "slow.txt"}, content=stalling()
    )

    assert (answer.status_code, answer.json()["code"]) == (408, "upload_stalled")
    assert stored_files(store_dir) == []


async def test_a_path_in_the_name_is_dropped(http: httpx.AsyncClient, kb: str) -> None:
    answer = await upload(http, kb, filename="../../etc/pass\u202ewd\x00.txt")
    assert answer.json()["filename"] == "passwd.txt"


async def test_someone_elses_knowledge_base_is_as_a_missing_one(
    http: httpx.AsyncClient, kb: str, store_dir: Path
) -> None:
    http.headers.update(bearer(BOB))

    theirs, missing = await upload(http, kb), await upload(http, str(uuid4()))

    assert theirs.status_code == missing.status_code == 404
    assert theirs.json()["code"] == missing.json()["code"] == "knowledge_base_not_found"
    assert (await http.get(f"/knowledge-bases/{kb}/documents")).status_code == 404
    assert stored_files(store_dir) == []


async def test_the_same_bytes_again_change_nothing(
    http: httpx.AsyncClient, kb: str, pool: Pool, store_dir: Path
) -> None:
    first = await upload(http, kb)
    again = await upload(http, kb)

    assert (again.status_code, again.json()["unchanged"]) == (200, True)
    assert again.json()["document_id"] == first.json()["document_id"]
    assert await events(pool, "kbmesh.documents.v1") == ["DocumentUploaded"]
    assert len(stored_files(store_dir)) == 1


async def test_other_bytes_under_the_same_name_are_a_new_revision(
    http: httpx.AsyncClient, kb: str, pool: Pool
) -> None:
    first = (await upload(http, kb)).json()
    second = (await upload(http, kb, TEXT + b"Changed.")).json()

    assert second["document_id"] == first["document_id"]
    assert (second["revision"], second["unchanged"]) == (2, False)
    assert await events(pool, "kbmesh.documents.v1") == ["DocumentUploaded", "DocumentUploaded"]


async def test_another_category_is_a_new_revision_too(http: httpx.AsyncClient, kb: str) -> None:
    await upload(http, kb, category="strategy")
    assert (await upload(http, kb, category="architecture")).json()["revision"] == 2


async def test_deletion_removes_the_object_and_says_what_went(
    http: httpx.AsyncClient, kb: str, pool: Pool, store_dir: Path
) -> None:
    document = (await upload(http, kb)).json()["document_id"]

    answer = await http.delete(f"/documents/{document}")

    assert answer.json() == receipt(documents=1, objects=1, documents_in_progress=1, messages_fenced=1)
    assert (await http.get(f"/documents/{document}")).status_code == 404
    assert stored_files(store_dir) == []
    assert await events(pool, "kbmesh.documents.v1") == ["DocumentUploaded", "DocumentDeleted"]


async def test_deleting_a_knowledge_base_deletes_its_documents(
    http: httpx.AsyncClient, kb: str, pool: Pool, store_dir: Path
) -> None:
    for name in ("a.txt", "b.txt"):
        await upload(http, kb, filename=name)

    answer = await http.delete(f"/knowledge-bases/{kb}")

    assert answer.json()["documents"] == answer.json()["objects"] == 2
    assert await pool.fetchval("SELECT count(*) FROM documents") == 0
    assert stored_files(store_dir) == []
    assert (await upload(http, kb)).status_code == 404


async def test_documents_are_listed_page_by_page(http: httpx.AsyncClient, kb: str) -> None:
    names = [f"{n}.txt" for n in range(3)]
    for name in names:
        await upload(http, kb, filename=name)

    first = (await http.get(f"/knowledge-bases/{kb}/documents", params={"limit": 2})).json()
    second = (
        await http.get(f"/knowledge-bases/{kb}/documents", params={"limit": 2, "after": first["next_after"]})
    ).json()

    assert [item["filename"] for page in (first, second) for item in page["items"]] == names
    assert second["next_after"] is None


async def test_malformed_ids_are_told_apart_from_missing_ones(http: httpx.AsyncClient) -> None:
    answer = await http.get("/documents/not-a-uuid")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


async def test_the_openapi_document_describes_problems(http: httpx.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()
    assert document["paths"]["/knowledge-bases/{kb_id}/documents"]["post"]["responses"]["415"]["content"] == {
        "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
    }
    assert "Problem" in document["components"]["schemas"]
