// The backward pass of the cells, in two parts. All factors of dL/dh are known before dL/dh arrives: `prepare` computes
// them from saved values, one number of every chunk per lane; `recede` is the rest, once dL/dh is known. The equations
// are in docs/notes/kernels.md.

#pragma once

#include "backward_layout.h"

namespace plait {

// Cycles spent in the stages of a step, for profiling
template <int ON>
struct Watch {
  uint32_t last, sums[12];
  MEMBER Watch() {
    if constexpr (ON) {
#pragma unroll
      for (int i = 0; i < 12; i++) sums[i] = 0;
      last = cycles();
    }
  }
  MEMBER void stamp(int stage) {
    if constexpr (ON) {
      const uint32_t now = cycles();
      sums[stage] += now - last, last = now;
    }
  }
  MEMBER void write(float* to, int warp) {
    if constexpr (ON) {
#pragma unroll
      for (int i = 0; i < 12; i++) reinterpret_cast<uint32_t*>(to)[warp * 12 + i] = sums[i];
    }
  }
};

template <class S>
DEVICE float slope(float activated) {
  if constexpr (S::NONLINEARITY == TANH) return 1.0f - activated * activated;
  if constexpr (S::NONLINEARITY == IDENTITY) return 1.0f;
  return activated == 0.0f ? 0.0f : 1.0f;
}

// Factors of dL/dh from the gates (and c_{t-1} or s_{t-1}) of one feature.
template <class S>
DEVICE void prepare(const float (&in)[BackLayout<S>::GATES], float (&out)[BackLayout<S>::FACTORS]) {
  if constexpr (S::CELL == LSTM) {
    const float i = in[0], f = in[1], g = in[2], o = in[3], before = in[4];
    const float squashed = tanh_exact(rounded<typename S::Layer>(mad(f, before, i * g)));
    out[0] = g * i * (1.0f - i), out[1] = before * f * (1.0f - f), out[2] = i * (1.0f - g * g);
    out[3] = squashed * o * (1.0f - o), out[4] = o * (1.0f - squashed * squashed), out[5] = f;
  } else if constexpr (S::CELL == GRU) {
    const float r = in[0], z = in[1], n = in[2], recurred = in[3], before = in[4];
    const float to_n = (1.0f - z) * slope<S>(n);
    out[0] = to_n * recurred * r * (1.0f - r), out[1] = (before - n) * z * (1.0f - z), out[2] = to_n;
    out[3] = to_n * r, out[4] = z;
  } else {
    out[0] = slope<S>(in[0]);
  }
}

// dL/dz by gate, for the input, from dL/dh; `d_cell` becomes dL/dc_{t-1}, `direct` the gradient of s_{t-1} that
// bypasses the products, `recurred` dL/d(V s) of the last gate, which differs for a GRU.
template <class S>
DEVICE void recede(const float (&factors)[BackLayout<S>::FACTORS], float dh, float& d_cell, float (&dz)[gates_of(S::CELL)],
                   float& recurred, float& direct) {
  if constexpr (S::CELL == LSTM) {
    const float dc = mad(dh, factors[4], d_cell);
#pragma unroll
    for (int k = 0; k < 3; k++) dz[k] = dc * factors[k];
    dz[3] = dh * factors[3], d_cell = dc * factors[5], recurred = dz[3];
  } else if constexpr (S::CELL == GRU) {
#pragma unroll
    for (int k = 0; k < 3; k++) dz[k] = dh * factors[k];
    recurred = dh * factors[3], direct = dh * factors[4];
  } else {
    dz[0] = dh * factors[0], recurred = dz[0];
  }
}

}  // namespace plait
