"""The wheel for Linux that holds the compiled scans, made from the wheel for any system.

The libraries are loaded by their path and know no Python, so one wheel serves every version of it. What they
ask of the system decides the tag: the newest glibc they name, and none older than torch's own wheels need.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

OLDEST_GLIBC = (2, 28)  # torch's own
PLACE = "plait/ops/scan/built"
COMPILE = """
import sys; from pathlib import Path
from plait.ops.scan.cpu_library import compile_for_wheel
compile_for_wheel(Path(sys.argv[1]))
"""


def compiled_wheel(tree: Path, wheel: Path, out: Path) -> Path:
    """`wheel` with the libraries of the same tree's source beside their loader."""
    with tempfile.TemporaryDirectory() as aside:
        environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONSAFEPATH": "1"}
        environment.pop("PLAIT_CXXFLAGS", None)  # they would be part of its name
        subprocess.run([sys.executable, "-c", COMPILE, aside], env=environment, check=True)
        libraries = {path.name: path.read_bytes() for path in sorted(Path(aside).iterdir())}
    return with_libraries(wheel, libraries, out)


def with_libraries(wheel: Path, libraries: dict[str, bytes], out: Path) -> Path:
    tag = f"py3-none-manylinux_{'_'.join(map(str, glibc_of(libraries)))}_x86_64"
    target = out / wheel.name.replace("py3-none-any", tag)
    with zipfile.ZipFile(wheel) as pure, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as made:
        for entry in pure.infolist():
            content = pure.read(entry)
            if entry.filename.endswith(".dist-info/WHEEL"):
                content = described(content.decode(), tag).encode()
            elif entry.filename.endswith(".dist-info/RECORD"):
                continue
            made.writestr(entry, content)
        for name, content in libraries.items():
            made.writestr(_like(entry, f"{PLACE}/{name}"), content)
        record = next(name for name in pure.namelist() if name.endswith(".dist-info/RECORD"))
        lines = [
            f"{name},{_digest(made.read(name))},{made.getinfo(name).file_size}" for name in made.namelist()
        ]
        made.writestr(_like(entry, record), "\n".join([*lines, f"{record},,", ""]))
    return target


def described(text: str, tag: str) -> str:
    """Return the wheel's own description, for one platform."""
    text = re.sub(r"^Root-Is-Purelib: .*$", "Root-Is-Purelib: false", text, flags=re.MULTILINE)
    return re.sub(r"^Tag: .*$", f"Tag: {tag}", text, flags=re.MULTILINE)


def glibc_of(libraries: dict[str, bytes]) -> tuple[int, int]:
    """Return the newest glibc that a library requires, by the version names in it."""
    named = re.findall(rb"GLIBC_(\d+)\.(\d+)", b"".join(libraries.values()))
    return max([OLDEST_GLIBC, *((int(major), int(minor)) for major, minor in named)])


def _like(entry: zipfile.ZipInfo, name: str) -> zipfile.ZipInfo:
    """Return an archive entry with the time of the commit."""
    made = zipfile.ZipInfo(name, entry.date_time)
    made.compress_type, made.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
    return made


def _digest(content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"sha256={digest}"
