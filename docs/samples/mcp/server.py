"""An MCP server whose users sign in with Janua. Set ISSUER to the base URL of Janua and RESOURCE to the URL of this server, as
clients reach it:

    pip install -r requirements.txt
    ISSUER=http://localhost:8080 RESOURCE=http://127.0.0.1:8000/mcp python server.py

Janua needs `client_registration = on`, so that MCP clients can register themselves."""
import os
from urllib.parse import urlsplit

import jwt
import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer

ISSUER, RESOURCE = os.environ["ISSUER"], os.environ["RESOURCE"]
SCOPE = "mcp:tools"
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


if __name__ == "__main__":
    url = urlsplit(RESOURCE)
    uvicorn.run(server.streamable_http_app(), host=os.environ.get("HOST", "127.0.0.1"), port=url.port or 8000)
