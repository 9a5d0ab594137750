// What g learns from how much each kept state is read (scan/usage.py is the definition), a block a row: from dL/de of all
// steps to what each state's score is pulled by, added to dL/d(g'h) of that state.
//
// A step pulls at the scores of what it read of the kept states; that needs no other step, so the warps share the steps
// of a stretch. A state stays in one slot from its birth until it is lost: one warp then goes back through the stretch
// with a sum for every slot, and hands it over where the slot's state was born. Sums are taken in one order.

#pragma once

#include "shape.h"

namespace plait {

constexpr float TINY = 1.17549435e-38f;

template <class S>
DEVICE void scan_usage(const UsageArguments& a, unsigned char* memory) {
  using Layer = typename S::Layer;
  constexpr int H = S::HIDDEN, SLOTS = S::SLOTS, STRETCH = S::STRETCH, WARPS = S::THREADS / 32;
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

  // g'h of every state, where later stands what it is taught: nobody asks for it any more by then
  for (int t = warp; t < a.steps; t += WARPS) {
    const int64_t at = (int64_t)t * a.rows + b;
    const float v = product(output + at * H, worth);
    if (lane == 0) a.taught[at] = v;
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
      // what the answer after it is told, dealt by how much the loss feels of reading each
      const Layer* arrived = static_cast<const Layer*>(a.d_output) + (a.d_output && t + 1 < a.steps ? (at + a.rows) * H : 0);
      const float told = a.d_output && t + 1 < a.steps ? root(product(arrived, arrived)) : 0.0f;
      float felt = id < 0 ? 0.0f : a.d_energies[at * SLOTS + place];
      felt = felt < 0.0f ? -felt : felt;
      const float everything = sum(felt), used = read ? divide(felt, everything < TINY ? TINY : everything) * told : 0.0f;
      const float score = !read ? 0.0f : id < SLOTS ? initial[id] : a.taught[(int64_t)(id - SLOTS) * a.rows + b];
      float top = read ? score : -3.4e38f;
      for (int m = 16; m; m >>= 1) {
        const float other = shuffle_xor(top, m);
        top = other > top ? other : top;
      }
      const float likely = read ? ex2(LOG2E * (score - top)) : 0.0f, all = sum(likely), total = sum(used);
      pulls[(t - begin) * 32 + lane] = read ? divide(likely, all) * total - used : 0.0f;
      held[(t - begin) * 32 + lane] = id;
      if (lane == 0) scores[t - begin] = a.d_scores[at];
    }
    barrier_sync(0, S::THREADS);
    if (warp == 0) {
#pragma unroll 4
      for (int t = end - 1; t >= begin; t--) {
        gathered += pulls[(t - begin) * 32 + lane];
        if (held[(t - begin) * 32 + lane] == SLOTS + t) {  // born here
          a.taught[(int64_t)t * a.rows + b] = mad(usage, gathered, scores[t - begin]);
          gathered = 0.0f;
        }
      }
    }
    barrier_sync(0, S::THREADS);
  }
  if (warp == 0 && lane < SLOTS && a.taught_initial) {  // what is left was gathered by the initial slots
    const int64_t at = (int64_t)b * SLOTS + lane;
    a.taught_initial[at] = mad(usage, gathered, a.d_initial_scores[at]);
  }
}

}  // namespace plait
