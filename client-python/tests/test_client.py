"""What the client does by itself, against a server that answers as it is told."""

import json
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from janua import Janua, JanuaError, Session


class Told(ThreadingHTTPServer):
    """Answers what `answer` says to a request, and keeps every request."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, answer):
        self.sent, self.answer = [], answer
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = {"method": self.command, "path": self.path, "headers": self.headers, "body": body}
        self.server.sent.append(request)
        answer = self.server.answer(request, len(self.server.sent))
        if answer is None:
            return self.connection.close()
        status, body, *headers = answer
        data = json.dumps(body).encode() if status != 204 else b""
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": len(data), **dict(*headers)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_DELETE = answer

    def log_message(self, *_):
        pass


def problem(code, status, **headers):
    return status, {"title": code, "status": status, "code": code, "requestId": "r1"}, headers


class Client(unittest.TestCase):
    def told(self, answer, **options):
        server = Told(answer)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return Janua(server.url, **options), server.sent

    def refused(self, call):
        with self.assertRaises(JanuaError) as refused:
            call()
        return refused.exception

    def test_a_refusal_has_its_code_and_fields(self):
        errors = [{"field": "name", "code": "required", "message": "x"}]
        janua, _ = self.told(lambda *_: (400, {"code": "invalid", "title": "Check", "requestId": "r9", "errors": errors}))
        error = self.refused(lambda: janua.create_app(""))
        self.assertEqual((error.code, error.status, error.request_id, error.errors), ("invalid", 400, "r9", errors))
        janua, _ = self.told(lambda *_: (400, {"error": "invalid_grant", "error_description": "Used."}))
        error = self.refused(lambda: janua.introspect("x"))
        self.assertEqual((error.code, error.message), ("invalid_grant", "Used."))

    def test_a_creating_post_has_a_key_that_its_retries_share(self):
        janua, sent = self.told(
            lambda _, count: problem("overloaded", 503, **{"Retry-After": "0"}) if count == 1 else (200, {"id": "1"})
        )
        janua.create_app("Shop")
        keys = [request["headers"]["Idempotency-Key"] for request in sent]
        self.assertEqual(len(keys), 2)
        self.assertEqual(len(set(keys)), 1)
        janua.request("POST", "/auth/register", json={})
        self.assertIsNone(sent[-1]["headers"]["Idempotency-Key"])

    def test_retries_wait_as_long_as_the_server_says_and_end(self):
        janua, sent = self.told(lambda _, count: problem("rate_limited", 429, **{"Retry-After": "1"}) if count < 2 else (200, {}))
        began = time.monotonic()
        janua.me()
        self.assertGreater(time.monotonic() - began, 0.9)
        for after, times in (("0", 3), ("31", 1)):
            janua, sent = self.told(lambda *_, after=after: problem("overloaded", 503, **{"Retry-After": after}))
            self.assertEqual(self.refused(janua.me).code, "overloaded")
            self.assertEqual(len(sent), times)
        janua, sent = self.told(lambda *_: problem("unavailable", 503))
        self.refused(lambda: janua.request("PATCH", "/user/profile", json={}))
        self.assertEqual(len(sent), 1)

    def test_a_lost_connection_is_repeated_where_that_does_nothing_twice(self):
        for call, times in (
            (lambda janua: janua.me(), 3),
            (lambda janua: janua.create_app("Shop"), 3),
            (lambda janua: janua.sign_in("a", "b"), 1),
        ):
            janua, sent = self.told(lambda *_: None)
            self.assertEqual(self.refused(lambda call=call, janua=janua: call(janua)).code, "network_error")
            self.assertEqual(len(sent), times)

    def test_threads_renew_a_session_once(self):
        state = {"live": "a1", "refresh": "r1", "refreshes": 0}

        def answer(request, _):
            if request["path"] == "/auth/refresh":
                time.sleep(0.05)
                if json.loads(request["body"])["refreshToken"] != state["refresh"]:
                    return problem("unauthenticated", 401)
                state["refreshes"] += 1
                state.update(live="a2", refresh="r2")
                return 200, {"accessToken": "a2", "refreshToken": "r2", "expiresIn": 900}
            is_live = request["headers"]["Authorization"] == f"Bearer {state['live']}"
            return (200, {"id": "ada"}) if is_live else problem("unauthenticated", 401)

        seen = []
        janua, _ = self.told(answer, session=Session("old", "r1"), on_session=seen.append)
        with ThreadPoolExecutor(16) as pool:
            users = list(pool.map(lambda _: janua.me(), range(16)))
        self.assertEqual((users, state["refreshes"]), ([{"id": "ada"}] * 16, 1))
        self.assertEqual([session.access_token for session in seen], ["a2"])
        over, sent = self.told(answer, session=Session("old", "gone"))
        self.assertEqual(self.refused(over.me).code, "unauthenticated")
        self.assertIsNone(over.session)
        self.assertEqual(len(sent), 2)

    def test_entries_of_all_pages(self):
        def answer(request, _):
            return 200, {"apps": [{"id": "2"}], "nextCursor": None} if "cursor=b" in request["path"] else {"apps": [{"id": "1"}], "nextCursor": "b"}

        janua, _ = self.told(answer)
        self.assertEqual([app["id"] for app in janua.apps()], ["1", "2"])

    def test_redirects_are_not_followed(self):
        janua, sent = self.told(lambda *_: (302, {}, {"Location": "/elsewhere"}), session=Session("secret"))
        self.assertEqual(self.refused(janua.me).status, 302)
        self.assertEqual(len(sent), 1)

    def test_an_id_cannot_lead_to_another_path(self):
        janua, sent = self.told(lambda *_: (200, {"users": []}))
        list(janua.end_users("a/../b"))
        self.assertEqual(sent[0]["path"], "/apps/a%2F..%2Fb/users")
        with self.assertRaises(ValueError):
            list(janua.end_users(".."))


if __name__ == "__main__":
    unittest.main()
