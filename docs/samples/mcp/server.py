"""An MCP server whose users sign in with Janua. Set ISSUER to the base URL of Janua and RESOURCE to the URL of this server, as
clients reach it:

    pip install -r requirements.txt
    ISSUER=http://localhost:8080 RESOURCE=http://127.0.0.1:8000/mcp python server.py

Janua needs `client_registration = on`, so that MCP clients can register themselves. A public server needs a domain that an app
has proven and that declares the scope, and TLS: a proxy before it that keeps the Host header, or uvicorn's own:

    ISSUER=https://id.example.com RESOURCE=https://mcp.example.com/mcp \\
      uvicorn server:app --port 443 --ssl-keyfile key.pem --ssl-certfile cert.pem"""
import os
from urllib.parse import urlsplit

import jwt
import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

ISSUER, RESOURCE = os.environ["ISSUER"], os.environ["RESOURCE"]
SCOPE = "mcp:tools"
url = urlsplit(RESOURCE)
keys = jwt.PyJWKClient(f"{ISSUER}/.well-known/jwks.json")


class Verifier:
    """Accepts access tokens that Janua made for this server, and no others."""

    async def verify_token(self, token: str) -> AccessToken | None:
        try:
            key = keys.get_signing_key_from_jwt(token)
            claims = jwt.decode(token, key, algorithms=["RS256"], audience=RESOURCE, issuer=ISSUER)
        except jwt.PyJWTError:
            return None
        return AccessToken(
            token=token,
            client_id=claims["client_id"],
            scopes=claims["scope"].split(),
            expires_at=claims["exp"],
            resource=RESOURCE,
            subject=claims["sub"],
        )


server = MCPServer(
    "tools",
    token_verifier=Verifier(),
    auth=AuthSettings(
        issuer_url=ISSUER,
        resource_server_url=RESOURCE,
        required_scopes=[SCOPE],
        validate_token_resource=True,
    ),
)


@server.tool()
def whoami() -> str:
    """Says which client calls, and for which user."""
    token = get_access_token()
    return f"{token.client_id} {token.subject}"


# Without the settings the SDK accepts requests to names of loopback alone (421 Invalid Host header).
app = server.streamable_http_app(
    streamable_http_path=url.path or "/",
    transport_security=TransportSecuritySettings(
        allowed_hosts=[url.netloc], allowed_origins=[f"{url.scheme}://{url.netloc}"]
    ),
)

if __name__ == "__main__":
    uvicorn.run(app, host=os.environ.get("HOST", "127.0.0.1"), port=url.port or 8000)
