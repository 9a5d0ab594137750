// One step of a cell for 8 features of a warp: lane = part * 8 + feature, and part g of a feature holds what the sum over
// slots gave for it. Every lane ends with h_t; `act` has the value that part g saves.

#pragma once

#include "shape.h"

namespace plait {

struct CellStep {
  float h, c, act;
};

// LSTM: parts are the gates i, f, g, o; `in` is their input plus the contribution of s.
template <class Layer>
DEVICE CellStep lstm_step(float sum, float in, float c, int part, int fl) {
  const float pre = in + sum;
  const bool curved = part == 2;
  const float y = rcp(1.0f + ex2(pre * (curved ? -SCALE : -LOG2E))), square = pre * pre;
  const float tan = square < 0.01f ? tanh_small(pre, square) : mad(2.0f, y, -1.0f);
  const float act = curved ? tan : y;
  const float i = shuffle(act, fl), f = shuffle(act, 8 + fl), g = shuffle(act, 16 + fl), o = shuffle(act, 24 + fl);
  c = rounded<Layer>(mad(f, c, i * g));
  return {o * tanh_exact(c), c, act};
}

// GRU: parts are V_r s, V_z s, V_n s and s itself; saved are r, z, n and V_n s + b'.
template <class Layer>
DEVICE CellStep gru_step(float sum, float in, float bias, int part, int fl) {
  const float gate = sigmoid(in + sum), inner = sum + bias;
  const float r = shuffle(gate, fl), z = shuffle(gate, 8 + fl), s = shuffle(rounded<Layer>(sum), 24 + fl);
  const float u = shuffle(inner, 16 + fl), n = tanh_exact(shuffle(in, 16 + fl) + r * u);
  return {mad(z, s, (1.0f - z) * n), 0.0f, part == 0 ? r : part == 1 ? z : part == 2 ? n : u};
}

// Elman: parts are V s, q and s, of which the cell reads the first.
template <int NONLINEARITY>
DEVICE CellStep elman_step(float sum, float in, float bias, int fl) {
  const float h = shuffle(activated<NONLINEARITY>(in + sum, bias), fl);
  return {h, 0.0f, h};
}

}  // namespace plait
