"""What the OpenAPI document promises."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from kbmesh.messaging import Topics
from kbmesh.postgres import Pool
from services.ingest.entrypoints.http import create_app
from services.ingest.entrypoints.http.problems import Problem
from services.ingest.entrypoints.http.schemas import (
    DocumentOut,
    KnowledgeBaseDetail,
    KnowledgeBaseIn,
    KnowledgeBaseOut,
    RemovedOut,
    UploadedFilesOut,
    UploadOut,
)
from tests.support.gateway import make_gateway

PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


@pytest.fixture
def operations(pool: Pool, tmp_path: Path) -> dict[str, Any]:
    document = create_app(make_gateway(pool, tmp_path, Topics("kbmesh"))).openapi()
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_every_route_says_what_it_does_and_how_it_fails(operations: dict[str, Any]) -> None:
    for name, operation in operations.items():
        assert operation.get("description"), name
        if "/health" in name:
            continue
        assert {"401", "422", "503"} <= set(operation["responses"]), name
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                assert answer["content"] == PROBLEM, (name, status)
        if "{" in name:
            assert "404" in operation["responses"], name


def test_conditions_and_keys_are_documented(operations: dict[str, Any]) -> None:
    for name, header, status in [
        ("POST /knowledge-bases/{kb_id}/documents", "idempotency-key", "409"),
        ("GET /documents/{document_id}", "if-none-match", "304"),
        ("GET /documents/{document_id}/content", "if-none-match", "304"),
        ("DELETE /documents/{document_id}", "if-match", "412"),
        ("POST /documents/{document_id}/reprocess", "if-match", "412"),
        ("POST /documents/{document_id}/reembed", "if-match", "412"),
    ]:
        assert header in {parameter["name"] for parameter in operations[name]["parameters"]}, name
        assert status in operations[name]["responses"], name


def test_a_download_is_documented_as_bytes(operations: dict[str, Any]) -> None:
    answer = operations["GET /documents/{document_id}/content"]["responses"]["200"]
    assert answer["content"] == {"*/*": {"schema": {"type": "string", "format": "binary"}}}


def test_a_webhook_is_documented_by_the_names_it_is_shown_with(pool: Pool, tmp_path: Path) -> None:
    document = create_app(make_gateway(pool, tmp_path, Topics("kbmesh"))).openapi()
    assert "events" in document["components"]["schemas"]["WebhookOut"]["properties"]


@pytest.mark.parametrize(
    "model",
    [
        KnowledgeBaseIn,
        KnowledgeBaseOut,
        KnowledgeBaseDetail,
        UploadOut,
        UploadedFilesOut,
        DocumentOut,
        RemovedOut,
        Problem,
    ],
)
def test_an_example_is_complete_and_of_its_own_form(model: type[BaseModel]) -> None:
    [example] = model.model_json_schema()["examples"]
    shown = model.model_validate(example).model_dump(mode="json", exclude_unset=True)
    assert shown == example
    required = {name for name, field in model.model_fields.items() if field.is_required()}
    assert required <= set(example) <= set(model.model_fields)
