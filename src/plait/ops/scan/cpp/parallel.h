// Torch's threads, through its stable C interface: the library links no OpenMP of its own, runs on the threads that
// torch already has, and works with every torch from 2.10 on, however it was built.

#pragma once

#include <torch/csrc/stable/c/shim.h>

#include <atomic>
#include <cstdint>
#include <new>

namespace plait {

// f(first, last) over parts of at least `grain` of the numbers from 0 to `count`. No exception crosses into torch,
// which was built by another compiler: the only possible one, out of memory, is rethrown on this side.
template <class F>
void parallel_for(int64_t count, int64_t grain, const F& f) {
  if (count <= grain) {
    if (count > 0) f(0, count);
    return;
  }
  struct Task {
    const F& f;
    std::atomic<bool> out_of_memory{false};
  } task{f};
  const auto part = [](int64_t first, int64_t last, void* given) {
    Task& task = *static_cast<Task*>(given);
    try {
      task.f(first, last);
    } catch (const std::bad_alloc&) {
      task.out_of_memory = true;
    }
  };
  if (torch_parallel_for(0, count, grain, part, &task) || task.out_of_memory) throw std::bad_alloc();
}

}  // namespace plait
