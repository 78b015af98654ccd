"""Bodies that the OpenAPI document shows."""

import json
from typing import Any, Final

_KB_ID: Final = "019b2c6e-5f0a-7c31-8a54-2f6d1b9e7c10"
_DOCUMENT_ID: Final = "019b2c6e-91d4-7e02-b6a7-0c4f5d8e3a21"
_USER_ID: Final = "7d1f0a52-3c7b-4e1a-9a64-5be0c2d9f813"
_TIME: Final = "2026-11-30T09:15:00Z"

_METADATA: Final = {"owner": "Finance", "year": 2026, "tags": ["audited", "group"]}
METADATA_TEXT: Final = json.dumps(_METADATA)

KNOWLEDGE_BASE_IN: Final[dict[str, Any]] = {
    "name": "Finance",
    "description": "How we count revenue.",
}
KNOWLEDGE_BASE: Final[dict[str, Any]] = {
    "id": _KB_ID,
    "owner_type": "user",
    "owner_id": _USER_ID,
    **KNOWLEDGE_BASE_IN,
    "created_at": _TIME,
    "updated_at": _TIME,
}
KNOWLEDGE_BASE_DETAIL: Final[dict[str, Any]] = {
    **KNOWLEDGE_BASE,
    "document_count": 3,
    "size_bytes": 481_204,
    "ready_count": 2,
    "failed_count": 1,
}
UPLOADED: Final[dict[str, Any]] = {
    "document_id": _DOCUMENT_ID,
    "kb_id": _KB_ID,
    "filename": "metrics.pdf",
    "revision": 1,
    "status": "pending",
    "metadata": _METADATA,
    "unchanged": False,
}
DOCUMENT: Final[dict[str, Any]] = {
    "id": _DOCUMENT_ID,
    "kb_id": _KB_ID,
    "filename": "metrics.pdf",
    "content_type": "application/pdf",
    "category": "data_dictionary",
    "source_priority": None,
    "metadata": _METADATA,
    "size_bytes": 182_733,
    "content_sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "uploader": _USER_ID,
    "status": "ready",
    "error_code": None,
    "error_detail": None,
    "revision": 1,
    "live_revision": 1,
    "chunk_count": 42,
    "embedded_count": 42,
    "created_at": _TIME,
    "updated_at": _TIME,
}
REMOVED: Final[dict[str, Any]] = {
    "documents": 1,
    "chunks": 42,
    "vectors": 40,
    "objects": 1,
    "documents_in_progress": 1,
    "messages_fenced": 0,
    "left": {"documents": 0, "chunks": 0, "vectors": 0},
    "objects_left": 0,
    "objects_pending": 0,
    "verified": True,
}
PROBLEM: Final[dict[str, Any]] = {
    "type": "about:blank",
    "title": "Not Found",
    "status": 404,
    "code": "document_not_found",
    "detail": "no such document",
    "trace_id": "0af7651916cd43dd8448eb211c80319c",
}
UPLOADED_FILES: Final[dict[str, Any]] = {
    "items": [
        {"filename": "metrics.pdf", "status": 202, "document": UPLOADED, "problem": None},
        {
            "filename": "logo.png",
            "status": 415,
            "document": None,
            "problem": {
                "type": "about:blank",
                "title": "Unsupported Media Type",
                "status": 415,
                "code": "unsupported_type",
                "detail": "neither a document of a supported type nor plain text",
            },
        },
    ]
}
