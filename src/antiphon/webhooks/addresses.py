"""Which addresses may be called: only those of the public internet.

A name is looked up once, and the address that was looked at is the one that is connected to, so
that a name cannot stand for another address in between.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

#: Gives the addresses of a host name. Raises `OSError` if it has none.
Resolve = Callable[[str], Awaitable[Sequence[str]]]

# From the IANA's registries of special-purpose addresses, as far as `ipaddress` takes them for
# global ones: relays and translators, which lead to other addresses, and documentation.
_SPECIAL = tuple(
    ip_network(network)
    for network in ("192.88.99.0/24", "192.0.0.0/24", "2001::/23", "2002::/16", "3fff::/20")
)
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")


class AddressRefused(Exception):
    """A host has an address that must not be called."""


async def look_up(host: str) -> Sequence[str]:
    """The addresses of a name, as the system has it. Also of one such as `0x7f.1`. Raises
    `OSError`."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # A part of the name is too long.
        raise OSError(str(error)) from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def addresses_of(host: str, resolve: Resolve, *, allow_private: bool) -> Sequence[str]:
    """The addresses to call for a host.

    Raises `AddressRefused` if any of them is not public, unless `allow_private`; `OSError` if there
    is none.
    """
    found = await resolve(host)
    if not found:
        raise OSError("the name has no address")
    if not allow_private and not all(is_public(address) for address in found):
        raise AddressRefused("the name has an address that is not public")
    return found


def is_public(address: str) -> bool:
    """Whether an IPv4 or IPv6 address is one of the public internet, whatever form it is in."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address):
        return _is_public_v6(parsed)
    return _is_public_v4(parsed)


def _is_public_v6(address: IPv6Address) -> bool:
    if address.scope_id is not None:
        return False
    if address.ipv4_mapped is not None:
        return _is_public_v4(address.ipv4_mapped)
    if address in _NAT64:
        return _is_public_v4(IPv4Address(address.packed[-4:]))
    return address in _GLOBAL_UNICAST and address.is_global and not _is_special(address)


def _is_public_v4(address: IPv4Address) -> bool:
    return address.is_global and not address.is_multicast and not _is_special(address)


def _is_special(address: IPv4Address | IPv6Address) -> bool:
    return any(address in network for network in _SPECIAL)
