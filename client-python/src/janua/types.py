"""Answers of the common routes. New fields may come; ``/openapi.json`` of a server has all of them."""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class User(TypedDict, total=False):
    id: str
    email: str | None
    name: str
    bio: str | None
    avatarUrl: str | None
    timeZone: str | None
    emailVerified: bool
    mfaEnabled: bool
    createdAt: str


class Organization(TypedDict, total=False):
    id: str
    name: str
    slug: str
    role: Literal["owner", "admin", "member"]
    createdAt: str


class SignIn(TypedDict, total=False):
    """Tokens, or (``requiresMfa``) a ticket for the second factor."""

    user: User
    org: Organization | None
    accessToken: str
    expiresIn: int
    refreshToken: str | None
    requiresMfa: bool
    mfaTicket: str
    factors: list[str]


class App(TypedDict, total=False):
    id: str
    orgId: str
    name: str
    slug: str
    redirectUris: list[str]
    allowedOrigins: list[str]
    createdAt: str
    updatedAt: str


class AppKey(TypedDict, total=False):
    id: str
    type: Literal["publishable", "secret"]
    environment: Literal["live", "test"]
    prefix: str
    value: str
    """Shown once, at creation."""
    createdAt: str


class EndUser(TypedDict, total=False):
    id: str
    email: str | None
    name: str
    emailVerified: bool
    firstSignInAt: str
    lastSignInAt: str
    blockedAt: str | None


class Webhook(TypedDict, total=False):
    id: str
    url: str
    events: list[str]
    isActive: bool
    standardHeaders: bool
    rotationEndsAt: str | None
    secret: str | None
    standardSecret: str | None
    createdAt: str


class Introspection(TypedDict, total=False):
    active: bool
    type: str
    sub: str
    client_id: str
    scope: str | None
    aud: str | list[str] | None
    exp: int
    agent_state: str
    act: dict[str, Any] | None


class Spending(TypedDict, total=False):
    allowed: bool
    remaining: int | None
    resetsAt: str | None


class Tracked(TypedDict, total=False):
    accepted: int
    duplicates: int
    rejected: list[dict[str, Any]]
    usage: dict[str, Any]


class SentMail(TypedDict, total=False):
    messageId: str
    to: str | list[str]
    subject: str
    sent: bool
    status: str


class StorageObject(TypedDict, total=False):
    id: str
    name: str
    contentType: str
    size: int
    sha256: str | None
    status: Literal["pending", "ready"]
    visibility: Literal["private", "public"]
    metadata: dict[str, str]
    url: str | None
    downloadUrl: str | None
    createdAt: str
