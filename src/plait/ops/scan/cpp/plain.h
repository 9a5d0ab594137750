// The walks of a cell without memory: s_t is h_t, and a step is one product.

#pragma once

#include <vector>

#include "blocks.h"
#include "cells.h"
#include "products.h"

namespace plait {

// Rows [begin, end) of (steps, rows, features) tensors; null where a tensor is absent.
template <class T>
struct Rows {
  const Sizes& n;
  const int64_t begin, count, lane;

  Rows(const Sizes& n, int64_t begin, int64_t end)
      : n(n), begin(begin), count(end - begin), lane(round_up(n.size, LANES<T>)) {}
  T* at(const void* tensor, int64_t t, int64_t r, int64_t features) const {
    return tensor ? static_cast<T*>(const_cast<void*>(tensor)) + (t * n.rows + begin + r) * features : nullptr;
  }
  void copy(T* to, const T* from) const {
    if (to && from) std::copy(from, from + n.size, to);
  }
  bool cut(const bool* reset, int64_t t, int64_t r) const { return reset && reset[t * n.rows + begin + r]; }
  int64_t saved_gates() const { return n.cell == ELMAN ? 1 : 4; }
};

template <class T>
class PlainForward : Rows<T> {
  using Rows<T>::n, Rows<T>::count, Rows<T>::lane, Rows<T>::at, Rows<T>::copy, Rows<T>::cut;

 public:
  PlainForward(const Sizes& n, const ForwardTensors& a, const Packed<T>& recurrent, const T* candidate_bias,
               const T* modrelu_bias, int64_t begin, int64_t end)
      : Rows<T>(n, begin, end), a(a), recurrent(recurrent), candidate_bias(candidate_bias), modrelu_bias(modrelu_bias),
        stride(std::max(recurrent.columns, 4 * lane)), hidden(count * lane), cell_state(count * lane),
        z(count * stride), input(n.gates() * lane) {}

  void run() {
    for (int64_t r = 0; r < count; ++r) {
      copy(hidden.data() + r * lane, at(a.hidden, 0, r, n.size));
      copy(cell_state.data() + r * lane, at(a.cell_state, 0, r, n.size));
    }
    for (int64_t t = 0; t < n.steps; ++t) {
      for (int64_t r = 0; r < count; ++r)
        if (cut(a.reset, t, r)) {
          std::fill_n(hidden.data() + r * lane, lane, T(0));
          std::fill_n(cell_state.data() + r * lane, lane, T(0));
        }
      product(hidden.data(), lane, count, recurrent, z.data(), stride);
      for (int64_t r = 0; r < count; ++r) step(t, r);
    }
    for (int64_t r = 0; r < count; ++r) {
      copy(at(a.hidden_out, 0, r, n.size), hidden.data() + r * lane);
      copy(at(a.cell_state_out, 0, r, n.size), cell_state.data() + r * lane);
    }
  }

 private:
  const ForwardTensors& a;
  const Packed<T>& recurrent;
  const T *candidate_bias, *modrelu_bias;
  const int64_t stride;
  std::vector<T> hidden, cell_state, z, input;

  void step(int64_t t, int64_t r) {
    T *gates = z.data() + r * stride, *h = hidden.data() + r * lane, *c = cell_state.data() + r * lane;
    copy(at(a.cells, t, r, n.size), c);
    const T* projected = whole<T>(at(a.projected, t, r, n.gates() * n.size), n.gates(), n.size, lane, input);
    cell_forward(n, lane, gates, projected, projected + 2 * lane, h, c, candidate_bias, modrelu_bias, gates, h);
    if (T* saved = at(a.gates, t, r, this->saved_gates() * n.size))
      for (int64_t g = 0; g < this->saved_gates(); ++g)
        copy(saved + g * n.size, n.cell == ELMAN ? h : gates + g * lane);
    if (const T* nudge = at(a.nudge, t, r, n.size))
      for (int64_t i = 0; i < n.size; ++i) h[i] += nudge[i];
    keep_rounded(h, n.size, n.rounding);
    keep_rounded(c, n.size, n.rounding);
    copy(at(a.output, t, r, n.size), h);
  }
};

template <class T>
class PlainBackward : Rows<T> {
  using Rows<T>::n, Rows<T>::count, Rows<T>::lane, Rows<T>::at, Rows<T>::copy, Rows<T>::cut;

 public:
  PlainBackward(const Sizes& n, const BackwardTensors& a, const Packed<T>& recurrent, int64_t begin, int64_t end)
      : Rows<T>(n, begin, end), a(a), recurrent(recurrent), d_hidden(count * recurrent.columns),
        d_cell_state(count * lane), d_back(count * n.gates() * lane), d_direct(count * lane), d_z(4 * lane),
        gates(4 * lane), before(lane), cell(lane) {}

