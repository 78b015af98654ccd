"""What the gateway does is what its OpenAPI document says, whatever it is sent."""

import asyncio
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import Case
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from kbmesh.postgres import Pool
from services.ingest.entrypoints.http import create_app
from tests.support.events import TOPICS, serving
from tests.support.gateway import ALICE, TEAM, bearer, make_gateway

EXAMPLES = 30
PARTS = 4  # every operation is in one; all of them together take too long for one test on a busy machine
CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@pytest.mark.parametrize("part", range(PARTS))
async def test_every_answer_is_one_that_the_document_describes(part: int, pool: Pool, tmp_path: Path) -> None:
    gateway = make_gateway(pool, tmp_path / "store", TOPICS, allow_private=True)
    schema = schemathesis.openapi.from_dict(create_app(gateway).openapi()).exclude(path_regex="/events$")
    editor = bearer(ALICE, teams=(TEAM,), roles=("editor",))
    async with serving(gateway) as server:
        for found in islice(schema.get_all_operations(), part, None, PARTS):
            assert isinstance(found, Ok)
            await asyncio.to_thread(_exercise, found.ok(), str(server.http.base_url), editor)


def _exercise(operation: APIOperation[Any, Any, Any, Any], base_url: str, headers: dict[str, str]) -> None:
    """Sends an operation what fits its schema and what does not, to things that exist and things that do not."""
    with httpx.Client(base_url=base_url, headers=headers) as http:
        ids = _things(http)

        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(
            case=st.one_of(*(operation.as_strategy(mode) for mode in GenerationMode)),
            existing=st.booleans(),
        )
        def check(case: Case[Any], existing: bool) -> None:
            if existing:
                known = _things(http) if operation.method.upper() == "DELETE" else ids
                case.path_parameters.update({name: known[name] for name in case.path_parameters if name in known})
            answer = case.call_and_validate(base_url, headers=headers, checks=CHECKS, timeout=10)
            assert answer.status_code < 500 or answer.status_code == 503, answer.content

        check()


def _things(http: httpx.Client) -> dict[str, str]:
    """Ids of things that exist, by the names of their path parameters."""

    def made(method: str, path: str, **request: Any) -> dict[str, Any]:
        answer: dict[str, Any] = http.request(method, path, **request).raise_for_status().json()
        return answer

    kb_id = made("POST", "/knowledge-bases", json={"name": "Finance"})["id"]
    document = made("POST", f"/knowledge-bases/{kb_id}/documents", params={"filename": "a.txt"}, content=b"Churn.")
    channel = made("PUT", "/channels/finance/settings", json={"kb_ids": [kb_id]})
    webhooks = made("GET", "/webhooks")["items"] or [
        made("POST", "/webhooks", json={"endpoint": "http://127.0.0.1:1/"})
    ]
    return {
        "kb_id": kb_id,
        "document_id": document["document_id"],
        "channel_id": channel["id"],
        "webhook_id": webhooks[0]["id"],
    }
