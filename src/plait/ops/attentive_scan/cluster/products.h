// The product with M, its weights stationary in the registers of the compute warps (the last quads of a warp in shared
// memory, if registers do not suffice). forward_layout.h describes the distribution.

#pragma once

#include "forward_layout.h"

namespace plait {

template <class K>
struct Products {
  static constexpr int H = K::H, F = K::F, COLUMNS = K::COLUMNS, NW = K::NW;

  float w[K::QW - K::SQ][COLUMNS];
  float* shared;  // this lane's part of the quads in shared memory
  int ks, g;

  // columns c*32 + ks*4 .. +3 of a row, c < COLUMNS / 4
  template <class Number>
  static MEMBER void row_part(const Number* row, int ks, float (&v)[COLUMNS]) {
#pragma unroll
    for (int c = 0; c < COLUMNS / 4; c++)
#pragma unroll
      for (int k = 0; k < 4; k++) v[4 * c + k] = widened(row[c * 32 + ks * 4 + k]);
  }
  static MEMBER void state_part(const float* h, int ks, float (&v)[COLUMNS]) {
#pragma unroll
    for (int c = 0; c < COLUMNS / 4; c++) {
      const float4 x = load4(h + c * 32 + ks * 4);
      v[4 * c] = x.x, v[4 * c + 1] = x.y, v[4 * c + 2] = x.z, v[4 * c + 3] = x.w;
    }
  }
  MEMBER float& in_shared(int i, int k) { return shared[((K::in_shared(i) * (COLUMNS / 4) + k / 4) * NW * 32) * 4 + k % 4]; }

  MEMBER void load(const ForwardArguments& a, float* sm, int warp, int lane, int own) {
    using Layer = typename K::Layer;
    ks = lane & 7, g = lane >> 3, shared = sm + K::WEIGHTS_AT + (warp * 32 + lane) * 4;
#pragma unroll
    for (int i = 0; i < K::QW; i++) {
      const int q = i * NW + warp, quad = q < K::NQ ? q : 0, block = K::block_of(quad), f = own + quad % K::KQ * 4 + g;
      const void* matrix = block == K::G + 1 ? a.key : block == K::G ? a.query : a.recurrent;
      float x[COLUMNS];
      row_part(static_cast<const Layer*>(matrix) + (int64_t)((block < K::G ? block * H : 0) + f) * H, ks, x);
#pragma unroll
      for (int k = 0; k < COLUMNS; k++) {
        if (K::in_shared(i) >= 0) in_shared(i, k) = x[k];
        else w[i][k] = x[k];
      }
    }
  }
  // Part of quad i's row times h, still to be summed over the 8 lanes of the group
  template <int CHAINS>
  MEMBER float part(int i, const float (&h)[COLUMNS]) {
    float sums[CHAINS];
#pragma unroll
    for (int k = 0; k < COLUMNS; k += 4) {
      float x[4];
      if (K::in_shared(i) >= 0) {
        const float4 v = load4(&in_shared(i, k));
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
      } else {
#pragma unroll
        for (int j = 0; j < 4; j++) x[j] = w[K::in_shared(i) >= 0 ? 0 : i][k + j];
      }
#pragma unroll
      for (int j = 0; j < 4; j++) {
        float& sum = sums[j % CHAINS];
        sum = k + j < CHAINS ? x[j] * h[k + j] : mad(x[j], h[k + j], sum);
      }
    }
    if constexpr (CHAINS == 4) return (sums[0] + sums[1]) + (sums[2] + sums[3]);
    return sums[0];
  }
};

}  // namespace plait
