import json
from typing import Any

import pytest

from kbmesh.errors import InvalidArgument
from services.ingest.domain.metadata import MAX_BYTES, parse_metadata


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"owner": "Finance", "year": 2026, "share": 0.25, "audited": True, "until": None, "tags": ["a", "b"]},
        {"größe": "数据 🙂", "empty": "", "none": []},
        {"k" * 100: -(2**53) + 1, "k": 5e-324},
        {str(n): n for n in range(64)},
        {"padding": "x" * (MAX_BYTES - 15)},
    ],
)
def test_flat_metadata_is_read_as_it_was_written(metadata: dict[str, Any]) -> None:
    assert parse_metadata(json.dumps(metadata, ensure_ascii=False)) == metadata


@pytest.mark.parametrize("text", [None, "", "{}", " {} "])
def test_nothing_said_is_nothing_noted(text: str | None) -> None:
    assert parse_metadata(text) == {}


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("owner=Finance", "not JSON"),
        ('{"a": 1', "not JSON"),
        ('{"a": 1} {}', "not JSON"),
        ("[" * 10_000, "not JSON"),
        ('{"a":' * 3000, "not JSON"),
        ('{"a": ' + "9" * 5000 + "}", "not JSON"),
        ("[]", "JSON object"),
        ("null", "JSON object"),
        ('"text"', "JSON object"),
        ('{"a": {"b": 1}}', "'a' is something else"),
        ('{"a": [1]}', "'a' is something else"),
        ('{"a": [["b"]]}', "'a' is something else"),
        ('{"a": ["b", null]}', "'a' is something else"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a": NaN}', "number"),
        ('{"a": -Infinity}', "number"),
        ('{"a": 1e999}', "number"),
        ('{"a": 9007199254740992}', "as a text"),
        ('{"a": "\\u0000"}', "NUL"),
        ('{"a": ["b", "\\ud800"]}', "surrogate"),
        ('{"\\u0000": 1}', "NUL"),
        ('{"\\udfff": {}}', "surrogate"),
        ('{"": 1}', "1 to 100"),
        (json.dumps({"k" * 101: 1}), "1 to 100"),
        (json.dumps({str(n): n for n in range(65)}), "64 keys"),
        (json.dumps({"a": "x" * MAX_BYTES}), "16384 bytes"),
        (json.dumps({"a": "ö" * (MAX_BYTES // 2)}, ensure_ascii=False), "16384 bytes"),
    ],
)
def test_anything_else_is_refused_with_what_is_wrong(text: str, about: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_metadata(text)
    assert caught.value.code == "invalid_metadata"
    assert about in caught.value.detail
    caught.value.detail.encode()
