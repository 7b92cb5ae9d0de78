# Save as quick_start.py, run `env $(cat .env) python3 quick_start.py`, open http://localhost:3000
import base64
import hashlib
import json
import os
import secrets
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import Request, urlopen

ISSUER = os.environ.get("ISSUER", "https://id.example.com")
CLIENT_ID = os.environ.get("CLIENT_ID", "YOUR_CLIENT_ID")
REDIRECT_URL = os.environ.get("REDIRECT_URL", "http://localhost:3000/callback")
COOKIE = "HttpOnly; SameSite=Lax; Path=/"


def start():
    """The URL to send the browser to, and what its cookie keeps until it comes back."""
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    digest = hashlib.sha256(verifier.encode()).digest()
    query = {
        "response_type": "code", "client_id": CLIENT_ID, "redirect_uri": REDIRECT_URL, "scope": "openid profile email",
        "state": state, "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    return f"{ISSUER}/oauth/authorize?{urlencode(query)}", f"{state}.{verifier}"


def finish(query, pending):
    """The user who signed in."""
    state, _, verifier = pending.partition(".")
    if not state or query.get("state") != state:
        raise ValueError("This sign-in was not started here.")
    if "error" in query:
        raise ValueError(query.get("error_description", query["error"]))
    form = {
        "grant_type": "authorization_code", "client_id": CLIENT_ID, "redirect_uri": REDIRECT_URL, "code": query["code"],
        "code_verifier": verifier,
    }
    try:
        tokens = json.load(urlopen(Request(f"{ISSUER}/oauth/token", urlencode(form).encode())))
    except HTTPError as error:
        raise ValueError(json.load(error).get("error_description", "The code was refused.")) from error
    headers = {"Authorization": f"Bearer {tokens['access_token']}"}
    return json.load(urlopen(Request(f"{ISSUER}/oauth/userinfo", headers=headers)))


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/login":
            location, pending = start()
            return self.answer(302, "", {"Location": location, "Set-Cookie": f"pending={pending}; {COOKIE}"})
        if url.path != urlsplit(REDIRECT_URL).path:
            return self.answer(200, '<a href="/login">Sign in</a>', {"Content-Type": "text/html"})
        cookie = SimpleCookie(self.headers.get("Cookie", "")).get("pending")
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        try:
            user = finish(query, cookie.value if cookie else "")
            return self.answer(200, f"Signed in as {user['email']}.\n", {"Set-Cookie": f"pending=; Max-Age=0; {COOKIE}"})
        except ValueError as error:
            return self.answer(400, f"{error}\n", {})

    def answer(self, status, text, headers):
        self.send_response(status)
        for name, value in ({"Content-Type": "text/plain"} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())


if __name__ == "__main__":
    address = urlsplit(REDIRECT_URL)
    print(f"Open {address.scheme}://{address.netloc}", flush=True)
    ThreadingHTTPServer((address.hostname, address.port), Handler).serve_forever()
