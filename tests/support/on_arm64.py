"""Run Python on an emulated ARM processor: QEMU, Debian's Python 3.11 for arm64, and its wheels.

    python tests/support/on_arm64.py -m pytest tests/kernels

The first call downloads about 400 MB into .venv-arm64, without root. It needs Debian's or Ubuntu's
apt-get and dpkg-deb, whatever the processor. The emulated process starts no process of its own.
Torch is 2.8, whose aarch64 wheel is for CPUs; other versions are those of constraints.txt.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".venv-arm64"
SYSTEM, SITE, EMULATOR = HOME / "system", HOME / "site-packages", HOME / "qemu"
QEMU = EMULATOR / "usr" / "bin" / "qemu-aarch64-static"

DEBIAN = "deb [trusted=yes] http://deb.debian.org/debian bookworm main\n"
DEBS = ("python3.11", "libpython3.11-stdlib", "libstdc++6", "libgomp1")
TORCH = "2.8.0"
NEEDED_BY_TORCH = ("filelock", "fsspec", "jinja2", "networkx", "sympy", "typing-extensions")
PACKAGES = (
    *("annotated-types", "cachetools", "numpy", "numba", "llvmlite", "polars", "narwhals"),
    *("platformdirs", "pooch", "rich", "safetensors", "typer", "xxhash", "zstandard"),
    *("hypothesis", "pytest", "pytest-timeout", "scipy", "pandas", "pyarrow", "psutil"),
)
PLATFORMS = [f"manylinux_2_{minor}_aarch64" for minor in range(17, 37)] + ["manylinux2014_aarch64"]


def fetch_debs(target: Path, architecture: str, *packages: str) -> None:
    """Unpack packages of Debian and all that they depend on, with a package list of our own."""
    state = HOME / f"apt-{architecture}"
    for name in ("lists/partial", "archives/partial", "empty.d"):
        (state / name).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    (state / "sources.list").write_text(DEBIAN)
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",
        "Dir::Etc::sourcelist": state / "sources.list",
        "Dir::Etc::sourceparts": state / "empty.d",
        "Dir::State::lists": state / "lists",
        "Dir::State::status": state / "status",
        "Dir::Cache::archives": state / "archives",
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
    }
    apt = ["apt-get", "--quiet", *(f"-o{name}={value}" for name, value in settings.items())]
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "--yes", "--download-only", "install", *packages], check=True)
    target.mkdir(exist_ok=True)
    for deb in sorted((state / "archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", deb, target], check=True)


def install_wheels() -> None:
    """Install wheels for aarch64; torch alone, as its metadata names packages for GPUs."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    ours = HOME / "constraints.txt"
    ours.write_text("\n".join(line for line in lines if not re.match("torch==", line)) + "\n")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade"]
    pip += ["--only-binary=:all:", "--python-version=3.11", "--implementation=cp"]
    pip += ["--target", str(SITE)]
    pip += [f"--platform={platform}" for platform in PLATFORMS]
    subprocess.run([*pip, "--no-deps", f"torch=={TORCH}"], check=True)
    subprocess.run([*pip, "--constraint", str(ours), *NEEDED_BY_TORCH, *PACKAGES], check=True)


def set_up() -> None:
    """Make what is missing."""
    done = HOME / ".made"
    if done.exists():
        return
    HOME.mkdir(exist_ok=True)
    host = subprocess.run(
        ["dpkg", "--print-architecture"], check=True, capture_output=True, text=True
    )
    fetch_debs(EMULATOR, host.stdout.strip(), "qemu-user-static")
    fetch_debs(SYSTEM, "arm64", *DEBS)
    install_wheels()
    done.touch()


def main() -> None:
    set_up()
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", SITE))),
        "NUMBA_CACHE_DIR": str(HOME / "kernels"),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    python = SYSTEM / "usr" / "bin" / "python3.11"
    os.execve(QEMU, [str(QEMU), "-L", str(SYSTEM), str(python), *sys.argv[1:]], environment)


if __name__ == "__main__":
    main()
