// What both walks are compiled for. Python writes a struct of constants, `Shape`, into the source it compiles
// (cluster_shape.py); a walk derives its own layout from it.

#pragma once

#include "machine.h"

namespace plait {

enum Cell : int { ELMAN, LSTM, GRU };
enum Nonlinearity : int { TANH, RELU, MODRELU, IDENTITY };

NUMBER gates_of(int cell) { return cell == LSTM ? 4 : cell == GRU ? 3 : 1; }
NUMBER ceil_div(int a, int b) { return (a + b - 1) / b; }
NUMBER round_up(int a, int b) { return ceil_div(a, b) * b; }

// `ids` packs what a physical slot holds and the logical place it stands for: id * 64 + place. An id below the
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

}  // namespace plait
