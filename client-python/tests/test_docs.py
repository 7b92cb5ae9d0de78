"""The code of docs/clients.md is typed right."""

import importlib.util
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]


@unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
class Docs(unittest.TestCase):
    def test_python_code_is_typed(self):
        page = (ROOT / "docs/clients.md").read_text()
        blocks = [code for code in re.findall(r"(?ms)^```python\n(.*?)^```", page) if code.startswith("from janua")]
        self.assertEqual(len(blocks), 2)
        with tempfile.TemporaryDirectory() as folder:
            for index, code in enumerate(blocks):
                (Path(folder) / f"block{index}.py").write_text(code)
            command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", f"{folder}/cache", folder]
            done = subprocess.run(command, capture_output=True, text=True, env={"MYPYPATH": str(ROOT / "client-python/src")})
            self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
