// Code shared by both walks of the full memory. A cluster of C blocks walks one row, or C rows. Of one row position p,
// an initial slot or h_t, belongs to block p mod C; each block reads its own positions, and the parts are joined. Of C
// rows each block reads one. In products with a matrix a block computes the outputs of its own H / C features, for all
// rows of the cluster, and keeps its rows of as many matrices as fit. A lane holds four features, or eight beyond 128
// of them.

#pragma once

#include "shape.h"

namespace plait {

template <class S>
struct PastShape {
  static constexpr int H = S::HIDDEN, HP = round_up(H, 4), C = S::CLUSTER, W = S::WARPS, THREADS = 32 * W;
  static constexpr int G = gates_of(S::CELL), F = ceil_div(H, C), N = 4 * ceil_div(HP, 128);
  static constexpr int R = S::ROWS, D = R == 1 ? C : 1;  // rows of a cluster; number of blocks that share a row's positions
  static constexpr bool ALONE = false;  // a block sends its reads to no other block
  static constexpr int KEPT = S::KEPT;  // matrices whose rows lie in shared memory
  static_assert(R == 1 || R == C, "a block reads one row or its part of one");
  using Layer = typename S::Layer;
};

enum { WHOLE_BLOCK = 1 };

NUMBER least(int a, int b) { return a < b ? a : b; }
template <class K>
DEVICE void block_sync() { barrier_sync(WHOLE_BLOCK, K::THREADS); }

// A lane's features of a vector of HP numbers; `own` is where its first four are.
template <class K>
DEVICE void fetch_own(float (&x)[K::N], const float* own, int lane) {
#pragma unroll
  for (int n = 0; n < K::N; n += 4) {
    const bool there = K::HP % 128 == 0 || n * 32 + 4 * lane < K::HP;
    const float4 v = there ? load4(own + n * 32) : float4{0.0f, 0.0f, 0.0f, 0.0f};
    x[n] = v.x, x[n + 1] = v.y, x[n + 2] = v.z, x[n + 3] = v.w;
  }
}
template <class K>
DEVICE void fetch(float (&x)[K::N], const float* vector, int lane) { fetch_own<K>(x, vector + 4 * lane, lane); }
template <class K>
DEVICE void keep(float* vector, const float (&x)[K::N], int lane) {
#pragma unroll
  for (int n = 0; n < K::N; n += 4) {
    const int at = n * 32 + 4 * lane;
    if (K::HP % 128 == 0 || at < K::HP) *reinterpret_cast<float4*>(vector + at) = float4{x[n], x[n + 1], x[n + 2], x[n + 3]};
  }
}
template <class K>
DEVICE void clear(float (&x)[K::N]) {
#pragma unroll
  for (int n = 0; n < K::N; n++) x[n] = 0.0f;
}
template <class K>
DEVICE float dot(const float (&x)[K::N], const float (&y)[K::N]) {
  float sum = 0.0f;
#pragma unroll
  for (int n = 0; n < K::N; n++) sum = mad(x[n], y[n], sum);
  return sum;
}

// ---- sums over a warp, several at a time: each halving keeps one of two, so that four cost six shuffles
DEVICE float halved(float a, float b, bool second, int mask) {
  return (second ? b : a) + shuffle_xor(second ? a : b, mask);
}
DEVICE float whole_sum(float a) {
#pragma unroll
  for (int mask = 16; mask; mask /= 2) a += shuffle_xor(a, mask);
  return a;
}
// lane 8 n is left with the sum of the n-th
DEVICE float quarter_sum(const float (&x)[4], int lane) {
  const float a = halved(x[0], x[2], lane & 16, 16), b = halved(x[1], x[3], lane & 16, 16);
  return halved(a, b, lane & 8, 8);
}
DEVICE float four_sums(const float (&x)[4], int lane) {
  float sum = quarter_sum(x, lane);
  sum += shuffle_xor(sum, 4), sum += shuffle_xor(sum, 2), sum += shuffle_xor(sum, 1);
  return sum;
}
DEVICE float infinity() { return of_bits(0x7f800000u); }
constexpr float LN2 = 0.69314718055994531f;
DEVICE float exponential(float x) { return ex2(LOG2E * x); }

// A block's own rows of the matrices it keeps, from those in global memory; features beyond the last repeat it.
template <class K>
DEVICE void keep_weights(float* kept, int block, const float* matrix, int rank, int thread) {
  for (int i = thread; i < K::F * K::HP; i += K::THREADS)
    kept[block * K::F * K::HP + i] = matrix[least(rank * K::F + i / K::HP, K::H - 1) * K::HP + i % K::HP];
}

// Outputs of the products of COUNT blocks of H rows with R vectors, those of this block's own features: a lane is given
// output o = block * F + feature of the r-th vector and its sum by take(o, r, sum). The first KEPT blocks lie in shared
// memory. A warp computes four at a time; if there are fewer it repeats the last one, which costs less than a branch.
template <class K, int COUNT, int KEPT, class Take>
DEVICE void own_products(const float* kept, const float* weights, const float* vectors, int rank, int warp, int lane, Take take) {
  float x[K::R][K::N];
#pragma unroll
  for (int r = 0; r < K::R; r++) fetch<K>(x[r], vectors + r * K::HP, lane);
#pragma unroll 2
  for (int first = warp; first < COUNT * K::F; first += 4 * K::W) {
    float sums[K::R][4];
#pragma unroll
    for (int u = 0; u < 4; u++) {
      const int o = least(first + u * K::W, COUNT * K::F - 1), f = least(rank * K::F + o % K::F, K::H - 1);
      float row[K::N];
      fetch<K>(row, KEPT == COUNT || (KEPT && o < KEPT * K::F) ? kept + o * K::HP : weights + (o / K::F * K::H + f) * K::HP, lane);
#pragma unroll
      for (int r = 0; r < K::R; r++) sums[r][u] = dot<K>(row, x[r]);
    }
#pragma unroll
    for (int r = 0; r < K::R; r++) {
      const float sum = four_sums(sums[r], lane);
      const int o = first + lane / 8 * K::W;
      if (lane % 8 == 0 && o < COUNT * K::F) take(o, r, sum);
    }
  }
}

// How many of a block's own positions lie before one; they are counted i = 0, 1 .. as position rank + D i, rank among D.
template <class K>
DEVICE int own_before(int position, int rank) { return position > rank ? (position - rank + K::D - 1) / K::D : 0; }

// Work on `items` numbers and the sending of each to every block that reads the row, dealt to all threads: work(item, part, PARTS) sends to
// the blocks part, part + PARTS ...
template <class K, int ITEMS, class Work>
DEVICE void deal(int thread, Work work) {
  constexpr int PARTS = K::THREADS < ITEMS ? 1 : K::THREADS / ITEMS < K::D ? K::THREADS / ITEMS : K::D;
  for (int i = thread; i < PARTS * ITEMS; i += K::THREADS) work(i % ITEMS, i / ITEMS, PARTS);
}
// v to the same place in the blocks of a part
template <class K>
DEVICE void put_part(float* place, float v, int part, int parts) {
  if constexpr (K::ALONE) *place = v;
  else for (int r = part; r < K::D; r += parts) put(shared_address(place), v, r);
}

}  // namespace plait
