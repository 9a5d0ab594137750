"""`cpp/parallel.h`: torch's threads take every part once; memory that ran out in one of them is told here."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch

from plait.errors import BackendError
from plait.ops.scan import cpu_library

CODE = """
#include "parallel.h"
#include <thread>
#include <set>
#include <mutex>
extern "C" int64_t walk(int64_t count, int64_t grain, int64_t fails, int64_t* seen) try {
  std::mutex lock;
  std::set<std::thread::id> threads;
  plait::parallel_for(count, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      if (i == fails) throw std::bad_alloc();
      ++seen[i];
    }
    std::lock_guard<std::mutex> guard(lock);
    threads.insert(std::this_thread::get_id());
  });
  return threads.size();
} catch (const std::bad_alloc&) {
  return -1;
}
"""


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    try:
        compiler = cpu_library._compiler()
    except BackendError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("parallel")
    (folder / "walk.cpp").write_text(CODE)
    torch_folder = Path(torch.__file__).parent
    command = [
        *(compiler, "-std=c++20", "-shared", "-fPIC", folder / "walk.cpp", "-o", folder / "walk.so"),
        *(f"-I{cpu_library._SOURCES}", f"-I{torch_folder / 'include'}", f"-L{torch_folder / 'lib'}"),
        "-ltorch_cpu",
    ]
    subprocess.run(command, check=True)
    function = ctypes.CDLL(str(folder / "walk.so")).walk
    function.argtypes = [ctypes.c_int64] * 3 + [ctypes.c_void_p]
    function.restype = ctypes.c_int64
    return function


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(
    ("count", "grain", "threads"), [(100, 1, 2), (100, 60, 2), (7, 7, 1), (1, 1, 1), (0, 1, 0)]
)
def test_every_part_once(walk, count, grain, threads):
    seen = torch.zeros(count + 1, dtype=torch.int64)
    assert walk(count, grain, -1, seen.data_ptr()) == threads
    assert seen.tolist() == [1] * count + [0]


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(("grain", "fails"), [(1, 0), (1, 99), (200, 50)])
def test_out_of_memory_in_a_thread_is_reported(walk, grain, fails):
    seen = torch.zeros(100, dtype=torch.int64)
    assert walk(100, grain, fails, seen.data_ptr()) == -1
    assert seen[fails] == 0
