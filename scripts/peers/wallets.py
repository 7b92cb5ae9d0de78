"""Published wallet libraries as agents: eth-account signs, siwe reads the text by itself, PyNaCl is a Solana wallet."""
import base64
import sys

import nacl.signing
import requests
from eth_account import Account
from eth_account.messages import encode_defunct
from siwe import SiweMessage

base, token = sys.argv[1:3]
ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def base58(data):
    number, text = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        text = ALPHABET[digit] + text
    return "1" * (len(data) - len(data.lstrip(b"\0"))) + text


def post(path, body, **headers):
    answer = requests.post(base + path, json=body, headers=headers, timeout=30)
    assert answer.ok, f"{path}: {answer.status_code} {answer.text}"
    return answer.json()


def sign_in(name, address, sign, check=lambda message, signature: None):
    session = {"Authorization": f"Bearer {token}"}
    agent = post("/agent/register", {"name": name, "wallet": address, "scopes": ["orders:read"]}, **session)["agent"]
    asked = post("/agent/challenge", {"wallet": address, "agentId": agent["id"], "scopes": ["orders:read"]})
    signature = sign(asked["message"])
    check(asked["message"], signature)
    issued = post("/agent/token", {"challenge": asked["challenge"], "signature": signature, "message": asked["message"]})
    me = requests.get(base + "/machine/me", headers={"Authorization": f"Bearer {issued['accessToken']}"}, timeout=30)
    assert me.ok and me.json()["id"] == agent["id"], me.text
    assert requests.get(f"{base}/verify/agent/{address}", timeout=30).json() == {"verified": True}
    print(name, flush=True)


wallet = Account.create()


def checked(message, signature):
    # The text is taken apart, checked, and put together again byte for byte.
    read = SiweMessage.from_message(message=message)
    read.verify(signature)
    assert read.prepare_message() == message


sign_in(
    "eth-account",
    wallet.address,
    lambda text: "0x" + wallet.sign_message(encode_defunct(text=text)).signature.hex().removeprefix("0x"),
    checked,
)
for name, encode in [("pynacl-base58", base58), ("pynacl-base64", lambda data: base64.b64encode(data).decode())]:
    key = nacl.signing.SigningKey.generate()
    sign_in(name, base58(bytes(key.verify_key)), lambda text: encode(key.sign(text.encode()).signature))
print("done")
