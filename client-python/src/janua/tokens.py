"""Verification of access tokens: RS256 with the published keys of the service, which are kept for five minutes."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from .http import NO_REDIRECTS

TokenReason = Literal[
    "missing",
    "malformed",
    "algorithm",
    "not_access_token",
    "machine",
    "user",
    "unknown_key",
    "signature",
    "expired",
    "issuer",
    "audience",
    "keys_unavailable",
]

_MESSAGES: dict[TokenReason, str] = {
    "missing": "the request carries no token",
    "malformed": "this is not a token",
    "algorithm": "the token is not signed with RS256",
    "not_access_token": "this is not an access token",
    "machine": "the token belongs to a machine, not to a user",
    "user": "the token belongs to a user, not to a machine",
    "unknown_key": "the token's key is not one of the service's",
    "signature": "the signature is wrong",
    "expired": "the token has expired",
    "issuer": "the token is of another service",
    "audience": "the token is for another app or server",
    "keys_unavailable": "the service's keys cannot be fetched",
}

# How long a key set is good for, and how long to wait for the service, in seconds.
_KEPT = 300
_PATIENCE = 10
_COOKIES = ("__Host-service_access", "service_access")
_TEXTS = ("sid", "email", "orgId", "orgSlug", "role", "appId", "client_id", "scope", "type")

Keys = dict[str, rsa.RSAPublicKey]


class TokenError(Exception):
    """A refused token. Answer 401, or 503 for ``keys_unavailable``."""

    def __init__(self, code: TokenReason):
        super().__init__(_MESSAGES[code])
        self.code: TokenReason = code


@dataclass(frozen=True)
class Claims:
    """The claims of an access token."""

    iss: str
    sub: str
    """The ID of the user; of the machine, for machines that act for themselves."""
    exp: int
    """Seconds since 1970."""
    aud: list[str]
    """Where the token counts: the ID of an app, or the URLs of servers."""
    sid: str | None = None
    email: str | None = None
    org_id: str | None = None
    org_slug: str | None = None
    role: str | None = None
    app_id: str | None = None
    client_id: str | None = None
    """The OAuth client that holds the token."""
    scope: str | None = None
    """The granted scopes, separated by spaces."""
    type: str | None = None
    """Machines only: ``app``, ``agent``, ``framework`` or ``mcp``."""
    act: dict[str, Any] | None = None
    """The machine that acts for the user ``sub``."""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """All claims as they came."""

    def has_scope(self, name: str) -> bool:
        """Whether the user granted this scope."""
        return name in (self.scope or "").split(" ")


def presented_token(cookie: str | None, authorization: str | None) -> str | None:
    """The token of a request, out of its ``Cookie`` and ``Authorization`` headers: the cookie first."""
    pairs = [pair.strip().partition("=") for pair in (cookie or "").split(";")]
    for wanted in _COOKIES:
        for name, _, value in pairs:
            if name == wanted and value:
                return value
    scheme, _, token = (authorization or "").strip().partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


class Verifier:
    """Verifies access tokens of one service, without asking it. Create one and keep it; threads may share it."""

    def __init__(self, url: str, audience: str | None = None, *, now: Callable[[], float] = time.time):
        """``audience`` is the ID of your app, or the URL of your server as clients write it in ``resource``."""
        self._issuer = url.rstrip("/")
        self._audience = audience
        self._now = now
        self._lock = threading.Lock()
        self._keys: Keys | None = None
        self._since = 0.0

    def verify_request(self, headers: Mapping[str, str]) -> Claims:
        """Verifies the user of a request, by its cookie or ``Authorization`` header."""
        given = {name.lower(): value for name, value in headers.items()}
        token = presented_token(given.get("cookie"), given.get("authorization"))
        if token is None:
            raise TokenError("missing")
        return self.verify(token)

    def verify(self, token: str) -> Claims:
        """Verifies a user's access token. ID tokens and tokens of machines are refused."""
        claims = self._verify(token)
        if claims.type is not None:
            raise TokenError("machine")
        return claims

    def verify_machine(self, token: str) -> Claims:
        """Verifies an access token of an app, agent or MCP server. ``type`` says which."""
        claims = self._verify(token)
        if claims.type is None:
            raise TokenError("user")
        return claims

    def _verify(self, token: str) -> Claims:
        parts = token.split(".")
        if len(parts) != 3:
            raise TokenError("malformed")
        header = _read(parts[0])
        if not isinstance(header.get("alg"), str):
            raise TokenError("malformed")
        if header["alg"] != "RS256":
            raise TokenError("algorithm")
        # An ID token is signed by the same keys, but grants no access (RFC 9068, 4).
        if str(header.get("typ", "")).lower() not in ("at+jwt", "application/at+jwt"):
            raise TokenError("not_access_token")
        signature = _decode(parts[2])
        key = self._public_keys().get(str(header.get("kid", "")))
        if key is None:
            raise TokenError("unknown_key")
        if key.key_size < 2048:
            raise TokenError("signature")
        try:
            key.verify(signature, f"{parts[0]}.{parts[1]}".encode(), padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            raise TokenError("signature") from None
        claims = _claims(_read(parts[1]))
        if claims.exp <= int(self._now()):
            raise TokenError("expired")
        if claims.iss != self._issuer:
            raise TokenError("issuer")
        if self._audience is not None and self._audience not in claims.aud:
            raise TokenError("audience")
        return claims

    def _public_keys(self) -> Keys:
        # One caller fetches, and the others wait for it.
        with self._lock:
            now = self._now()
            if self._keys is None or now - self._since >= _KEPT:
                self._keys = None
                try:
                    self._keys = self._fetch()
                except (OSError, ValueError, KeyError, TypeError) as error:
                    raise TokenError("keys_unavailable") from error
                self._since = now
            return self._keys

    def _fetch(self) -> Keys:
        request = urllib.request.Request(f"{self._issuer}/.well-known/jwks.json")
        with NO_REDIRECTS.open(request, timeout=_PATIENCE) as answer:
            return read_keys(json.load(answer))


def read_keys(key_set: Mapping[str, Any]) -> Keys:
    """The RSA keys of a JWK set, by name."""
    found: Keys = {}
    for key in key_set["keys"]:
        if key.get("kty") != "RSA":
            continue
        try:
            n, e = (int.from_bytes(_decode(key[name]), "big") for name in ("n", "e"))
            found[str(key.get("kid", ""))] = rsa.RSAPublicNumbers(e, n).public_key()
        except (KeyError, ValueError, TokenError):
            continue
    return found


def _decode(text: str) -> bytes:
    """base64url without padding, in its one canonical form."""
    if not re.fullmatch(r"[A-Za-z0-9_-]*", text) or len(text) % 4 == 1:
        raise TokenError("malformed")
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if base64.urlsafe_b64encode(data).rstrip(b"=").decode() != text:
        raise TokenError("malformed")
    return data


def _read(part: str) -> dict[str, Any]:
    try:
        value = json.loads(_decode(part).decode())
    except (ValueError, RecursionError):
        raise TokenError("malformed") from None
    if not isinstance(value, dict):
        raise TokenError("malformed")
    return value


def _claims(body: dict[str, Any]) -> Claims:
    # A null claim counts as absent.
    said = {name: value for name, value in body.items() if value is not None}
    aud = said.get("aud", [])
    audiences = [aud] if isinstance(aud, str) else aud
    exp = said.get("exp")
    is_whole = (
        all(isinstance(said.get(name), str) for name in ("iss", "sub"))
        and all(isinstance(said.get(name, ""), str) for name in _TEXTS)
        and isinstance(exp, int)
        and not isinstance(exp, bool)
        and exp >= 0
        and isinstance(audiences, list)
        and all(isinstance(one, str) for one in audiences)
    )
    if not is_whole:
        raise TokenError("malformed")
    act = said.get("act")
    return Claims(
        iss=said["iss"],
        sub=said["sub"],
        exp=said["exp"],
        aud=audiences,
        sid=said.get("sid"),
        email=said.get("email"),
        org_id=said.get("orgId"),
        org_slug=said.get("orgSlug"),
        role=said.get("role"),
        app_id=said.get("appId"),
        client_id=said.get("client_id"),
        scope=said.get("scope"),
        type=said.get("type"),
        act=act if isinstance(act, dict) else None,
        raw=body,
    )
