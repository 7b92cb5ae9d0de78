"""An MCP server of the published Python SDK that takes Janua's tokens, and the SDK's own client, which finds out everything
by itself. It says on its output where the person must go ("open"), and reads from its input where the person came back."""
import logging
import sys
import threading
import time
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import jwt
import uvicorn
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

issuer, port, client_metadata_url = sys.argv[1:4]
resource = f"http://127.0.0.1:{port}/mcp"
keys = jwt.PyJWKClient(f"{issuer}/.well-known/jwks.json")
logging.basicConfig(level=logging.WARNING, stream=sys.stderr)


class Verifier:
    async def verify_token(self, token):
        try:
            key = keys.get_signing_key_from_jwt(token)
            claims = jwt.decode(token, key, algorithms=["RS256"], audience=resource, issuer=issuer)
        except jwt.PyJWTError as error:
            print(f"refused: {error}", file=sys.stderr)
            return None
        return AccessToken(
            token=token,
            client_id=claims["client_id"],
            scopes=claims["scope"].split(),
            expires_at=claims["exp"],
            resource=claims["aud"],
            subject=claims["sub"],
            claims=claims,
        )


server = MCPServer(
    "tools",
    token_verifier=Verifier(),
    auth=AuthSettings(
        issuer_url=issuer,
        resource_server_url=resource,
        required_scopes=["mcp:tools"],
        validate_token_resource=True,
    ),
    log_level="WARNING",
)


@server.tool()
def whoami() -> str:
    """Says who calls."""
    token = get_access_token()
    return f"{token.client_id} {token.subject}"


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


async def through(name, **options):
    storage, opened = Storage(), []

    async def redirect(link):
        opened.append(link)
        print("open", link, flush=True)

    async def callback():
        back = await anyio.to_thread.run_sync(sys.stdin.readline)
        said = {key: values[0] for key, values in parse_qs(urlsplit(back.strip()).query).items()}
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
        async with httpx2.AsyncClient(auth=provider, timeout=20) as http:
            async with Client(streamable_http_client(resource, http_client=http)) as client:
                return (await client.call_tool("whoami", {})).content[0].text.split()

    client_id, sub = await call()
    assert client_id == storage.client.client_id, client_id
    assert client_id == options.get("client_metadata_url", client_id), client_id
    print(f"ok {name}: a tool was called", flush=True)

    # The token has run out: the client turns to its refresh token, and the person is not asked.
    before = storage.tokens
    assert before.refresh_token, before
    provider.context.token_expiry_time = time.time() - 1
    assert await call() == [client_id, sub]
    assert storage.tokens.refresh_token != before.refresh_token
    assert len(opened) == 1, opened
    print(f"ok {name}: refreshed", flush=True)


async def main():
    await through("registered")
    await through("described", client_metadata_url=client_metadata_url)


config = uvicorn.Config(server.streamable_http_app(), host="127.0.0.1", port=int(port), log_level="warning")
running = uvicorn.Server(config)
threading.Thread(target=running.run, daemon=True).start()
while not running.started:
    time.sleep(0.02)
anyio.run(main)
print("done", flush=True)
