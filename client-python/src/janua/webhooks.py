"""Verification of webhook deliveries."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import time
from collections.abc import Mapping
from typing import Any, Literal

WebhookReason = Literal["malformed_header", "timestamp_outside_tolerance", "signature_mismatch"]

TOLERANCE = 300
"""How far the clocks of sender and receiver may be apart, in seconds."""


class WebhookError(Exception):
    """A refused delivery. Answer 400."""

    def __init__(self, code: WebhookReason):
        super().__init__(code)
        self.code: WebhookReason = code


def verify_webhook(headers: Mapping[str, str], body: bytes, secret: str, now: float | None = None) -> dict[str, Any]:
    """Verifies a delivery and returns its event.

    ``body`` is what was received, byte for byte. ``secret`` is the webhook's ``secret`` (64 characters), or its
    ``standardSecret`` (``whsec_…``) if it has ``standardHeaders``. Every signature is compared, since there are two
    while a secret is rotated. Skip a ``deliveryId`` that you have processed.
    """
    given = {name.lower(): value for name, value in headers.items()}
    signature = given.get("webhook-signature", "")
    # The secret decides the form, never the request.
    if secret.startswith("whsec_"):
        identity, at = given.get("webhook-id", ""), given.get("webhook-timestamp", "")
        key, head = _base64(secret.removeprefix("whsec_")), f"{identity}.{at}."
        macs = [_base64(part[3:]) for part in signature.split(" ") if part.startswith("v1,")]
        at = at if identity else ""
    else:
        pairs = [part.strip().partition("=") for part in signature.split(",")]
        at = next((value for name, equals, value in reversed(pairs) if name == "t" and equals), "")
        key, head = secret.encode(), f"{at}."
        macs = [_hexadecimal(value) for name, equals, value in pairs if name == "v1" and equals]
    if not re.fullmatch("0*[0-9]{1,20}", at) or int(at) >= 2**64 or not macs:
        raise WebhookError("malformed_header")
    if not key:
        raise ValueError("the secret of the webhook is empty or malformed")
    if abs(int(time.time() if now is None else now) - int(at)) > TOLERANCE:
        raise WebhookError("timestamp_outside_tolerance")
    expected = hmac.new(key, head.encode() + body, hashlib.sha256).digest()
    # All are compared, so that the time does not tell which one it was.
    if not sum(hmac.compare_digest(mac, expected) for mac in macs):
        raise WebhookError("signature_mismatch")
    event: dict[str, Any] = json.loads(body)
    return event


def _hexadecimal(text: str) -> bytes:
    """Empty for malformed text, so that it matches no signature."""
    return bytes.fromhex(text) if re.fullmatch("([0-9a-fA-F]{2})*", text) else b""


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
