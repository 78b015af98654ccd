"""Where webhooks may go. Names are resolved for real, as far as this machine knows them without a network."""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from kbmesh.errors import InvalidArgument
from services.ingest.adapters.endpoints import HttpEndpoints, is_public


@pytest.fixture
async def endpoints() -> AsyncIterator[HttpEndpoints]:
    endpoints = HttpEndpoints(allow_private=False, timeout_s=5)
    yield endpoints
    await endpoints.close()


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://127.0.0.1/",
        "https://localhost/hook",
        "https://localhost.:8443/hook",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::ffff:7f00:1]/",
        "https://[fe80::1]/",
        "https://[fd00::1]/",
        "https://[64:ff9b::7f00:1]/",
        "https://[2002:7f00:1::]/",
        "https://2130706433/",
        "https://xn--/",
        "https://xn--a.com/",
        "https://0x7f000001/",
        "https://0177.0.0.1/",
        "https://0x7f.1/",
        "https://127.1/",
        "https://0/",
        "https://0.0.0.0/",
        "https://10.0.0.1/",
        "https://172.16.0.1/",
        "https://192.168.1.1/",
        "https://100.64.0.1/",
        "https://169.254.169.254/latest/meta-data/",
        "https://224.0.0.1/",
        "https://255.255.255.255/",
        "https://example.com@127.0.0.1/",
        "https://user:secret@8.8.8.8/",
        "https://8.8.8.8\\@127.0.0.1/",
        "https://nowhere.invalid/",
        "http://8.8.8.8/",
        "ftp://8.8.8.8/",
        "file:///etc/passwd",
        "//8.8.8.8/",
        "https://",
        "not a url",
        "https://8.8.8.8:99999/",
    ],
)
async def test_what_is_not_a_public_https_endpoint_is_refused(endpoints: HttpEndpoints, endpoint: str) -> None:
    for refused in (endpoints.check(endpoint), endpoints.post(endpoint, {}, b"")):
        with pytest.raises(InvalidArgument) as caught:
            await refused
        assert caught.value.code == "endpoint_refused"


@pytest.mark.parametrize("endpoint", ["https://8.8.8.8/", "https://[2606:4700::1111]:8443/hook"])
async def test_a_public_address_is_taken(endpoints: HttpEndpoints, endpoint: str) -> None:
    await endpoints.check(endpoint)


async def test_a_name_with_one_private_address_among_public_ones_is_refused(
    endpoints: HttpEndpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(*_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 443)) for ip in ("8.8.8.8", "10.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(InvalidArgument):
        await endpoints.check("https://both.example/")


async def test_the_address_that_was_checked_is_the_one_that_is_used_under_the_name_that_was_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The name leads elsewhere at a second look; the first of its addresses does not answer."""
    hosts: list[str] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        hosts.extend(line[6:] for line in head.decode().split("\r\n") if line.lower().startswith("host: "))
        writer.write(b"HTTP/1.1 204 X\r\n\r\n")
        await writer.drain()
        writer.close()

    looks = 0

    def resolve(*_: object, **__: object) -> list[Any]:
        nonlocal looks
        looks += 1
        ips = ("127.0.0.9", "127.0.0.1") if looks == 1 else ("10.0.0.1",)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 0)) for ip in ips]

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    endpoints = HttpEndpoints(allow_private=True, timeout_s=5)
    real = socket.getaddrinfo

    def only_the_name(host: Any, *arguments: Any, **options: Any) -> list[Any]:
        known = host in ("hook.example", b"hook.example")
        return resolve() if known else real(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", only_the_name)
    assert await endpoints.post(f"http://hook.example:{port}/", {}, b"{}") == 204
    assert (hosts, looks) == ([f"hook.example:{port}"], 1)
    await endpoints.close()
    server.close()


async def test_a_certificate_is_checked_for_the_name_and_not_for_the_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    async def send(_: httpx.AsyncClient, request: httpx.Request, **__: Any) -> httpx.Response:
        asked.append((str(request.url), request.headers["host"], request.extensions["sni_hostname"]))
        return httpx.Response(200)

    monkeypatch.setattr(httpx.AsyncClient, "send", send)
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda *_, **__: [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2606:4700::1111", 443, 0, 0))],
    )
    endpoints = HttpEndpoints(allow_private=False, timeout_s=5)
    await endpoints.post("https://bücher.example/hook", {}, b"{}")
    await endpoints.close()
    assert asked == [("https://[2606:4700::1111]/hook", "xn--bcher-kva.example", "xn--bcher-kva.example")]


def test_addresses_that_stand_for_others_count_as_those() -> None:
    public = {"8.8.8.8", "::ffff:8.8.8.8", "2606:4700::1111"}
    private = {"::ffff:10.0.0.1", "fec0::1", "2001:0:1::1", "ff02::1", "::", "240.0.0.1", "192.0.0.1"}
    for text in public | private:
        assert is_public(ipaddress.ip_address(text)) == (text in public), text
