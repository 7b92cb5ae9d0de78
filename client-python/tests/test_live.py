"""The client against the running binary."""

import os
import unittest
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

from running import PASSWORD, Server

from janua import Janua, JanuaError, Session, TokenError, Verifier, WebhookError, verify_webhook


@unittest.skipUnless("TEST_BINARY" in os.environ, "TEST_BINARY is not set")
class Live(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)
        cls.owner = cls.server.sign_up("owner@example.com")
        cls.app = cls.owner.create_app("Shop")
        cls.key = cls.owner.create_key(cls.app["id"], "publishable")["value"]
        cls.secret = cls.owner.create_key(cls.app["id"], "secret")["value"]

    def test_users_and_refusals(self):
        self.assertEqual(self.owner.me()["email"], "owner@example.com")
        with self.assertRaises(JanuaError) as refused:
            Janua(self.server.url).sign_in("owner@example.com", "not this one")
        self.assertEqual(refused.exception.code, "invalid_credentials")
        with self.assertRaises(JanuaError) as refused:
            self.owner.create_app("")
        self.assertEqual(refused.exception.errors[0]["field"], "name")

    def test_a_session_is_renewed_and_ended(self):
        janua = Janua(self.server.url)
        janua.sign_in("owner@example.com", PASSWORD)
        janua = Janua(self.server.url, session=Session("expired", janua.session.refresh_token))
        self.assertEqual(janua.me()["email"], "owner@example.com")
        janua.sign_out()
        self.assertIsNone(janua.session)

    def test_lists(self):
        for name in ("One", "Two", "Three"):
            self.owner.create_app(name)
        names = {app["name"] for app in self.owner.entries("/apps", query={"limit": 1})}
        self.assertLessEqual({"Shop", "One", "Two", "Three"}, names)
        user = Janua(self.server.url, app_key=self.key)
        user.sign_in("owner@example.com", PASSWORD)
        self.assertIn("owner@example.com", [user["email"] for user in self.owner.end_users(self.app["id"])])

    def test_tokens_of_users_and_agents(self):
        user = Janua(self.server.url, app_key=self.key)
        user.sign_in("owner@example.com", PASSWORD)
        verifier = Verifier(self.server.url, self.app["id"])
        claims = verifier.verify_request({"Authorization": f"Bearer {user.session.access_token}"})
        self.assertEqual((claims.email, claims.app_id), ("owner@example.com", self.app["id"]))
        agent = self.owner.request("POST", "/framework-agent/register", json={
            "name": "Helper", "framework": "langgraph", "scopes": ["orders:read"],
            "limits": [{"meter": "spend", "max": 10, "per": "day", "then": "refuse"}],
        })
        form = {"grant_type": "client_credentials", "client_id": agent["clientId"], "client_secret": agent["clientSecret"]}
        token = self.owner.request("POST", "/oauth/token", form=form, headers={"Authorization": ""})["access_token"]
        service = Verifier(self.server.url)
        self.assertEqual(service.verify_machine(token).type, "framework")
        with self.assertRaises(TokenError) as refused:
            service.verify(token)
        self.assertEqual(refused.exception.code, "machine")
        backend = Janua(self.server.url, app_key=self.secret)
        self.assertTrue(backend.introspect(token)["active"])
        self.assertEqual(backend.spend(token, "spend", 4)["remaining"], 6)
        self.assertFalse(backend.spend(token, "spend", 7)["allowed"])

    def test_usage_and_files(self):
        backend = Janua(self.server.url, app_key=self.secret)
        tracked = backend.track("api_calls", 3, customer="c1", event_id="e1")
        self.assertEqual((tracked["accepted"], backend.track("api_calls", 3, customer="c1", event_id="e1")["duplicates"]), (1, 1))
        user = Janua(self.server.url, app_key=self.key, session=self.owner.session)
        stored = user.upload("photo.bin", b"bytes" * 1000, metadata={"album": "2026"})
        self.assertEqual((stored["status"], stored["metadata"]["album"]), ("ready", "2026"))
        with urllib.request.urlopen(stored["downloadUrl"]) as answer:
            self.assertEqual(answer.read(), b"bytes" * 1000)

    def test_deliveries(self):
        received = []

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self):
                received.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        receiver = HTTPServer(("127.0.0.1", 0), Receiver)
        self.addCleanup(receiver.server_close)
        url = f"http://127.0.0.1:{receiver.server_port}/hooks"
        for is_standard, name in ((False, "secret"), (True, "standardSecret")):
            webhook = self.owner.create_webhook(self.app["id"], url, ["user.signed_in"], is_standard)
            path = f"/apps/{self.app['id']}/webhooks/{webhook['id']}/test"
            self.owner.request("POST", path, json={"event": "user.signed_in"})
            receiver.handle_request()
            headers, body = received[-1]
            self.assertEqual(verify_webhook(headers, body, webhook[name])["event"], "user.signed_in")
            with self.assertRaises(WebhookError):
                verify_webhook(headers, body + b" ", webhook[name])


if __name__ == "__main__":
    unittest.main()
