// The usage term of the gradient of g (scan/usage.py is the definition), one block per row: from dL/de of all steps to
// the pull on each state's score, added to dL/d(g'h) of that state.
//
// The pulls of a step on the scores of the kept states it read do not depend on other steps, so the warps share the
// steps of a stretch. A state stays in one slot from its birth until it is evicted: one warp then walks back through
// the stretch with a sum for every slot, and writes it at the birth of the slot's state. The order of additions is
// fixed.

#pragma once

#include "shape.h"

namespace plait {

constexpr float TINY = 1.17549435e-38f;

template <class S>
DEVICE void scan_usage(const UsageArguments& a, unsigned char* memory) {
  using Layer = typename S::Layer;
  constexpr int H = S::HIDDEN, SLOTS = S::SLOTS, STRETCH = S::STRETCH, WARPS = S::THREADS / 32;
  constexpr int APART = S::APART, AT_ONCE = 4;  // rows of dL/d(g'h) lie so far apart, with two numbers of room behind each
  static_assert(SLOTS <= 32 && H % 32 == 0);
  float* pulls = reinterpret_cast<float*>(memory);  // STRETCH, 32
  int* held = reinterpret_cast<int*>(pulls + STRETCH * 32);
  float *scores = pulls + STRETCH * 64, *initial = scores + STRETCH;  // dL/d(g'h) of a stretch; g'h of the initial slots
  const int warp = thread_index() / 32, lane = thread_index() % 32, b = cluster_index();
  const Layer *worth = static_cast<const Layer*>(a.worth), *output = static_cast<const Layer*>(a.output);
  const auto sum = [](float v) {
    for (int m = 16; m; m >>= 1) v += shuffle_xor(v, m);
    return v;
  };
  const auto product = [&](const Layer* x, const Layer* y) {
    float v = 0.0f;
#pragma unroll
    for (int f = 0; f < H; f += 32) v = mad(widened(x[f + lane]), widened(y[f + lane]), v);
    return sum(v);
  };

  // g'h of every step, and the gradient norm of its output; a warp has several loads in flight
  for (int first = warp * AT_ONCE; first < a.steps; first += WARPS * AT_ONCE) {
    float rated[AT_ONCE], told[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      const int64_t from = ((int64_t)(first + i < a.steps ? first + i : first) * a.rows + b) * H;
      rated[i] = told[i] = 0.0f;
#pragma unroll
      for (int f = lane; f < H; f += 32) {
        const float arrived = a.d_output ? widened(static_cast<const Layer*>(a.d_output)[from + f]) : 0.0f;
        rated[i] = mad(widened(output[from + f]), widened(worth[f]), rated[i]), told[i] = mad(arrived, arrived, told[i]);
      }
    }
    for (int m = 16; m; m >>= 1) {
#pragma unroll
      for (int i = 0; i < AT_ONCE; i++) rated[i] += shuffle_xor(rated[i], m), told[i] += shuffle_xor(told[i], m);
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      float* to = a.d_scores + ((int64_t)(first + i) * a.rows + b) * APART;
      if (lane == 0 && first + i < a.steps) to[1] = rated[i], to[2] = root(told[i]);
    }
  }
  for (int j = warp; a.slots && j < SLOTS; j += WARPS) {
    const float v = product(static_cast<const Layer*>(a.slots) + ((int64_t)b * SLOTS + j) * H, worth);
    if (lane == 0) initial[j] = v;
  }
  barrier_sync(0, S::THREADS);

  const float usage = *a.usage;
  float gathered = 0.0f;
  for (int end = a.steps; end > 0; end -= STRETCH) {
    const int begin = end < STRETCH ? 0 : end - STRETCH;
    for (int t = begin + warp; t < end; t += WARPS) {
      const int64_t at = (int64_t)t * a.rows + b;
      const int packed = lane < SLOTS ? a.ids[at * SLOTS + lane] : -1;
      const int id = packed >> PLACE_BITS, place = packed & ((1 << PLACE_BITS) - 1);
      const bool read = id >= 0 && place >= S::WINDOW && a.weights[at * SLOTS + place] > 0.0f;
      // the gradient norm of the next output, shared among the states read by their |dL/de|
      const float told = t + 1 < a.steps ? a.d_scores[(at + a.rows) * APART + 2] : 0.0f;
      float felt = id < 0 ? 0.0f : a.d_energies[at * SLOTS + place];
      felt = felt < 0.0f ? -felt : felt;
      const float everything = sum(felt), used = read ? divide(felt, everything < TINY ? TINY : everything) * told : 0.0f;
      const float score = !read ? 0.0f : id < SLOTS ? initial[id] : a.d_scores[((int64_t)(id - SLOTS) * a.rows + b) * APART + 1];
      float top = read ? score : -3.4e38f;
      for (int m = 16; m; m >>= 1) {
        const float other = shuffle_xor(top, m);
        top = other > top ? other : top;
      }
      const float likely = read ? ex2(LOG2E * (score - top)) : 0.0f, all = sum(likely), total = sum(used);
      pulls[(t - begin) * 32 + lane] = read ? divide(likely, all) * total - used : 0.0f;
      held[(t - begin) * 32 + lane] = id;
      if (lane == 0) scores[t - begin] = a.d_scores[at * APART];
    }
    barrier_sync(0, S::THREADS);
    if (warp == 0) {
#pragma unroll 4
      for (int t = end - 1; t >= begin; t--) {
        gathered += pulls[(t - begin) * 32 + lane];
        if (held[(t - begin) * 32 + lane] == SLOTS + t) {  // born here
          a.d_scores[((int64_t)t * a.rows + b) * APART] = mad(usage, gathered, scores[t - begin]);
          gathered = 0.0f;
        }
      }
    }
    barrier_sync(0, S::THREADS);
  }
  if (warp == 0 && lane < SLOTS && a.taught_initial) {  // the remaining sums belong to the initial slots
    const int64_t at = (int64_t)b * SLOTS + lane;
    a.taught_initial[at] = mad(usage, gathered, a.d_initial_scores[at]);
  }
}

}  // namespace plait
