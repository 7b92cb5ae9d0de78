"""A client of the published library Authlib. It says on its output where its person must go ("open"), and reads from its
input where they came back."""
import os
import sys

os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"

import requests
from authlib.common.security import generate_token
from authlib.integrations.base_client import OAuthError
from authlib.integrations.requests_client import OAuth2Session
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.jwk import KeySet

issuer, client_id, client_secret, redirect_uri = sys.argv[1:5]
told = requests.get(f"{issuer}/.well-known/openid-configuration", timeout=10).json()
keys = KeySet.import_key_set(requests.get(told["jwks_uri"], timeout=10).json())
assert told["issuer"] == issuer
print("ok discovery", flush=True)


def ask(*words):
    print(*words, flush=True)
    return sys.stdin.readline().strip()


def claims_of(token, nonce, access_token):
    decoded = jwt.decode(token, keys, algorithms=["RS256"])
    options = {
        "iss": {"essential": True, "value": issuer},
        "aud": {"essential": True, "value": client_id},
    }
    params = {"nonce": nonce, "access_token": access_token, "client_id": client_id}
    claims = CodeIDToken(decoded.claims, decoded.header, options, params)
    claims.validate(leeway=5)
    return claims


for method in ["client_secret_basic", "client_secret_post", "none"]:
    session = OAuth2Session(
        client_id,
        client_secret if method != "none" else None,
        token_endpoint_auth_method=method,
        scope="openid profile email offline_access",
        redirect_uri=redirect_uri,
        code_challenge_method="S256",
        token_endpoint=told["token_endpoint"],
    )
    verifier, nonce = generate_token(48), generate_token(20)
    url, state = session.create_authorization_url(
        told["authorization_endpoint"], code_verifier=verifier, nonce=nonce
    )
    back = ask("open", url)
    token = session.fetch_token(
        told["token_endpoint"], authorization_response=back, code_verifier=verifier, state=state
    )
    claims = claims_of(token["id_token"], nonce, token["access_token"])
    assert claims["email"] == "ada@example.com", claims
    about = session.get(told["userinfo_endpoint"], timeout=10).json()
    assert about["sub"] == claims["sub"], about
    print("ok code with", method, flush=True)

    turned = session.refresh_token(told["token_endpoint"], refresh_token=token["refresh_token"])
    assert turned["refresh_token"] != token["refresh_token"]
    print("ok refresh with", method, flush=True)
    if method == "none":
        continue
    seen = session.introspect_token(told["introspection_endpoint"], token=turned["access_token"]).json()
    assert seen["active"] and seen["client_id"] == client_id, seen
    gone = session.revoke_token(told["revocation_endpoint"], token=turned["refresh_token"])
    assert gone.status_code == 200, gone.text
    seen = session.introspect_token(told["introspection_endpoint"], token=turned["access_token"]).json()
    assert seen == {"active": False}, seen
    print("ok introspection and revocation with", method, flush=True)

wrong = OAuth2Session(client_id, "sk_live_wrong", token_endpoint_auth_method="client_secret_basic")
try:
    wrong.fetch_token(told["token_endpoint"], grant_type="client_credentials")
    raise SystemExit("a wrong secret was taken")
except OAuthError as refused:
    assert refused.error == "invalid_client", refused
print("ok a wrong secret", flush=True)
print("done", flush=True)
