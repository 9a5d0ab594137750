// Lifetimes of the states of a bounded memory: a heap of the kept states for each row and head, its worst on top.
// The definition is plait/ops/lifetimes/naive.py.

#pragma once

#include "parallel.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace plait {

struct LifetimeSizes {
  int64_t rows, heads, steps, carried, window, capacity, sinks;
};

// (rows, heads, carried) and (rows, heads, steps) come contiguous, flags are (rows, steps); `deaths` is
// (rows, heads, carried + steps).
struct LifetimeTensors {
  const float* carried_keys;
  const int64_t* births;
  const float* keys;
  const bool *valid, *reset;
  int32_t* deaths;
};

class LifetimeWalk {
 public:
  LifetimeWalk(const LifetimeSizes& sizes, const LifetimeTensors& tensors) : n(sizes), x(tensors) {
    heap.reserve(std::min(n.capacity, n.carried + n.steps));
  }

  void run(int64_t row, int64_t head) {
    const int64_t number = row * n.heads + head;
    const float *carried_keys = x.carried_keys + number * n.carried, *keys = x.keys + number * n.steps;
    const int64_t* births = x.births + number * n.carried;
    const bool *valid = x.valid + row * n.steps, *reset = x.reset + row * n.steps;
    int32_t* deaths = x.deaths + number * (n.carried + n.steps);
    heap.clear();
    int64_t first = 0;    // since the last reset
    int64_t leaving = 0;  // the next state to leave the window
    int64_t sinks = 0;
    for (int64_t j = 0; j < n.carried; ++j) deaths[j] = births[j] < 0 ? SURVIVES : 0;
    for (int64_t t = 0; t < n.steps; ++t) {
      const int64_t now = n.carried + t;
      if (reset[t]) {
        for (int64_t j = first; j < now; ++j)
          if (deaths[j] == SURVIVES) deaths[j] = t;
        heap.clear();
        first = leaving = now;
        sinks = 0;
      }
      deaths[now] = valid[t] ? SURVIVES : t;
      for (; leaving <= now; ++leaving) {
        const bool is_new = leaving >= n.carried;
        const int64_t birth = is_new ? leaving - n.carried : births[leaving];
        if (deaths[leaving] != SURVIVES) continue;  // padding or an empty slot
        if (birth > t - n.window) break;
        if (sinks < n.sinks) {
          ++sinks;
          continue;
        }
        const Kept dropped = insert({is_new ? keys[birth] : carried_keys[leaving], leaving});
        if (dropped.index >= 0) deaths[dropped.index] = t;
      }
    }
  }

 private:
  static constexpr int32_t SURVIVES = std::numeric_limits<int32_t>::max();

  struct Kept {
    float key;
    int64_t index;
    bool operator<(const Kept& other) const {  // order by rank, so that the heap has its worst on top
      return key > other.key || (key == other.key && index < other.index);
    }
  };

  // The state dropped for the one that leaves the window; index −1 if a slot was free.
  Kept insert(Kept state) {
    if (static_cast<int64_t>(heap.size()) < n.capacity) {
      heap.push_back(state);
      std::push_heap(heap.begin(), heap.end());
      return {0, -1};
    }
    if (!n.capacity || heap.front() < state) return state;
    std::pop_heap(heap.begin(), heap.end());
    std::swap(heap.back(), state);
    std::push_heap(heap.begin(), heap.end());
    return state;
  }

  const LifetimeSizes& n;
  const LifetimeTensors& x;
  std::vector<Kept> heap;
};

inline void lifetimes(const LifetimeSizes& n, const LifetimeTensors& x) {
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, n.carried + n.steps));
  parallel_for(n.rows * n.heads, grain, [&](int64_t begin, int64_t end) {
    LifetimeWalk walk(n, x);
    for (int64_t i = begin; i < end; ++i) walk.run(i / n.heads, i % n.heads);
  });
}

}  // namespace plait
