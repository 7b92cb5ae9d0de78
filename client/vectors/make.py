"""Makes the test vectors of the clients: python client/vectors/make.py (needs `cryptography`).

The keys are made anew and their private parts are thrown away, so a change renews all tokens.
"""
import base64
import hashlib
import hmac
import json
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

HERE = Path(__file__).parent
ISSUER = "https://id.example.com"
APP = "019c137e-c107-7e01-9a44-5b6c7d8e9f01"
USER = "019c137e-c107-7f36-aa03-c8508b253019"
MACHINE = "01a1eb5b-c825-7000-8477-91a96fc7e25f"
RESOURCE = "https://mcp.example.com/mcp"
NOW = 1_769_853_600


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def text(value) -> str:
    return b64(value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode())


def number(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


class Key:
    def __init__(self, kid: str, size: int = 2048):
        self.kid = kid
        self.private = rsa.generate_private_key(public_exponent=65537, key_size=size)

    def jwk(self) -> dict:
        public = self.private.public_key().public_numbers()
        return {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.kid, "n": number(public.n), "e": number(public.e)}

    def sign(self, signed: str, digest=None) -> str:
        return b64(self.private.sign(signed.encode(), padding.PKCS1v15(), digest or hashes.SHA256()))


current, previous, stranger, weak = Key("current"), Key("previous"), Key("stranger"), Key("weak", 1024)


def token(claims, header=None, key=current, digest=None) -> str:
    head = {"alg": "RS256", "typ": "at+jwt", "kid": key.kid} if header is None else header
    signed = f"{text(head)}.{text(claims)}"
    return f"{signed}.{key.sign(signed, digest)}"


def person(**more) -> dict:
    claims = {
        "iss": ISSUER, "sub": USER, "sid": "s1", "aud": APP, "appId": APP, "email": "ada@example.com",
        "iat": NOW - 60, "exp": NOW + 840, "jti": "j1",
    }
    return {name: value for name, value in (claims | more).items() if value != "absent"}


def machine(kind="agent", **more) -> dict:
    claims = {
        "iss": ISSUER, "sub": MACHINE, "client_id": MACHINE, "aud": ISSUER, "type": kind, "gen": 1, "scope": "orders:read",
        "iat": NOW - 60, "exp": NOW + 840, "jti": "j2",
    }
    return {name: value for name, value in (claims | more).items() if value != "absent"}


def header(**more) -> dict:
    head = {"alg": "RS256", "typ": "at+jwt", "kid": "current"} | more
    return {name: value for name, value in head.items() if value != "absent"}


def tokens() -> dict:
    cases = []

    def good(name, value, kind="user", audience=None, now=NOW, **claims):
        case = {"name": name, "kind": kind, "token": value, "now": now, "claims": claims}
        cases.append(case | ({"audience": audience} if audience else {}))

    def bad(name, reason, value, kind="user", audience=None, now=NOW):
        case = {"name": name, "kind": kind, "token": value, "now": now, "reason": reason}
        cases.append(case | ({"audience": audience} if audience else {}))

    plain = token(person())
    good("a user of an app", plain, audience=APP, sub=USER, email="ada@example.com", appId=APP)
    good("any audience, if none is asked for", plain, sub=USER)
    good("the key before the current one", token(person(), header(kid="previous"), previous), sub=USER)
    good("typ in capitals", token(person(), header(typ="AT+JWT")), sub=USER)
    good("typ as a media type", token(person(), header(typ="application/at+jwt")), sub=USER)
    good("a list of audiences", token(person(aud=["https://two.example", RESOURCE])), audience=RESOURCE, sub=USER)
    good("no audience, if none is asked for", token(person(aud="absent")), sub=USER)
    good("a null audience", token(person(aud=None)), sub=USER)
    good("a null type is no type", token(person(type=None)), sub=USER)
    good("null claims", token(person(email=None, orgId=None)), sub=USER)
    good("the last second", plain, now=NOW + 839, sub=USER)
    good("scopes of an OAuth client", token(person(client_id=APP, scope="openid mcp:tools")), sub=USER, scope="openid mcp:tools")
    good("letters beyond ASCII", token(person(name="Åsa 🔑")), sub=USER)
    for kind in ("app", "agent", "framework", "mcp"):
        good(f"a machine of type {kind}", token(machine(kind)), kind="machine", sub=MACHINE, type=kind)
    good("a machine for one server", token(machine(aud=RESOURCE)), kind="machine", audience=RESOURCE, sub=MACHINE)
    delegated = token(machine("framework", sub=USER, sid="s1", act={"sub": MACHINE, "type": "framework"}))
    good("an agent that acts for a user", delegated, kind="machine", sub=USER, type="framework")
    good("an empty type is a type", token(machine("")), kind="machine", sub=MACHINE)

    head, body, mac = plain.split(".")
    for name, value in {
        "nothing": "", "one part": "a", "two parts": f"{head}.{body}", "four parts": f"{plain}.{mac}",
        "no base64url": "!.!.!", "padded base64": f"{head}=.{body}.{mac}", "a space behind it": plain + " ",
        "a header that is no JSON": f"{text(b'{')}.{body}.{mac}", "a header that is a list": f"{text([])}.{body}.{mac}",
        "a header without alg": f"{text({'typ': 'at+jwt'})}.{body}.{mac}",
        "a signature with another last bit": f"{head}.{body}.{mac[:-1]}{other_last(mac)}",
    }.items():
        bad(name, "malformed", value)
    for name, claims in {
        "claims that are no JSON": b"{", "claims without sub": person(sub="absent"), "claims without exp": person(exp="absent"),
        "claims without iss": person(iss="absent"), "a negative exp": person(exp=-1), "exp as text": person(exp=str(NOW + 840)),
        "an audience of numbers": person(aud=[1]), "a type that is a number": person(type=1), "an email that is a list": person(email=[]),
    }.items():
        bad(name, "malformed", token(claims))
    for alg in ("none", "HS256", "RS512", "PS256", "ES256", "rs256", ""):
        bad(f"alg {alg or '(empty)'}", "algorithm", token(person(), header(alg=alg)))
    bad("alg none without a signature", "algorithm", f"{text({'alg': 'none', 'typ': 'at+jwt'})}.{body}.")
    # The public key as the secret of an HMAC, where the token may choose the algorithm.
    head = text({"alg": "HS256", "typ": "at+jwt", "kid": "current"})
    forged = hmac.new(json.dumps(current.jwk()).encode(), f"{head}.{body}".encode(), hashlib.sha256).digest()
    bad("HMAC with the public key", "algorithm", f"{head}.{body}.{b64(forged)}")
    for typ in ("JWT", "jwt", "logout+jwt", "", "absent"):
        bad(f"typ {typ or '(empty)'}", "not_access_token", token(person(), header(typ=typ)))
        bad(f"a machine's, typ {typ or '(empty)'}", "not_access_token", token(machine(), header(typ=typ)), kind="machine")
    bad("the ID token of the code flow", "not_access_token",
        token({"iss": ISSUER, "sub": USER, "aud": APP, "iat": NOW, "exp": NOW + 840, "nonce": "n"}, header(typ="JWT")), audience=APP)
    bad("an unknown key", "unknown_key", token(person(), header(kid="stranger"), stranger))
    bad("no key id", "unknown_key", token(person(), header(kid="absent")))
    bad("a key of another kind", "unknown_key", token(person(), header(kid="elliptic")))
    bad("a key that the token brings along", "signature", token(person(), header(jwk=stranger.jwk()), stranger))
    bad("another key under a known name", "signature", token(person(), header(), stranger))
    bad("the name of another known key", "signature", token(person(), header(kid="previous")))
    bad("another digest", "signature", token(person(), digest=hashes.SHA512()))
    bad("a key of 1024 bits", "signature", token(person(), header(kid="weak"), weak))
    bad("no signature", "signature", f"{head_of(plain)}.{body}.")
    bad("a short signature", "signature", f"{head_of(plain)}.{body}.{b64(b'x' * 255)}")
    bad("altered claims", "signature", f"{head_of(plain)}.{text(person(sub='eve'))}.{mac}")
    bad("altered header", "signature", f"{text(header(x=1))}.{body}.{mac}")
    bad("the second after the last", "expired", plain, now=NOW + 840)
    bad("long expired, of another issuer", "expired", token(person(exp=1, iss="https://evil.example")))
    for issuer in ("https://evil.example", ISSUER + "/", "http://id.example.com", ISSUER + ".evil.example", ""):
        bad(f"issuer {issuer or '(empty)'}", "issuer", token(person(iss=issuer)))
    for name, audience in {
        "another app": "another", "a list of others": ["one", "two"], "an empty list": [], "none": "absent", "null": None,
        "a longer one": RESOURCE + "/", "another case": RESOURCE.upper(), "a part of it": "https://mcp.example.com",
    }.items():
        bad(f"audience: {name}", "audience", token(person(aud=audience)), audience=RESOURCE)
    bad("a machine's token for another server", "audience", token(machine()), kind="machine", audience=RESOURCE)
    for kind in ("app", "agent", "framework", "mcp", ""):
        bad(f"a machine as a user: type {kind or '(empty)'}", "machine", token(machine(kind)))
    bad("the app itself as its user", "machine", token(machine("app", sub=APP, aud=APP)), audience=APP)
    bad("an agent that acts for a user, as the user", "machine", delegated)
    bad("a user as a machine", "user", plain, kind="machine")
    elliptic = {"kty": "EC", "crv": "P-256", "kid": "elliptic", "x": b64(b"x" * 32), "y": b64(b"y" * 32)}
    keys = [key.jwk() for key in (current, previous, weak)] + [elliptic]
    return {"issuer": ISSUER, "keys": {"keys": keys}, "cases": cases}


def head_of(value: str) -> str:
    return value.split(".")[0]


def other_last(mac: str) -> str:
    """The last letter with a bit set that no byte needs."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return alphabet[alphabet.index(mac[-1]) ^ 1]


def webhooks() -> dict:
    secret, old = "da63d3bec3450fba" * 4, "0123456789abcdef" * 4
    body = '{"event":"user.signed_in","deliveryId":"01a1eb5b-cade-7001-8351-c3fd435da6c9","user":{"id":"u","name":"Åsa"}}'
    cases = []

    def mac(key=secret, at=NOW, data=body) -> str:
        return hmac.new(key.encode(), f"{at}.{data}".encode(), hashlib.sha256).hexdigest()

    def add(name, signature, reason=None, now=NOW, key=secret, data=body):
        case = {"name": name, "headers": {"webhook-signature": signature}, "body": data, "secret": key, "now": now}
        cases.append(case | ({"reason": reason} if reason else {}))

    one, two = mac(), mac(old)
    add("one signature", f"t={NOW},v1={one}")
    add("a rotation, with the new secret", f"t={NOW},v1={one},v1={two}")
    add("a rotation, with the old secret", f"t={NOW},v1={one},v1={two}", key=old)
    add("any order, spaces and other versions", f"v1={one}, t={NOW} ,v0=x")
    add("hexadecimal in capitals", f"t={NOW},v1={one.upper()}")
    add("five minutes early", f"t={NOW},v1={one}", now=NOW - 300)
    add("five minutes late", f"t={NOW},v1={one}", now=NOW + 300)
    add("an empty object", f"t={NOW},v1={mac(data='{}')}", data="{}")
    for name, header in {
        "an empty header": "", "no signature": f"t={NOW}", "no time": f"v1={one}", "an empty time": f"t=,v1={one}",
        "a time that is no number": f"t=x,v1={one}", "a negative time": f"t=-1,v1={one}", "a time with a sign": f"t=+{NOW},v1={one}",
        "a fraction": f"t={NOW}.5,v1={one}", "a time of 21 digits": f"t=1{NOW}0000000000,v1={one}",
        "other digits": f"t=١٢٣,v1={one}", "garbage": "garbage", "spaces in the name": f"t ={NOW},v1 ={one}",
        "only another version": f"t={NOW},v0={one}", "the form of Standard Webhooks": "v1," + base64.b64encode(b"x" * 32).decode(),
    }.items():
        add(name, header, "malformed_header")
    add("a second too early", f"t={NOW},v1={one}", "timestamp_outside_tolerance", now=NOW - 301)
    add("a second too late", f"t={NOW},v1={one}", "timestamp_outside_tolerance", now=NOW + 301)
    add("the largest time", f"t={2**64 - 1},v1={one}", "timestamp_outside_tolerance")
    add("milliseconds", f"t={NOW}000,v1={mac(at=NOW * 1000)}", "timestamp_outside_tolerance")
    add("another secret", f"t={NOW},v1={one},v1={two}", "signature_mismatch", key="f" * 64)
    add("the secret decoded", f"t={NOW},v1={hmac.new(bytes.fromhex(secret), f'{NOW}.{body}'.encode(), hashlib.sha256).hexdigest()}",
        "signature_mismatch")
    add("another body", f"t={NOW},v1={one}", "signature_mismatch", data=body + " ")
    add("another time", f"t={NOW + 1},v1={one}", "signature_mismatch")
    add("the body alone", f"t={NOW},v1={hmac.new(secret.encode(), body.encode(), hashlib.sha256).hexdigest()}", "signature_mismatch")
    add("a short signature", f"t={NOW},v1={one[:62]}", "signature_mismatch")
    add("half a digit", f"t={NOW},v1={one[:63]}", "signature_mismatch")
    add("a long signature", f"t={NOW},v1={one}00", "signature_mismatch")
    add("an empty signature", f"t={NOW},v1=", "signature_mismatch")
    add("no hexadecimal", f"t={NOW},v1={'z' * 64}", "signature_mismatch")
    add("the signature as base64", f"t={NOW},v1={base64.b64encode(bytes.fromhex(one)).decode()}", "signature_mismatch")
    return {"cases": cases}


def standard_webhooks() -> dict:
    """The form of https://www.standardwebhooks.com."""
    key, old = bytes(range(32)), bytes(range(32, 64))
    identity, body = "01a1eb5b-cade-7001-8351-c3fd435da6c9", '{"event":"user.created","deliveryId":"01a1eb5b"}'
    cases = []

    def secret(value=key) -> str:
        return "whsec_" + base64.b64encode(value).decode()

    def mac(value=key, at=NOW) -> str:
        signed = f"{identity}.{at}.{body}".encode()
        return "v1," + base64.b64encode(hmac.new(value, signed, hashlib.sha256).digest()).decode()

    def add(name, signature, reason=None, now=NOW, value=key, **headers):
        given = {"webhook-id": identity, "webhook-timestamp": str(NOW), "webhook-signature": signature} | headers
        case = {"name": name, "headers": given, "body": body, "secret": secret(value), "now": now}
        cases.append(case | ({"reason": reason} if reason else {}))

    add("one signature", mac())
    add("several signatures", f"{mac(old)} v1a,xyz {mac()}")
    add("a rotation, with the old secret", f"{mac()} {mac(old)}", value=old)
    add("five minutes late", mac(), now=NOW + 300)
    add("a second too late", mac(), "timestamp_outside_tolerance", now=NOW + 301)
    add("a second too early", mac(), "timestamp_outside_tolerance", now=NOW - 301)
    add("no signature", "", "malformed_header")
    add("another version", mac().replace("v1,", "v2,"), "malformed_header")
    add("no id", mac(), "malformed_header", **{"webhook-id": ""})
    add("a time that is no number", mac(), "malformed_header", **{"webhook-timestamp": "now"})
    add("another id", mac(), "signature_mismatch", **{"webhook-id": "another"})
    add("another time", mac(), "signature_mismatch", **{"webhook-timestamp": str(NOW + 1)})
    add("another secret", mac(), "signature_mismatch", value=old)
    add("no base64", "v1,!!!!", "signature_mismatch")
    own = hmac.new(secret().encode(), f"{NOW}.{body}".encode(), hashlib.sha256).hexdigest()
    add("the other form", f"t={NOW},v1={own}", "malformed_header")
    return {"cases": cases}


for file, content in {"tokens": tokens(), "webhooks": webhooks(), "standard-webhooks": standard_webhooks()}.items():
    (HERE / f"{file}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
