"""Client of Janua: verifies access tokens and webhooks, and calls the API."""

from .client import Janua, Session
from .errors import FieldError, JanuaError
from .tokens import Claims, TokenError, Verifier, presented_token
from .webhooks import WebhookError, verify_webhook

__all__ = [
    "Claims",
    "FieldError",
    "Janua",
    "JanuaError",
    "Session",
    "TokenError",
    "Verifier",
    "WebhookError",
    "presented_token",
    "verify_webhook",
]
