"""Refusals of the server."""

from __future__ import annotations

import json
from typing import Any, TypedDict


class FieldError(TypedDict):
    """A field of the input that was refused."""

    field: str
    code: str
    message: str


class JanuaError(Exception):
    """A refusal of the server (RFC 9457), or a failure on the way to it. Branch on ``code``.

    ``status`` is 0 and ``code`` is ``network_error`` if no answer arrived.
    """

    def __init__(
        self, code: str, status: int, message: str, body: dict[str, Any] | None = None, retry_after: str | None = None
    ):
        super().__init__(f"{code}: {message}")
        self.code = code
        self.status = status
        self.message = message
        self.body = body or {}
        """The whole answer: some codes have fields of their own, such as ``meter`` of ``quota_exceeded``."""
        self.retry_after = retry_after

    @property
    def request_id(self) -> str | None:
        """Quote this when you ask for help."""
        return self.body.get("requestId")

    @property
    def errors(self) -> list[FieldError]:
        """Every field that is wrong, for ``invalid``."""
        return self.body.get("errors") or []

    @classmethod
    def read(cls, status: int, data: bytes, retry_after: str | None = None) -> JanuaError:
        """Reads a problem, an OAuth error (RFC 6749) or a SCIM error (RFC 7644)."""
        try:
            body = json.loads(data)
        except ValueError:
            body = {}
        if not isinstance(body, dict):
            body = {}
        code = body.get("code") or body.get("error") or body.get("scimType") or "unexpected_response"
        message = body.get("detail") or body.get("title") or body.get("error_description") or f"HTTP {status}"
        return cls(str(code), status, str(message), body, retry_after)
