// The constants that both walks are compiled with. Python writes a struct of constants, `Shape`, into the source it
// compiles (cluster_shape.py); a walk derives its own layout from it.

#pragma once

#include "machine.h"

namespace plait {

enum Cell : int { ELMAN, LSTM, GRU };
enum Nonlinearity : int { TANH, RELU, MODRELU, IDENTITY };

NUMBER gates_of(int cell) { return cell == LSTM ? 4 : cell == GRU ? 3 : 1; }
NUMBER ceil_div(int a, int b) { return (a + b - 1) / b; }
NUMBER round_up(int a, int b) { return ceil_div(a, b) * b; }

// `ids` packs the state id of a physical slot and its logical slot: id * 64 + slot. An id below the
// number of slots is that initial slot, the number of slots + t is h_t, -1 nothing.
constexpr int PLACE_BITS = 6;

constexpr float LOG2E = 1.4426950408889634f;
constexpr float SCALE = 2.8853900817779268f;  // 2 log2 e: 2 to the power of SCALE x is e^{2x}

DEVICE float tanh_small(float x, float square) {
  return x * (1.0f - square * (0.33333333f - square * (0.13333333f - square * 0.053968254f)));
}
// exact to rounding: the series where 1 - 2 / (1 + e^{2x}) would cancel
DEVICE float tanh_exact(float x) {
  const float y = mad(-2.0f, rcp(1.0f + ex2(SCALE * x)), 1.0f), square = x * x;
  return square < 0.01f ? tanh_small(x, square) : y;
}
DEVICE float sigmoid(float x) { return rcp(1.0f + ex2(-LOG2E * x)); }
template <int NONLINEARITY>
DEVICE float activated(float z, float bias) {
  if constexpr (NONLINEARITY == TANH) return tanh_exact(z);
  if constexpr (NONLINEARITY == RELU) return z < 0.0f ? 0.0f : z;  // a NaN stays one
  if constexpr (NONLINEARITY == MODRELU) {
    const float size = (z < 0.0f ? -z : z) + bias;
    return (z > 0.0f ? 1.0f : z < 0.0f ? -1.0f : z) * (size < 0.0f ? 0.0f : size);
  }
  return z;
}
// r in tanh(q + k) = 1 - 2 r, of q and k scaled by SCALE; out of range it is 0 or 1, never a NaN
DEVICE float half_gap(float q, float k) { return rcp(1.0f + ex2(q + k)); }

NUMBER log2_of(int n) { return n <= 1 ? 0 : 1 + log2_of(n / 2); }
NUMBER power_under(int n) { return n >= 8 ? 8 : n >= 4 ? 4 : n >= 2 ? 2 : 1; }

// Sum N values over 8 lanes with distance APART, of which this is number ks; it ends with value ks >> (3 - log2 N).
template <int N, int APART = 1>
DEVICE float reduce8(float (&v)[N], int ks) {
  if constexpr (N == 8) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float keep = ks & 4 ? v[i + 4] : v[i], give = ks & 4 ? v[i] : v[i + 4];
      v[i] = keep + shuffle_xor(give, 4 * APART);
    }
  }
  if constexpr (N >= 4) {
    constexpr int bit = N == 8 ? 2 : 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const float keep = ks & bit ? v[i + 2] : v[i], give = ks & bit ? v[i] : v[i + 2];
      v[i] = keep + shuffle_xor(give, bit * APART);
    }
  }
  if constexpr (N >= 2) {
    constexpr int bit = N == 8 ? 1 : N == 4 ? 2 : 4;
    const float keep = ks & bit ? v[1] : v[0], give = ks & bit ? v[0] : v[1];
    v[0] = keep + shuffle_xor(give, bit * APART);
  }
  if constexpr (N == 1) v[0] += shuffle_xor(v[0], 4 * APART);
  if constexpr (N <= 2) v[0] += shuffle_xor(v[0], 2 * APART);
  if constexpr (N <= 4) v[0] += shuffle_xor(v[0], 1 * APART);
  return v[0];
}

}  // namespace plait