  void run() {
    for (int64_t r = 0; r < count; ++r) {
      copy(d_hidden.data() + r * recurrent.columns, at(a.d_hidden, 0, r, n.size));
      copy(d_cell_state.data() + r * lane, at(a.d_cell_state, 0, r, n.size));
    }
    for (int64_t t = n.steps - 1; t >= 0; --t) {
      for (int64_t r = 0; r < count; ++r) step(t, r);
      product(d_back.data(), n.gates() * lane, count, recurrent, d_hidden.data(), recurrent.columns);
      for (int64_t r = 0; r < count; ++r) reach_back(t, r);
    }
    for (int64_t r = 0; r < count; ++r) {
      copy(at(a.d_hidden_out, 0, r, n.size), d_hidden.data() + r * recurrent.columns);
      copy(at(a.d_cell_state_out, 0, r, n.size), d_cell_state.data() + r * lane);
    }
  }

 private:
  const BackwardTensors& a;
  const Packed<T>& recurrent;
  std::vector<T> d_hidden, d_cell_state, d_back, d_direct, d_z, gates, before, cell;

  // from h_t to the gates
  void step(int64_t t, int64_t r) {
    T* d_h = d_hidden.data() + r * recurrent.columns;
    if (const T* arriving = at(a.d_output, t, r, n.size))
      for (int64_t i = 0; i < n.size; ++i) d_h[i] += arriving[i];
    copy(at(a.d_states, t, r, n.size), d_h);
    const T* saved = at(a.gates, t, r, this->saved_gates() * n.size);
    for (int64_t g = 0; g < this->saved_gates(); ++g) copy(gates.data() + g * lane, saved + g * n.size);
    if (n.cell == GRU) copy(before.data(), at(a.prev_states, t, r, n.size));
    if (n.cell == LSTM) copy(cell.data(), at(a.cells, t, r, n.size));
    cell_backward(n, lane, d_h, gates.data(), before.data(), cell.data(), d_cell_state.data() + r * lane, d_z.data(),
                  d_back.data() + r * n.gates() * lane, d_direct.data() + r * lane);
    T* d_projected = at(a.d_projected, t, r, n.gates() * n.size);
    for (int64_t g = 0; g < n.gates(); ++g) copy(d_projected + g * n.size, d_z.data() + g * lane);
  }

  // the product has computed dL/dh_{t-1}
  void reach_back(int64_t t, int64_t r) {
    T* d_h = d_hidden.data() + r * recurrent.columns;
    if (n.cell == GRU)
      for (int64_t i = 0; i < lane; ++i) d_h[i] += d_direct[r * lane + i];
    if (!cut(a.reset, t, r)) return;
    std::fill_n(d_h, lane, T(0));
    std::fill_n(d_cell_state.data() + r * lane, lane, T(0));
  }
};

template <class T>
void plain_scan_forward(const Sizes& n, const ForwardTensors& a, int64_t blocks) {
  const int64_t lane = round_up(n.size, LANES<T>), gates = n.gates();
  Packed<T> recurrent(n.size, gates * lane);
  for (int64_t g = 0; g < gates; ++g)
    recurrent.fill(static_cast<const T*>(a.recurrent) + g * n.size * n.size, 0, g * lane, n.size, 1, n.size);
  const auto candidate = padded_row<T>(a.candidate_bias, n.size, lane),
             modrelu = padded_row<T>(a.modrelu_bias, n.size, lane);
  over_blocks(n.rows, blocks, [&](int64_t, int64_t begin, int64_t end) {
    PlainForward<T>(n, a, recurrent, a.candidate_bias ? candidate.data() : nullptr,
                    a.modrelu_bias ? modrelu.data() : nullptr, begin, end)
        .run();
  });
}

template <class T>
void plain_scan_backward(const Sizes& n, const BackwardTensors& a, int64_t blocks) {
  const int64_t lane = round_up(n.size, LANES<T>), gates = n.gates();
  Packed<T> recurrent(gates * lane, lane);
  for (int64_t g = 0; g < gates; ++g)
    recurrent.fill(static_cast<const T*>(a.recurrent) + g * n.size * n.size, g * lane, 0, n.size, n.size, 1);
  over_blocks(n.rows, blocks,
              [&](int64_t, int64_t begin, int64_t end) { PlainBackward<T>(n, a, recurrent, begin, end).run(); });
}

}  // namespace plait
