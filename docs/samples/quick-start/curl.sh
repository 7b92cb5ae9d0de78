#!/usr/bin/env bash
# Run `env $(cat .env) bash quick-start.sh`. It prints a URL: open it and sign in. The browser ends at a page that cannot be
# reached, because nothing listens there: paste its URL.
set -euo pipefail
ISSUER=${ISSUER:-https://id.example.com}
CLIENT_ID=${CLIENT_ID:-YOUR_CLIENT_ID}
REDIRECT_URL=${REDIRECT_URL:-http://localhost:3000/callback}

base64url() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }
STATE=$(openssl rand 32 | base64url)
VERIFIER=$(openssl rand 32 | base64url)
CHALLENGE=$(printf %s "$VERIFIER" | openssl dgst -sha256 -binary | base64url)
echo "$ISSUER/oauth/authorize?response_type=code&client_id=$CLIENT_ID&redirect_uri=$REDIRECT_URL&scope=openid+profile+email&state=$STATE&code_challenge=$CHALLENGE&code_challenge_method=S256"

read -r BACK
parameter() { printf %s "${BACK#*\?}" | tr '&' '\n' | sed -n "s/^$1=//p"; }
[ "$(parameter state)" = "$STATE" ] || { echo 'This sign-in was not started here.' >&2; exit 1; }

TOKENS=$(curl --silent --show-error --fail-with-body "$ISSUER/oauth/token" \
  -d grant_type=authorization_code -d client_id="$CLIENT_ID" --data-urlencode redirect_uri="$REDIRECT_URL" \
  -d code="$(parameter code)" -d code_verifier="$VERIFIER")
ACCESS_TOKEN=$(printf %s "$TOKENS" | sed 's/.*"access_token":"\([^"]*\)".*/\1/')
curl --silent --show-error --fail-with-body "$ISSUER/oauth/userinfo" -H "Authorization: Bearer $ACCESS_TOKEN"
