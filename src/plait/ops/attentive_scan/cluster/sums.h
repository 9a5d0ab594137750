// Sums over all steps and rows of the joint buffer of a walk back, for the biases, and over clusters of dL/dv: a
// cluster takes 32 columns, its warps strided rows. The order is fixed, so results are deterministic.

#pragma once

#include "shape.h"

namespace plait {

template <class S>
DEVICE void scan_sums(const SumsArguments& a, unsigned char* memory) {
  constexpr int WARPS = S::THREADS / 32, C = S::CLUSTER;
  float* parts = reinterpret_cast<float*>(memory);  // of the warps, then of the blocks
  const int warp = thread_index() / 32, lane = thread_index() % 32, rank = block_rank(), first = cluster_index() * 32;
  const bool of_energy = first >= S::COLUMNS;
  const float* from = of_energy ? a.energy + (first - S::COLUMNS) : a.beside + first;
  const int64_t width = of_energy ? S::HIDDEN : S::COLUMNS, count = of_energy ? a.clusters : a.steps;
  cluster_sync();  // all blocks have started, so their shared memory can be written
  float sum = 0.0f;
#pragma unroll 8
  for (int64_t n = rank * WARPS + warp; n < count; n += C * WARPS) sum += from[n * width + lane];
  parts[warp * 32 + lane] = sum;
  barrier_sync(0, S::THREADS);
  if (warp == 0) {
    sum = parts[lane];
    for (int w = 1; w < WARPS; w++) sum += parts[w * 32 + lane];
    put(shared_address(parts + (WARPS + rank) * 32 + lane), sum, 0);
  }
  cluster_sync();
  if (warp == 0 && rank == 0) {
    sum = parts[WARPS * 32 + lane];
    for (int c = 1; c < C; c++) sum += parts[(WARPS + c) * 32 + lane];
    a.sums[first + lane] = sum;
  }
}

}  // namespace plait
