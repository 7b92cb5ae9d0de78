import hashlib
import hmac
import time

TOLERANCE = 300  # seconds


def verify_webhook(header: str, body: bytes, secret: str, now: float | None = None) -> bool:
    """`header` is Webhook-Signature, `body` the bytes as received, `secret` the 64 characters shown at creation."""
    parts = [part.strip().partition("=") for part in header.split(",")]
    t = next((value for name, _, value in parts if name == "t"), "")
    if not (t.isascii() and t.isdigit()) or abs((time.time() if now is None else now) - int(t)) > TOLERANCE:
        return False
    expected = hmac.new(secret.encode(), t.encode() + b"." + body, hashlib.sha256).hexdigest()
    # During a rotation there are two signatures: compare each, not only the first.
    given = [value for name, _, value in parts if name == "v1"]
    return any([hmac.compare_digest(value.encode(), expected.encode()) for value in given])
