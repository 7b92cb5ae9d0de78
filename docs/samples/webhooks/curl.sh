#!/usr/bin/env bash
# Checks a delivery that you have recorded. body.json: the body as received, byte for byte. HEADER: Webhook-Signature.
# SECRET: the 64 characters shown at creation.
T=$(printf %s "$HEADER" | tr ',' '\n' | sed -n 's/^ *t=\([0-9]\{1,12\}\)$/\1/p')
AGE=$((${NOW:-$(date +%s)} - ${T:-0}))
[ "${AGE#-}" -le 300 ] || { echo 'forged: the timestamp is more than five minutes away'; exit 1; }
EXPECTED=$({ printf '%s.' "$T"; cat body.json; } | openssl dgst -sha256 -hmac "$SECRET" -r | cut -d' ' -f1)
# During a rotation there are two signatures: compare each, not only the first.
printf '%s\n' "$HEADER" | tr ',' '\n' | grep -qx " *v1=$EXPECTED" && echo genuine || { echo forged; exit 1; }
