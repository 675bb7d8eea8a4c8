"""No trick with a name or an address leads to anything but the public internet."""

import asyncio
import socket

import pytest

from antiphon.webhooks.addresses import AddressRefused, addresses_of, is_public, look_up
from antiphon.webhooks.options import WebhookError, webhook_options

SECRET = "whsec_" + "A" * 32

PRIVATE = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1"),
    *("172.31.255.255", "192.168.1.1", "100.64.0.1", "169.254.169.254", "192.0.0.9"),
    *("192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "192.88.99.1"),
    *("224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1"),
    *("fe80::1", "fe80::1%eth0", "2606:4700::1%1", "fec0::1", "fc00::1", "fd12::1", "ff02::1"),
    *("64:ff9b::10.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1", "5f00::1"),
    *("2001::1", "2001:db8::1", "2002:7f00:1::", "2002:101:101::", "3fff::1"),
    *("", "localhost", "1.2.3", "0x7f.0.0.1", "2130706433", "01.1.1.1", "1.1.1.1 ", "[::1]"),
]
PUBLIC = [
    *("1.1.1.1", "93.184.216.34", "172.32.0.1", "100.128.0.1", "223.255.255.255"),
    *("2606:4700::1111", "2a00:1450::1", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1"),
]


@pytest.mark.parametrize("address", PRIVATE)
def test_special_addresses_are_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_other_addresses_are(address):
    assert is_public(address)


def resolving(*addresses: str):
    async def resolve(host: str):
        return addresses

    return resolve


def test_a_name_with_one_private_address_is_refused_whatever_the_others_are():
    for found in (("1.1.1.1", "10.0.0.1"), ("::1", "2606:4700::1111")):
        with pytest.raises(AddressRefused):
            asyncio.run(addresses_of("name", resolving(*found), allow_private=False))
        allowed = addresses_of("name", resolving(*found), allow_private=True)
        assert asyncio.run(allowed) == found


def test_a_name_without_addresses_cannot_be_called():
    with pytest.raises(OSError, match="no address"):
        asyncio.run(addresses_of("name", resolving(), allow_private=True))


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "017700000001"),
        *("0", "0177.0.0.1", "127.0.0.1", "::1", "::ffff:127.0.0.1"),
    ],
)
def test_every_way_to_write_this_machine_is_refused(host):
    with pytest.raises((AddressRefused, OSError)) as caught:
        asyncio.run(addresses_of(host, look_up, allow_private=False))
    # The system may not know the name at all, but does not give it a public address.
    assert isinstance(caught.value, AddressRefused | socket.gaierror)


def test_a_name_that_is_none_has_no_address():
    with pytest.raises(OSError):
        asyncio.run(look_up("a" * 64 + ".example"))


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_an_address_stands_for_itself(address):
    assert asyncio.run(look_up(address)) == [address]


@pytest.mark.parametrize(
    "url",
    [
        *("", "hooks", "/hooks", "//example.com/", "ftp://example.com/", "file:///etc/passwd"),
        *("javascript:alert(1)", "unix:///run/docker.sock", "gopher://example.com:70/_x"),
        *("https://", "https:///hooks", "https://?x", "https://:443/"),
        *("https://user@example.com/", "https://user:secret@example.com/"),
        *("https://1.1.1.1@127.0.0.1/", "https://a@127.0.0.1:80@example.com/"),
        *("https://127.0.0.1\\@example.com/", "https://example.com\\.evil.com/"),
        *("https://exa mple.com/", "https://exa\tmple.com/", "https://exa\nmple.com/"),
        *("https://example.com:0/", "https://example.com:65536/", "https://example.com:x/"),
        *("https://[::1/", "https://[::1]x/", "https://[v1.x]/", "https://[fe80::1%25lo]/"),
        *("https://[::ffff:127.0.0.1]/", "https://[::]/", "https://[64:ff9b::7f00:1]/"),
        *("http://127.0.0.1:8080/", "http://169.254.169.254/latest/", "http://0.0.0.0/"),
        *("https://①②⑦.⓪.⓪.①/", "https://%31%32%37.0.0.1/", "https://-/", "https://*.com/"),
    ],
)
def test_urls_that_are_not_of_a_public_host_stop_the_start(url):
    with pytest.raises(WebhookError, match="webhook_url"):
        webhook_options(url, SECRET)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://example.com", "example.com"),
        ("http://EXAMPLE.com.:8080/a?b=c#d", "example.com."),
        ("https://bücher.example/", "xn--bcher-kva.example"),
        ("https://[2606:4700::1111]/", "2606:4700::1111"),
        ("https://1.1.1.1#@evil.example/", "1.1.1.1"),
        # The name decides nothing: what it stands for is looked at when it is called.
        ("https://2130706433/", "2130706433"),
        ("https://localhost/", "localhost"),
    ],
)
def test_other_urls_are_taken(url, host):
    options = webhook_options(url, SECRET)
    assert options.host.lower() == host
    assert not options.url.fragment


def test_private_hosts_are_taken_if_they_are_allowed():
    assert webhook_options("http://127.0.0.1:1/", SECRET, allow_private=True).host == "127.0.0.1"


@pytest.mark.parametrize(
    "secret",
    [
        *("", "whsec_", "A" * 32, "xwhsec_" + "A" * 32, "whsec_!" + "A" * 31),
        *("whsec_" + "A" * 28, "whsec_" + "A" * 92, "whsec_" + "é" * 32),
    ],
)
def test_secrets_that_are_not_of_the_scheme_stop_the_start(secret):
    with pytest.raises(WebhookError, match="webhook_secret") as caught:
        webhook_options("https://example.com", secret)
    assert not secret or secret not in str(caught.value) or secret == "whsec_"


def test_options_that_are_shown_hide_what_is_secret():
    shown = repr(webhook_options("https://example.com/path/T0K3N", SECRET))
    assert "T0K3N" not in shown and "key=" not in shown
