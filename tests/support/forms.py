"""Forms with files, byte by byte, and what they are answered."""

from pathlib import Path

import httpx

from tests.support.gateway import stored_files

FORM = {"Content-Type": "multipart/form-data; boundary=b"}


def file(name: str, data: bytes) -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return head.encode() + data + b"\r\n"


def said(name: str, value: str) -> bytes:
    return f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()


def outcomes(answer: httpx.Response) -> list[tuple[str | None, int, str | None]]:
    """Name, status and code of each item of the answer."""
    assert answer.status_code == 207, answer.text
    return [
        (item["filename"], item["status"], item["problem"] and item["problem"]["code"])
        for item in answer.json()["items"]
    ]


def contents(store_dir: Path) -> list[bytes]:
    return sorted(path.read_bytes() for path in stored_files(store_dir))
