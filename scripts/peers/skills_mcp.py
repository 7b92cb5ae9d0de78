"""A skill is published, and the published Python SDK of MCP reads it at `POST /mcp`: with a user's token, and with that of a
framework agent."""
import hashlib
import io
import sys
import tarfile

import anyio
import httpx2
import requests
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

base, person = sys.argv[1:3]
user = {"Authorization": f"Bearer {person}"}
TEXT = """---
name: pdf-tools
description: Reads and fills PDF forms. Use it when the user has a PDF.
metadata:
  version: "1.0.0"
---

# PDF tools
"""
FILES = {"SKILL.md": TEXT.encode(), "references/forms.md": b"# Forms\n"}


def package():
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in FILES.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def ask(path, headers=user, **options):
    answer = requests.post(base + path, headers=headers, timeout=20, **options)
    assert answer.ok, f"{path}: {answer.status_code} {answer.text}"
    return answer.json()


async def read_all(token):
    """Everything of the skill, as a program reads it that knows nothing of this server."""
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=20) as http:
        async with Client(streamable_http_client(f"{base}/mcp", http_client=http)) as client:
            listed = (await client.list_resources()).resources
            assert [str(one.uri) for one in listed] == ["skill://readers/pdf-tools/SKILL.md"], listed
            assert (listed[0].name, listed[0].mime_type) == ("pdf-tools", "text/markdown"), listed
            read = (await client.read_resource(listed[0].uri)).contents[0]
            assert read.text == TEXT, read
            forms = await client.read_resource("skill://readers/pdf-tools/references/forms.md")
            assert forms.contents[0].text == "# Forms\n", forms
            try:
                await client.read_resource("skill://readers/other/SKILL.md")
            except MCPError as error:
                assert error.error.code == -32602, error
            else:
                raise AssertionError("a skill that is not there was read")


org = ask("/org", json={"name": "Readers", "slug": "readers"})["id"]
sent = ask("/skills?namespace=readers&visibility=org", {**user, "Content-Type": "application/gzip"}, data=package())
assert sent["version"]["state"] == "published", sent
digests = {file["path"]: file["digest"] for file in sent["version"]["files"]}
assert digests["SKILL.md"].endswith(hashlib.sha256(FILES["SKILL.md"]).hexdigest()), digests
anyio.run(read_all, person)
print("user")

agent = ask("/framework-agent/register", json={"name": "Helper", "framework": "langgraph", "orgId": org})
credentials = {"grant_type": "client_credentials", "client_id": agent["clientId"], "client_secret": agent["clientSecret"]}
machine = ask("/oauth/token", {}, data=credentials)["access_token"]
anyio.run(read_all, machine)
print("machine")

suspended = requests.post(f"{base}/framework-agent/{agent['clientId']}/suspend", headers=user, json={}, timeout=20)
assert suspended.ok, suspended.text
try:
    anyio.run(read_all, machine)
except BaseException as error:  # The SDK wraps what went wrong in groups.
    assert not isinstance(error, AssertionError), error
    print("suspended")
print("done")
