// Code shared by both kernels of one step. A block handles a row of the batch. In the bookkeeping of slots a lane
// handles one slot, identically in every warp. In sums over features a warp computes one of PARTS parts, for every
// GROUPS-th slot; in work per feature a thread handles four features, for every other slot.

#pragma once

#include "shape.h"

namespace plait {

template <class S>
struct Slots {
  using Layer = typename S::Layer;
  static constexpr int H = S::HIDDEN, WIDTH = S::WIDTH, W = S::WARPS, THREADS = 32 * W, FOURS = H / 4;
  static constexpr int PARTS = 4, GROUPS = W / PARTS, EACH = ceil_div(WIDTH, GROUPS), PART = ceil_div(FOURS, PARTS);
  static_assert(H % 4 == 0 && WIDTH <= 32 && W % PARTS == 0, "numbers in fours, a slot a lane");
  // shared memory: partial sums of each slot, of h_t's worth, and for each feature those of two halves of the slots
  static constexpr int SUMS = 0, RATED = SUMS + PARTS * 32, HALVES = RATED + PARTS;
};

DEVICE float4 wide4(const float* p) { return load4(p); }
DEVICE float4 wide4(const bfloat16* p) { return {widened(p[0]), widened(p[1]), widened(p[2]), widened(p[3])}; }
DEVICE void narrow4(float* p, float4 v) { store4(p, v); }
DEVICE void narrow4(bfloat16* p, float4 v) { narrow(v.x, p[0]), narrow(v.y, p[1]), narrow(v.z, p[2]), narrow(v.w, p[3]); }
DEVICE float4 plus(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }
DEVICE float4 times(float s, float4 a) { return {s * a.x, s * a.y, s * a.z, s * a.w}; }
DEVICE float4 mad4(float s, float4 a, float4 b) { return {mad(s, a.x, b.x), mad(s, a.y, b.y), mad(s, a.z, b.z), mad(s, a.w, b.w)}; }
DEVICE float dot4(float4 a, float4 b, float sum) { return mad(a.x, b.x, mad(a.y, b.y, mad(a.z, b.z, mad(a.w, b.w, sum)))); }
DEVICE float4 gaps(float4 q, float4 k) {  // r in tanh(q + k) = 1 - 2 r
  return {half_gap(SCALE * q.x, SCALE * k.x), half_gap(SCALE * q.y, SCALE * k.y), half_gap(SCALE * q.z, SCALE * k.z),
          half_gap(SCALE * q.w, SCALE * k.w)};
}
DEVICE float sum_of_warp(float a) {
#pragma unroll
  for (int mask = 16; mask; mask /= 2) a += shuffle_xor(a, mask);
  return a;
}
// The address of the state (or key) of id `held`: an initial slot of row b, or step held - WIDTH of the history. For an
// empty slot h_t is read instead, with weight 0: a branch would make each load wait for the one before it.
template <class S, class Kind>
DEVICE const Kind* entry(const Kind* initial, const Kind* history, int held, int b, int rows) {
  if (held >= S::WIDTH) return history + ((int64_t)(held - S::WIDTH) * rows + b) * S::HIDDEN;
  return initial + ((int64_t)b * S::WIDTH + held) * S::HIDDEN;
}

}  // namespace plait
