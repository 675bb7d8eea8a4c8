"""Keys, in the places where Connexion lets its own checks be replaced."""

from collections.abc import Awaitable, Callable
from typing import Any

from connexion.lifecycle import ConnexionRequest
from connexion.security import NO_VALUE, AbstractSecurityHandler

from antiphon.errors import InvalidKey
from antiphon.keys import KeyRing

Check = Callable[[ConnexionRequest], Awaitable[Any]]

CHALLENGE = {"www-authenticate": "Bearer"}


def security_map(keys: KeyRing) -> dict[str, Any]:
    """What Connexion is to check the document's security schemes with.

    The caller's `Principal` reaches handlers as `user`.
    """

    def handler(read: Callable[[ConnexionRequest], str | None]) -> type[AbstractSecurityHandler]:
        async def check(request: ConnexionRequest) -> Any:
            key = read(request)
            principal = keys.identify(key)
            if principal is not None:
                return {"sub": principal}
            if key is None:
                return NO_VALUE
            raise InvalidKey("The API key is not valid.", headers=CHALLENGE)

        class Handler(AbstractSecurityHandler):
            def get_fn(self, security_scheme: dict[str, Any], required_scopes: list[str]) -> Check:
                return check

        return Handler

    return {"bearer": handler(_bearer), "apiKey": handler(_api_key)}


def _bearer(request: ConnexionRequest) -> str | None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" and key.strip() else None


def _api_key(request: ConnexionRequest) -> str | None:
    return request.headers.get("x-api-key") or None
