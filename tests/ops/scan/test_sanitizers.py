"""The C++ scans under AddressSanitizer and UndefinedBehaviorSanitizer: parity, and hostile states."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

OPS = Path(__file__).parents[1]
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -O1"
# A read beyond an allocation by as much as a forgotten slot would be; a shift by more than there are bits.
BROKEN = """
import ctypes, subprocess, sys
code = 'extern "C" long f(long* a, long n) { return WHAT; }'.replace("WHAT", sys.argv[1])
build = ["g++", *FLAGS.split(), "-shared", "-fPIC", "-x", "c++", "-", "-o", sys.argv[2]]
subprocess.run(build, input=code.encode(), check=True)
import torch
tensor = torch.zeros(16, dtype=torch.int64)
found = ctypes.CDLL(sys.argv[2]).f
found.argtypes = [ctypes.c_void_p, ctypes.c_long]
print(found(tensor.data_ptr(), 16))
""".replace("FLAGS", repr(FLAGS))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1700),
    pytest.mark.skipif(not shutil.which("g++"), reason="needs g++ and its sanitizers"),
]


@pytest.fixture
def watched(tmp_path):
    """An environment in which the scans are built with sanitizers, into a cache of their own."""
    found = [
        subprocess.run(
            ["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    if not all(os.path.isabs(path) for path in found):
        pytest.skip("this g++ comes without sanitizers")
    return {
        **os.environ,
        "LD_PRELOAD": ":".join(found),
        "PLAIT_CXXFLAGS": FLAGS,
        "TORCH_EXTENSIONS_DIR": str(tmp_path / "built"),
        # What Python keeps for good is no leak of ours.
        "ASAN_OPTIONS": "detect_leaks=0:detect_odr_violation=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "OMP_NUM_THREADS": "2",
    }


def test_parity_and_hostile_states(watched, tmp_path):
    """Whatever is found ends the process, and the words of the sanitizer with it."""
    suites = [str(OPS / name / "test_parity.py") for name in ("attentive_scan", "full_scan", "plain_scan")]
    suites.append(str(OPS / "lifetimes" / "test_lifetimes.py"))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-k",
        "cpu",
        *suites,
        str(OPS / "test_state_check.py"),
    ]
    done = subprocess.run(command, env=watched, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-4000:]
    assert "Sanitizer" not in said
    assert "runtime error" not in said
    assert list((tmp_path / "built").glob("plait_scan_*.so")), "it was built for this, and no other was used"


@pytest.mark.parametrize(
    ("what", "word"), [("a[n + 2]", "heap-buffer-overflow"), ("1L << (a[0] + 70)", "shift exponent 70")]
)
def test_the_sanitizers_see_what_they_should(watched, tmp_path, what, word):
    command = [sys.executable, "-c", BROKEN, what, str(tmp_path / "f.so")]
    done = subprocess.run(command, env=watched, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert word in done.stderr
