"""Calls of the API: sessions that renew themselves, retries, pages."""

from __future__ import annotations

import email.utils
import json as jsons
import random
import re
import secrets
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from .errors import JanuaError
from .http import NO_REDIRECTS
from .types import (
    App,
    AppKey,
    EndUser,
    Introspection,
    SentMail,
    SignIn,
    Spending,
    StorageObject,
    Tracked,
    User,
    Webhook,
)

# Tokens are renewed this many seconds before they expire, which saves a refused request.
_EARLY = 10.0
# Answers that open an account are never replayed.
_NEVER_REPLAYED = re.compile(r"/(auth|oauth)/")


@dataclass(frozen=True)
class Session:
    """The tokens of a session."""

    access_token: str
    refresh_token: str | None = None
    expires_at: float | None = None
    """Seconds since 1970."""

    def ends_within(self, seconds: float) -> bool:
        """Whether the access token is about to expire."""
        return self.expires_at is not None and self.expires_at < time.time() + seconds


class Janua:
    """A client. Threads may share it.

    ``app_key`` is a key of your app. ``session`` holds the user's tokens; ``sign_in`` sets it. ``on_session`` hears of
    renewed tokens, so that you can store them, and of ``None`` when the session ends.
    """

    def __init__(
        self,
        url: str,
        *,
        app_key: str | None = None,
        session: Session | None = None,
        retries: int = 2,
        max_wait: float = 30.0,
        timeout: float = 30.0,
        on_session: Callable[[Session | None], None] | None = None,
    ):
        self.url = url.rstrip("/")
        self.app_key = app_key
        self._session = session
        self._retries = retries
        self._max_wait = max_wait
        self._timeout = timeout
        self._on_session = on_session
        self._renewing = threading.Lock()

    # Any operation.

    def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        form: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        idempotency_key: str | Literal[False] | None = None,
        repeatable: bool | None = None,
    ) -> Any:
        """Calls an operation and returns its JSON. Fill parameters of ``path`` with ``urllib.parse.quote(value, "")``.

        An ``Authorization`` in ``headers`` replaces the session; an empty one sends none. ``repeatable`` says whether
        a lost connection may be repeated; the default is no for PATCH, and for POST without an ``Idempotency-Key``.
        """
        method = method.upper()
        sent = {"Accept": "application/json", **(headers or {})}
        if self.app_key:
            sent.setdefault("X-Service-App-Key", self.app_key)
        key = idempotency_key
        if key is None and method == "POST" and not _NEVER_REPLAYED.match(path):
            key = secrets.token_hex(16)
        if key:
            sent["Idempotency-Key"] = key
        data = None
        if form is not None:
            data = urllib.parse.urlencode(form).encode()
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        elif json is not None:
            data = jsons.dumps(json).encode()
            sent["Content-Type"] = "application/json"
        given = {name: value for name, value in (query or {}).items() if value is not None}
        url = self.url + path + ("?" + urllib.parse.urlencode(given, doseq=True) if given else "")
        own = "Authorization" in sent
        if sent.get("Authorization") == "":
            del sent["Authorization"]
        is_harmless = repeatable if repeatable is not None else bool(key) if method == "POST" else method != "PATCH"
        attempt, renewed = 0, False
        while True:
            session = None if own else self._session
            if session and session.refresh_token and not renewed and session.ends_within(_EARLY):
                renewed = True
                self._renew(session)
                session = self._session
            if session:
                sent["Authorization"] = f"Bearer {session.access_token}"
            elif not own:
                sent.pop("Authorization", None)
            try:
                return self._send(urllib.request.Request(url, data, sent, method=method))
            except JanuaError as error:
                is_stale = error.status == 401 and error.code in ("unauthenticated", "invalid_token")
                if is_stale and session and not renewed:
                    renewed = True
                    if self._renew(session):
                        continue
                wait = self._wait(error, attempt, is_harmless)
                if wait is None:
                    raise
                time.sleep(wait)
                attempt += 1

    def entries(self, path: str, *, query: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """The entries of a list, over all of its pages."""
        cursor: str | None = None
        while True:
            page = self.request("GET", path, query={**(query or {}), **({"cursor": cursor} if cursor else {})})
            yield from next(value for value in page.values() if isinstance(value, list))
            cursor = page.get("nextCursor") or (page.get("metadata") or {}).get("nextCursor")
            if not cursor:
                return

    # Users.

    def sign_in(self, email: str, password: str) -> SignIn:
        """Signs in with a password. With ``requiresMfa`` in the answer, go on with :meth:`verify_second_factor`."""
        body = {"email": email, "password": password, "options": {"tokenDelivery": "body"}}
        return self._signed_in(self.request("POST", "/auth/login", json=body, headers={"Authorization": ""}))

    def verify_second_factor(self, ticket: str, code: str) -> SignIn:
        """Finishes a sign-in with a code of an authenticator app, a texted code or a recovery code."""
        body = {"mfaTicket": ticket, "code": code}
        return self._signed_in(self.request("POST", "/auth/2fa/login-verify", json=body, headers={"Authorization": ""}))

    def sign_out(self) -> None:
        """Ends the session on the server and forgets it here. A session that is over already is no error."""
        try:
            self.request("POST", "/auth/logout")
        except JanuaError as error:
            if error.status != 401:
                raise
        self._set(None)

    @property
    def session(self) -> Session | None:
        return self._session

    def me(self) -> User:
        """The signed-in user."""
        return cast(User, self.request("GET", "/auth/me"))

    # Apps, as a member of their organization.

    def create_app(self, name: str, **more: Any) -> App:
        """Creates an app; ``more`` are further fields, such as ``redirectUris``."""
        return cast(App, self.request("POST", "/apps", json={"name": name, **more}))

    def apps(self) -> Iterator[App]:
        """The apps of the user's organizations."""
        return cast("Iterator[App]", self.entries("/apps"))

    def create_key(
        self, app_id: str, type: Literal["publishable", "secret"], environment: Literal["live", "test"] = "live"
    ) -> AppKey:
        """Creates a key of an app. Its ``value`` is shown here and never again."""
        body = {"type": type, "environment": environment}
        return cast(AppKey, self.request("POST", f"/apps/{_part(app_id)}/keys", json=body))

    def end_users(self, app_id: str, search: str | None = None) -> Iterator[EndUser]:
        """The users who have signed in to an app."""
        return cast("Iterator[EndUser]", self.entries(f"/apps/{_part(app_id)}/users", query={"search": search}))

    def create_webhook(self, app_id: str, url: str, events: Sequence[str], standard_headers: bool = False) -> Webhook:
        """Registers an endpoint. Its ``secret`` is shown here and never again."""
        body = {"url": url, "events": list(events), "standardHeaders": standard_headers}
        return cast(Webhook, self.request("POST", f"/apps/{_part(app_id)}/webhooks", json=body))

    # With a secret key of the app as ``app_key``.

    def introspect(self, token: str) -> Introspection:
        """The state of a token at this moment."""
        own = {"Authorization": ""}
        answer = self.request("POST", "/oauth/introspect", form={"token": token}, headers=own, repeatable=True)
        return cast(Introspection, answer)

    def spend(
        self, token: str, meter: str, amount: int, *, action: str | None = None, idempotency_key: str | None = None
    ) -> Spending:
        """Counts what an agent spends against its limits. Do what was asked only if ``allowed``."""
        key = idempotency_key or secrets.token_hex(16)
        body = {"token": token, "meter": meter, "amount": amount, "action": action, "idempotencyKey": key}
        return cast(Spending, self.request("POST", "/machine/spend", json=body, headers={"Authorization": ""}))

    def track(
        self, meter: str, value: int = 1, *, customer: str | None = None, event_id: str | None = None
    ) -> Tracked:
        """Reports usage of a meter. The same ``event_id`` counts once."""
        body = {"meter": meter, "value": value, "customer": customer, "eventId": event_id or secrets.token_hex(16)}
        return cast(Tracked, self.request("POST", "/usage/track", json=body, headers={"Authorization": ""}))

    def send_email(
        self, app_id: str, to: str | Sequence[str], subject: str, *, idempotency_key: str | None = None, **more: Any
    ) -> SentMail:
        """Sends an email of the app; ``more`` are ``text``, ``html``, ``template``, ``replyTo`` and so on."""
        body = {"to": to if isinstance(to, str) else list(to), "subject": subject, **more}
        path = f"/apps/{_part(app_id)}/email/send"
        return cast(SentMail, self.request("POST", path, json=body, idempotency_key=idempotency_key))

    # Files of the signed-in user, with any key of the app as ``app_key``.

    def upload(
        self,
        name: str,
        data: bytes,
        content_type: str = "application/octet-stream",
        *,
        visibility: Literal["private", "public"] = "private",
        metadata: Mapping[str, str] | None = None,
    ) -> StorageObject:
        """Stores a file."""
        body = {"name": name, "contentType": content_type, "size": len(data), "visibility": visibility}
        offer = self.request("POST", "/storage/presign-upload", json={**body, "metadata": dict(metadata or {})})
        # The URL has its own authorization, and may be a bucket's: neither the session nor the key goes there.
        self._send(urllib.request.Request(offer["uploadUrl"], data, offer["headers"], method=offer["method"]))
        return cast(StorageObject, self.request("POST", f"/storage/finalize/{offer['objectId']}", json={}))

    def _send(self, request: urllib.request.Request) -> Any:
        try:
            with NO_REDIRECTS.open(request, timeout=self._timeout) as answer:
                data = answer.read()
                is_json = re.search("[/+]json", answer.headers.get("Content-Type", ""))
        except urllib.error.HTTPError as error:
            with error:
                raise JanuaError.read(error.code, error.read(), error.headers.get("Retry-After")) from None
        except OSError as error:
            raise JanuaError("network_error", 0, str(error)) from error
        if not data:
            return None
        return jsons.loads(data) if is_json else data.decode()

    def _wait(self, error: JanuaError, attempt: int, is_harmless: bool) -> float | None:
        """How long to wait before the next try; None if there is none."""
        if attempt >= self._retries or error.status not in (0, 429, 503):
            return None
        asked = _seconds(error.retry_after)
        if asked is None:
            # A lost connection, and a 503 without `Retry-After`, may come after the work was done.
            return 0.25 * 2 ** (attempt + 1) * random.uniform(0.5, 1) if is_harmless else None
        # Callers that were refused together do not come back together.
        return asked * random.uniform(1, 1.25) if asked <= self._max_wait else None

    def _renew(self, used: Session) -> bool:
        """Renews the tokens, once for all threads that need it. Tells whether the session lives."""
        with self._renewing:
            current = self._session
            if current is None:
                return False
            if current.access_token != used.access_token:
                return True
            if not current.refresh_token:
                return False
            body, own = {"refreshToken": current.refresh_token}, {"Authorization": ""}
            try:
                # The server answers the same successor for ten seconds, so a lost answer is asked for again at once.
                answer = self.request("POST", "/auth/refresh", json=body, headers=own, repeatable=True)
            except JanuaError as error:
                # Anything else is not the end of the session: the server may be away.
                if error.status not in (400, 401, 403):
                    raise
                self._set(None)
                return False
            self._signed_in(answer, before=current)
            return True

    def _signed_in(self, answer: Any, before: Session | None = None) -> SignIn:
        if "accessToken" in answer:
            session = Session(answer["accessToken"], answer.get("refreshToken"), time.time() + answer["expiresIn"])
            if session.refresh_token is None and before:
                session = replace(session, refresh_token=before.refresh_token)
            self._set(session)
        return cast(SignIn, answer)

    def _set(self, session: Session | None) -> None:
        self._session = session
        if self._on_session:
            self._on_session(session)


def _part(text: str) -> str:
    """A part of a path. `.` and `..` would lead to another operation."""
    if text in ("", ".", ".."):
        raise ValueError(f"not an id: {text!r}")
    return urllib.parse.quote(text, safe="")


def _seconds(text: str | None) -> float | None:
    """`Retry-After`: seconds or a date (RFC 9110, 10.2.3)."""
    if not text:
        return None
    if re.fullmatch("[0-9]+", text):
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
