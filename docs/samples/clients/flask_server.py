# pip install flask ./client-python
# ISSUER=https://id.example.com CLIENT_ID=… WEBHOOK_SECRET=… python flask_server.py
import os
from functools import wraps

from flask import Flask, g, jsonify, request, send_from_directory
from janua import TokenError, Verifier, WebhookError, verify_webhook

ISSUER, CLIENT_ID = os.environ["ISSUER"], os.environ["CLIENT_ID"]
verifier = Verifier(ISSUER, audience=CLIENT_ID)
app = Flask(__name__)


def signed_in(view):
    """Verifies the caller. The keys of the service are kept for five minutes, so most requests need no request to it."""

    @wraps(view)
    def checked(*args, **kwargs):
        try:
            g.user = verifier.verify_request(request.headers)
        except TokenError as error:
            return jsonify(error=error.code), 503 if error.code == "keys_unavailable" else 401
        return view(*args, **kwargs)

    return checked


@app.get("/api/me")
@signed_in
def me():
    return jsonify(id=g.user.sub)


processed = set()  # in production: a table with a unique column


@app.post("/hooks/janua")
def receive():
    try:
        event = verify_webhook(request.headers, request.get_data(), os.environ["WEBHOOK_SECRET"])
    except WebhookError as error:
        return jsonify(error=error.code), 400
    if event["deliveryId"] not in processed:
        processed.add(event["deliveryId"])
        print(event["event"], event.get("user", {}).get("email", ""), flush=True)
    return "", 204


# The page, for which a bundler usually packs the client. CLIENT_FOLDER is the folder `dist` of @janua/client.
@app.get("/config.json")
def config():
    return jsonify(issuer=ISSUER, clientId=CLIENT_ID)


@app.get("/")
def page():
    return send_from_directory(os.path.dirname(os.path.abspath(__file__)), "browser.html")


@app.get("/janua/<path:name>")
def client(name):
    return send_from_directory(os.environ["CLIENT_FOLDER"], name)


if __name__ == "__main__":
    port = int(os.environ.get("PORT", "3000"))
    print(f"Open http://127.0.0.1:{port}/", flush=True)
    app.run("127.0.0.1", port)
