// The products over all steps and rows that follow a short walk back, in one kernel, with the sums of `sums.h`: of two pairs
// left' right, [dz, dq]' s and [dk, dp]' h, a cluster takes 64 x 64 numbers, its blocks every so many rows. One order, the
// same bits every time. With many rows torch's products are faster; with few their launch overhead dominates.

#pragma once

#include "shape.h"

namespace plait {

DEVICE float4 widened_four(const float* p) { return load4(p); }
DEVICE float4 widened_four(const bfloat16* p) { return {widened(p[0]), widened(p[1]), widened(p[2]), widened(p[3])}; }

template <class S>
DEVICE void scan_outer(const OuterArguments& a, unsigned char* memory) {
  using Layer = typename S::Layer;
  constexpr int H = S::HIDDEN, COLUMNS = S::COLUMNS, KEYED = S::KEYED, C = S::CLUSTER, TILE = 64, DEEP = 32;
  constexpr int ACROSS = ceil_div(H, TILE), OF_BESIDE = ceil_div(COLUMNS, TILE) * ACROSS, PART = TILE * TILE / C;
  constexpr int OF_KEYS = ceil_div(KEYED > H ? H + 1 : H, TILE) * ACROSS, LOADS = DEEP * TILE / 4 / S::THREADS;
  static_assert(S::THREADS == 256 && TILE % C == 0);
  float *left = reinterpret_cast<float*>(memory), *right = left + DEEP * TILE;        // DEEP, TILE
  float *parts = right + DEEP * TILE, *summed = parts + TILE * TILE;                  // of the blocks
  const int thread = thread_index(), rank = block_rank(), x = thread % 16 * 4, y = thread / 16 * 4;
  // index of the pair and offset in it; tasks after the two pairs only sum dL/dv
  const int task = cluster_index();
  const bool of_beside = task < OF_BESIDE, of_keys = !of_beside && task < OF_BESIDE + OF_KEYS, multiplies = of_beside || of_keys;
  const int place = of_beside ? task : of_keys ? task - OF_BESIDE : (task - OF_BESIDE - OF_KEYS) * ACROSS;
  const int down = place / ACROSS * TILE, across = place % ACROSS * TILE;
  const float* const from = of_beside ? a.beside : of_keys ? a.keyed : a.energy;
  const int width = of_beside ? COLUMNS : of_keys ? KEYED : H, count = multiplies ? a.count : a.clusters;
  const Layer* const with = static_cast<const Layer*>(of_beside ? a.prev_states : a.output);
  cluster_sync();  // all blocks have started, so their shared memory can be written

  float4 next_left[LOADS], next_right[LOADS];
  const auto ask = [&](int first) {
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      const int n = first + (thread + S::THREADS * i) / 16, c = thread % 16 * 4;
      const bool there = n < count;
      next_left[i] = there && down + c < width ? load4(from + (int64_t)n * width + down + c) : float4{0.0f, 0.0f, 0.0f, 0.0f};
      next_right[i] = there && multiplies && across + c < H ? widened_four(with + (int64_t)n * H + across + c)
                                                            : float4{0.0f, 0.0f, 0.0f, 0.0f};
    }
  };
  float sum[4][4], total[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    total[i] = 0.0f;
#pragma unroll
    for (int j = 0; j < 4; j++) sum[i][j] = 0.0f;
  }
  ask(rank * DEEP);
  for (int first = rank * DEEP; first < count; first += C * DEEP) {
    barrier_sync(0, S::THREADS);
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
      store4(left + (thread + S::THREADS * i) * 4, next_left[i]);
      store4(right + (thread + S::THREADS * i) * 4, next_right[i]);
    }
    barrier_sync(0, S::THREADS);
    ask(first + C * DEEP);
#pragma unroll 8
    for (int n = 0; n < DEEP; n++) {
      const float4 l = load4(left + n * TILE + y), r = load4(right + n * TILE + x);
      const float ls[4] = {l.x, l.y, l.z, l.w}, rs[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        total[i] += ls[i];
#pragma unroll
        for (int j = 0; j < 4; j++) sum[i][j] = mad(ls[i], rs[j], sum[i][j]);
      }
    }
  }
  // each block adds up some of the rows of all
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int row = y + i, to = row / (TILE / C);
#pragma unroll
    for (int j = 0; j < 4; j++) put(shared_address(parts + rank * PART + row % (TILE / C) * TILE + x + j), sum[i][j], to);
    if (x == 0) put(shared_address(summed + rank * TILE + row), total[i], 0);
  }
  cluster_sync();
  for (int e = thread; multiplies && e < PART; e += S::THREADS) {
    float v = parts[e];
    for (int c = 1; c < C; c++) v += parts[c * PART + e];
    const int column = down + rank * (TILE / C) + e / TILE, to = across + e % TILE;
    // for a GRU the candidate's dz has no product: its V s has a separate gradient, stored after it
    const bool skipped = of_beside && S::SKIPS && column >= 2 * H && column < 3 * H;
    const int row = of_keys ? COLUMNS - S::SKIPS * H + column : S::SKIPS && column >= 3 * H ? column - H : column;
    if (!skipped && column < (of_beside ? COLUMNS : KEYED > H ? H + 1 : H) && to < H) a.products[(int64_t)row * H + to] = v;
  }
  if (rank == 0 && thread < TILE && down + thread < width && !of_keys && across == 0) {
    float v = summed[thread];
    for (int c = 1; c < C; c++) v += summed[c * TILE + thread];
    a.sums[(of_beside ? 0 : COLUMNS) + down + thread] = v;
  }
}

}  // namespace plait
