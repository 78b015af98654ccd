import asyncio
import ipaddress
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final

import httpx

from kbmesh.errors import InvalidArgument, Unavailable

RESOLVERS: Final = 32
TRANSLATED: Final = tuple(
    ipaddress.IPv6Network(network) for network in ("64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16")
)
"""IPv6 networks whose addresses stand for IPv4 addresses, private ones among them."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class HttpEndpoints:
    """Sends to public addresses over https, unless private ones are allowed; those may be http too.

    The host is resolved once and the connection made to the address that was checked, so that a name cannot be
    public when looked at and private when used. Redirects are not followed and proxies not used.
    """

    def __init__(self, *, allow_private: bool, timeout_s: float) -> None:
        self._allow_private = allow_private
        self._timeout_s = timeout_s
        # Threads of its own: names that resolve slowly keep only other webhooks waiting.
        self._resolvers = ThreadPoolExecutor(RESOLVERS, "resolve")
        # Kept connections are known by their address; the name that its certificate was checked for may differ.
        self._client = httpx.AsyncClient(
            timeout=timeout_s,
            follow_redirects=False,
            trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0),
            headers={"user-agent": "kbmesh"},
        )

    async def close(self) -> None:
        self._resolvers.shutdown(wait=False, cancel_futures=True)
        await self._client.aclose()

    async def check(self, endpoint: str) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._resolve(self._url(endpoint))
        except TimeoutError as error:
            raise _refused("its host cannot be found") from error

    async def post(self, endpoint: str, headers: Mapping[str, str], body: bytes) -> int:
        url = self._url(endpoint)
        try:
            async with asyncio.timeout(self._timeout_s):
                *others, last = await self._resolve(url)
                for address in others:
                    with suppress(httpx.ConnectError):
                        return await self._post_to(address, url, headers, body)
                return await self._post_to(last, url, headers, body)
        except TimeoutError as error:
            raise Unavailable("no answer in time", code="timeout") from error
        except httpx.HTTPError as error:
            raise Unavailable("no answer", code=type(error).__name__) from error

    async def _post_to(self, address: Address, url: httpx.URL, headers: Mapping[str, str], body: bytes) -> int:
        request = self._client.build_request(
            "POST",
            url.copy_with(host=str(address)),
            headers={**headers, "host": url.netloc.decode()},
            content=body,
            extensions={"sni_hostname": url.raw_host.decode()},
        )
        answer = await self._client.send(request, stream=True)
        await answer.aclose()
        return answer.status_code

    def _url(self, endpoint: str) -> httpx.URL:
        try:
            url = httpx.URL(endpoint)
            host = url.host  # decodes an international name
        except (httpx.InvalidURL, UnicodeError) as error:
            raise _refused("it is not a URL") from error
        if url.scheme != "https" and not (self._allow_private and url.scheme == "http"):
            raise _refused("it does not begin with https://")
        if not host or url.userinfo or "\\" in endpoint:
            raise _refused("it has no host, or a user before it")
        if url.port is not None and not 0 < url.port < 65_536:
            raise _refused("its port is not one")
        return url

    async def _resolve(self, url: httpx.URL) -> list[Address]:
        """
        Raises:
            InvalidArgument: the host is unknown, or one of its addresses is not public.
        """
        try:
            found = await asyncio.get_running_loop().run_in_executor(
                self._resolvers, partial(socket.getaddrinfo, url.raw_host, url.port, type=socket.SOCK_STREAM)
            )
            addresses = [ipaddress.ip_address(entry[4][0]) for entry in found]
        except (OSError, UnicodeError, ValueError) as error:
            raise _refused("its host cannot be found") from error
        if not self._allow_private and not all(is_public(address) for address in addresses):
            raise _refused("it leads to an address that is not public")
        return addresses


def is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address.is_site_local or any(address in network for network in TRANSLATED):
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _refused(why: str) -> InvalidArgument:
    return InvalidArgument(f"the endpoint is refused: {why}", code="endpoint_refused")
