"""The vectors that the clients in Rust and TypeScript are held to as well."""

import json
import os
import unittest
from pathlib import Path
from unittest import mock

from janua import TokenError, Verifier, WebhookError, presented_token, tokens, verify_webhook

FOLDER = Path(os.environ.get("TEST_VECTORS", Path(__file__).parents[2] / "client/vectors"))


def read(name):
    return json.loads((FOLDER / f"{name}.json").read_text())


class Vectors(unittest.TestCase):
    def test_tokens(self):
        vectors = read("tokens")
        self.assertGreater(len(vectors["cases"]), 90)
        for case in vectors["cases"]:
            with self.subTest(case["name"]):
                verifier = Verifier(vectors["issuer"], case.get("audience"), now=lambda: case["now"])
                verify = verifier.verify_machine if case["kind"] == "machine" else verifier.verify
                with mock.patch.object(Verifier, "_fetch", return_value=tokens.read_keys(vectors["keys"])):
                    if "reason" in case:
                        with self.assertRaises(TokenError) as refused:
                            verify(case["token"])
                        self.assertEqual(refused.exception.code, case["reason"])
                    else:
                        claims = verify(case["token"])
                        said = {**claims.raw, "sub": claims.sub, "email": claims.email, "appId": claims.app_id, "type": claims.type}
                        for name, value in case["claims"].items():
                            self.assertEqual(said[name], value, name)

    def test_webhooks(self):
        for file in ("webhooks", "standard-webhooks"):
            cases = read(file)["cases"]
            self.assertGreaterEqual(len(cases), 15)
            for case in cases:
                with self.subTest(f"{file}: {case['name']}"):
                    body = case["body"].encode()
                    if "reason" in case:
                        with self.assertRaises(WebhookError) as refused:
                            verify_webhook(case["headers"], body, case["secret"], case["now"])
                        self.assertEqual(refused.exception.code, case["reason"])
                    else:
                        event = verify_webhook(case["headers"], body, case["secret"], case["now"])
                        self.assertEqual(event, json.loads(body))

    def test_an_absurd_time_is_refused_as_any_other(self):
        with self.assertRaises(WebhookError):
            verify_webhook({"Webhook-Signature": f"t={'9' * 10_000},v1=00"}, b"{}", "s")

    def test_keys_are_kept_for_five_minutes_and_fetched_again_after_a_failure(self):
        vectors = read("tokens")
        case = next(case for case in vectors["cases"] if "reason" not in case)
        now = case["now"]
        verifier = Verifier(vectors["issuer"] + "/", now=lambda: now)
        with mock.patch.object(Verifier, "_fetch", return_value=tokens.read_keys(vectors["keys"])) as fetch:
            verifier.verify(case["token"])
            now += 299
            verifier.verify(case["token"])
            self.assertEqual(fetch.call_count, 1)
            now += 1
            fetch.side_effect = OSError
            with self.assertRaises(TokenError) as refused:
                verifier.verify(case["token"])
            self.assertEqual(refused.exception.code, "keys_unavailable")
            fetch.side_effect = None
            verifier.verify(case["token"])
            self.assertEqual(fetch.call_count, 3)

    def test_the_token_of_a_request_is_its_cookie_then_its_header(self):
        self.assertEqual(presented_token("x=1; __Host-service_access=h; service_access=l", "Bearer b"), "h")
        self.assertEqual(presented_token("service_access=l", "Bearer b"), "l")
        self.assertEqual(presented_token("service_access=", "bearer b"), "b")
        self.assertIsNone(presented_token("other=1", "Basic b"))
        self.assertIsNone(presented_token(None, None))
        with self.assertRaises(TokenError) as refused:
            Verifier("http://127.0.0.1:1").verify_request({})
        self.assertEqual(refused.exception.code, "missing")


if __name__ == "__main__":
    unittest.main()
