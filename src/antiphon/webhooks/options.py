"""Where webhooks go and what signs them."""

import base64
import binascii
import hmac
import re
from dataclasses import dataclass, field
from ipaddress import ip_address

import httpx

from antiphon.errors import StartError
from antiphon.webhooks.addresses import is_public

_SECRET_PREFIX = "whsec_"
#: Bytes that the Standard Webhooks scheme wants of a secret.
_SECRET_BYTES = range(24, 65)
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,252})")


class WebhookError(StartError):
    """The settings for webhooks are not usable. The message says how, and shows no secret."""


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """Where webhooks go: `url`, its host `host` and whether this may be a `private` one.

    Make them with `webhook_options`. `key` are the bytes of the secret.
    """

    url: httpx.URL = field(repr=False)  # Its path may be a secret too.
    key: bytes = field(repr=False)
    allow_private: bool = False

    @property
    def host(self) -> str:
        """The host of the URL, in ASCII."""
        return self.url.raw_host.decode("ascii")

    def signature(self, webhook_id: str, timestamp: int, body: bytes) -> str:
        """The header `webhook-signature`, as https://www.standardwebhooks.com has it."""
        signed = b".".join((webhook_id.encode(), str(timestamp).encode(), body))
        digest = hmac.digest(self.key, signed, "sha256")
        return f"v1,{base64.b64encode(digest).decode()}"


def webhook_options(url: str, secret: str, *, allow_private: bool = False) -> WebhookOptions:
    """Options from the settings of the same names. Raises `WebhookError`."""
    return WebhookOptions(_url(url, allow_private), _key(secret), allow_private)


def _url(url: str, allow_private: bool) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        raise WebhookError("webhook_url is no URL") from None
    if parsed.scheme not in ("http", "https"):
        raise WebhookError("webhook_url must begin with https:// or http://")
    if parsed.userinfo:
        raise WebhookError("webhook_url must not hold a user name or password")
    if parsed.port is not None and not 0 < parsed.port < 65536:
        raise WebhookError(f"webhook_url has no port {parsed.port}")
    host = parsed.raw_host.decode("ascii")
    try:
        ip_address(host)
    except ValueError:
        if not _HOST.fullmatch(host):
            raise WebhookError("webhook_url has no host that can be called") from None
    else:
        if not allow_private and not is_public(host):
            raise WebhookError(
                f"webhook_url: {host} is no public address. If it is meant, set "
                f"webhook_allow_private"
            )
    return parsed.copy_with(fragment=None)


def _key(secret: str) -> bytes:
    prefix, _, encoded = secret.partition(_SECRET_PREFIX)
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if prefix or len(key) not in _SECRET_BYTES:
        raise WebhookError(
            "webhook_secret must be whsec_ and then 24 to 64 bytes in base64, such as "
            '`echo "whsec_$(openssl rand -base64 32)"` makes'
        )
    return key
