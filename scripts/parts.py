"""What the binary is made of, from `cargo metadata` and `Cargo.lock`; for `scripts/sbom` and `scripts/notices`."""
import json
import platform
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "server"
THIS_MACHINE = f"{platform.machine()}-unknown-linux-gnu"
# Of libraries that are no crates.
SYSTEM_LICENCES = {"glibc": "LGPL-2.1-or-later"}


def expression(package):
    """The license as an SPDX expression; older crates write a slash for OR."""
    return (package.get("license") or "").replace("/", " OR ")


def checksums():
    """The digests by name and version, as the lock file has them."""
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(one["name"], one["version"]): one["checksum"] for one in lock["package"] if "checksum" in one}


class Parts:
    """The crates that are compiled into the binary or run while it is built; nothing that only tests need."""

    def __init__(self, target):
        command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
        described = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
        self.packages = {package["id"]: package for package in described["packages"]}
        self.ours = set(described["workspace_members"])
        self.root = next(id for id in self.ours if self.packages[id]["name"] == PACKAGE)
        nodes = {node["id"]: node for node in described["resolve"]["nodes"]}
        # By crate, what it needs.
        self.graph, queue = {}, [self.root]
        while queue:
            here = queue.pop()
            if here in self.graph:
                continue
            needed = nodes[here]["deps"]
            wanted = [one["pkg"] for one in needed if any(kind["kind"] != "dev" for kind in one["dep_kinds"])]
            self.graph[here] = sorted(set(wanted))
            queue.extend(wanted)
