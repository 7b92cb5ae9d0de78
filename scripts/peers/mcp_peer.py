"""The sample of an MCP server (docs/samples/mcp) with the published Python SDK, and the SDK's own client, which finds out
everything by itself. It says on its output where the person must go ("open"), and reads from its input where the person came back."""
import logging
import os
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata

issuer, port, client_metadata_url, app_id, app_secret = sys.argv[1:6]
# On a domain: its name, a folder with the certificate and key of its server, and whether its organization has proven it.
domain, folder, proof = sys.argv[6:9] if len(sys.argv) > 6 else (None, None, "proven")
resource = f"https://{domain}/mcp" if domain else f"http://127.0.0.1:{port}/mcp"
logging.basicConfig(level=logging.WARNING, stream=sys.stderr)


class OnThisMachine(httpx2.AsyncHTTPTransport):
    """Finds the domain on this machine. The certificate must still be the domain's own."""

    async def handle_async_request(self, request):
        if request.url.host != domain:
            return await super().handle_async_request(request)
        there = request.url.copy_with(host="127.0.0.1", port=int(port))
        extensions = request.extensions | {"sni_hostname": domain}
        moved = httpx2.Request(
            request.method, there, headers=request.headers, stream=request.stream, extensions=extensions
        )
        assert moved.headers["host"] == domain
        return await super().handle_async_request(moved)


def transport():
    return OnThisMachine(verify=ssl.create_default_context(cafile=f"{folder}/cert.pem")) if domain else None


class Refused(Exception):
    pass


class Storage:
    tokens = None
    client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


async def through(name, preset=None, **options):
    storage, opened = Storage(), []
    storage.client = preset

    async def redirect(link):
        opened.append(link)
        assert parse_qs(urlsplit(link).query)["resource"] == [resource], link
        print("open" if proof == "proven" else "refused", link, flush=True)

    async def callback():
        back = await anyio.to_thread.run_sync(sys.stdin.readline)
        said = {key: values[0] for key, values in parse_qs(urlsplit(back.strip()).query).items()}
        if proof != "proven":
            # An app is sent the error. Other clients are not: its user reads it on a page.
            assert said.get("error") == "invalid_target" if preset else back.strip() == "page", back
            raise Refused
        assert "code" in said, f"no code: {back}"
        return AuthorizationCodeResult(code=said["code"], state=said.get("state"), iss=said.get("iss"))

    provider = OAuthClientProvider(
        server_url=resource,
        client_metadata=OAuthClientMetadata(
            client_name="MCP client", redirect_uris=["http://127.0.0.1:8791/callback"]
        ),
        storage=storage,
        redirect_handler=redirect,
        callback_handler=callback,
        **options,
    )

    async def call():
        async with httpx2.AsyncClient(auth=provider, timeout=20, transport=transport()) as http:
            async with Client(streamable_http_client(resource, http_client=http)) as client:
                return (await client.call_tool("whoami", {})).content[0].text.split()

    if proof != "proven":
        try:
            await call()
        except* Refused:
            print(f"ok {name}: refused", flush=True)
        assert storage.tokens is None and len(opened) == 1, opened
        return
    client_id, sub = await call()
    assert client_id == storage.client.client_id, client_id
    assert preset is None or client_id == app_id, client_id
    assert client_id == options.get("client_metadata_url", client_id), client_id
    print(f"ok {name}: a tool was called", flush=True)

    # The token has run out: the client turns to its refresh token, and the person is not asked.
    before = storage.tokens
    if preset and not before.refresh_token:
        # An app gets one only if the client asks for it.
        print(f"ok {name}: nothing to refresh", flush=True)
        return
    assert before.refresh_token, before
    provider.context.token_expiry_time = time.time() - 1
    assert await call() == [client_id, sub]
    assert storage.tokens.refresh_token != before.refresh_token
    assert len(opened) == 1, opened
    print(f"ok {name}: refreshed", flush=True)


async def main():
    await through("registered")
    await through("described", client_metadata_url=client_metadata_url)
    # An app that was created beforehand, with its id and its secret key.
    created = OAuthClientInformationFull(
        client_id=app_id,
        client_secret=app_secret,
        redirect_uris=["http://127.0.0.1:8791/callback"],
        token_endpoint_auth_method="client_secret_basic",
    )
    await through("created beforehand", preset=created)


sample = Path(__file__).parents[2] / "docs/samples/mcp/server.py"
start = [sys.executable, sample]
if domain:
    files = ["--ssl-keyfile", f"{folder}/key.pem", "--ssl-certfile", f"{folder}/cert.pem"]
    start = [sys.executable, "-m", "uvicorn", "--app-dir", sample.parent, "server:app", "--port", port, *files]
running = subprocess.Popen(start, stdout=sys.stderr, env=os.environ | {"ISSUER": issuer, "RESOURCE": resource})
try:
    while True:
        assert running.poll() is None, "the sample ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", int(port))) == 0:
                break
        time.sleep(0.02)
    anyio.run(main)
finally:
    running.kill()
print("done", flush=True)
