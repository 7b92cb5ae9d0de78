"""A server for the tests: the binary named by TEST_BINARY, in a folder of its own."""

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

from janua import Janua

PASSWORD = "correct horse battery staple"


class Server:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="janua-python-")
        self.data = Path(self.folder.name) / "data"
        env = {**os.environ, "JANUA_DATA_DIR": str(self.data), "JANUA_RATE_LIMITS": "off", "JANUA_EDGE_LISTEN": ""}
        command = [os.environ["TEST_BINARY"], "serve", "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.process.stdout:
            if found := re.search(r"base URL (http:\S+)\)", line):
                self.url = found[1]
                return
        raise RuntimeError("the server did not start")

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()
        self.folder.cleanup()

    def sign_up(self, email):
        janua = Janua(self.url)
        janua.request("POST", "/auth/register", json={"email": email, "password": PASSWORD, "name": "Ada"})
        for _ in range(200):
            texts = [file.read_text() for file in sorted(self.data.glob("outbox/*.eml"))]
            codes = [found[1] for text in texts if email in text and (found := re.search(r"(?m)^Code: (\d+)", text))]
            if codes:
                break
            time.sleep(0.05)
        janua.request("POST", "/auth/verify-email", json={"email": email, "code": codes[-1]})
        janua.sign_in(email, PASSWORD)
        return janua
