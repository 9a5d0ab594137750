// The forward walk of a cell: the part that does not depend on its memory.

#pragma once

#include <vector>

#include "blocks.h"
#include "cells.h"
#include "products.h"

namespace plait {

template <class T>
struct ForwardWeights {
  Packed<T> from_hidden, to_key;
  std::vector<T> energy, worth, candidate_bias, modrelu_bias;

  ForwardWeights(const Sizes& n, const ForwardTensors& a)
      : from_hidden(n.size, (n.gates() + 1) * round_up(n.size, LANES<T>)), to_key(n.size, round_up(n.size, LANES<T>)),
        energy(padded_row<T>(a.energy, n.size, round_up(n.size, LANES<T>))) {
    const int64_t lane = round_up(n.size, LANES<T>);
    const T* recurrent = static_cast<const T*>(a.recurrent);
    for (int64_t g = 0; g < n.gates(); ++g)
      from_hidden.fill(recurrent + g * n.size * n.size, 0, g * lane, n.size, 1, n.size);
    from_hidden.fill(static_cast<const T*>(a.query), 0, n.gates() * lane, n.size, 1, n.size);
    to_key.fill(static_cast<const T*>(a.key), 0, 0, n.size, 1, n.size);
    if (a.worth) worth = padded_row<T>(a.worth, n.size, lane);
    if (a.candidate_bias) candidate_bias = padded_row<T>(a.candidate_bias, n.size, lane);
    if (a.modrelu_bias) modrelu_bias = padded_row<T>(a.modrelu_bias, n.size, lane);
  }
};

// Rows [begin, end) through all steps.
template <class T>
class Walk {
 public:
  Walk(const Sizes& n, const ForwardTensors& a, const ForwardWeights<T>& weights, int64_t begin, int64_t end)
      : n(n), from_hidden(weights.from_hidden), to_key(weights.to_key), energy(weights.energy.data()), begin(begin),
        count(end - begin), lane(round_up(n.size, LANES<T>)), a(a),
        candidate_bias(weights.candidate_bias.empty() ? nullptr : weights.candidate_bias.data()),
        modrelu_bias(weights.modrelu_bias.empty() ? nullptr : weights.modrelu_bias.data()),
        hidden(count * lane), h(count * lane), cell_states(count * lane), input(n.gates() * lane), gates(4 * lane),
        product_s(count * from_hidden.columns), product_h(count * to_key.columns) {}
  virtual ~Walk() = default;

  void run() {
    for (int64_t r = 0; r < count; ++r) {
      copy(hidden.data() + r * lane, at(a.hidden, 0, r, n.size));
      copy(cell_states.data() + r * lane, at(a.cell_state, 0, r, n.size));
      start(r);
    }
    for (int64_t t = 0; t < n.steps; ++t) {
      if (a.reset)
        for (int64_t r = 0; r < count; ++r)
          if (a.reset[t * n.rows + begin + r]) clear_row(r);
      ahead.read(at(a.projected, t, 0, n.gates() * n.size), count * n.gates() * n.size * sizeof(T));
      product(hidden.data(), lane, count, from_hidden, product_s.data(), from_hidden.columns, &ahead);
      for (int64_t r = 0; r < count; ++r) recur(t, r);
      product(h.data(), lane, count, to_key, product_h.data(), to_key.columns);
      for (int64_t r = 0; r < count; ++r) remember(t, r);
    }
    for (int64_t r = 0; r < count; ++r) {
      copy(at(a.hidden_out, 0, r, n.size), hidden.data() + r * lane);
      copy(at(a.cell_state_out, 0, r, n.size), cell_states.data() + r * lane);
      finish(r);
    }
  }

 protected:
  const Sizes& n;
  const Packed<T>&from_hidden, &to_key;
  const T* energy;
  const int64_t begin, count, lane;

  // the memory of row r: load it, clear it, write h_t and read at step t, store it
  virtual void start(int64_t r) = 0;
  virtual void clear(int64_t r) = 0;
  virtual void remember(int64_t t, int64_t r) = 0;
  virtual void finish(int64_t r) = 0;

  const T* state(int64_t r) const { return h.data() + r * lane; }
  const T* key(int64_t r) const { return product_h.data() + r * to_key.columns; }
  const T* query(int64_t r) const { return product_s.data() + r * from_hidden.columns + n.gates() * lane; }

  // s_t from h_t and the context, which is rounded
  void mix(int64_t r, T* context) {
    keep_rounded(context, n.size, n.rounding);
    T* s = hidden.data() + r * lane;
    for (int64_t i = 0; i < lane; ++i) s[i] = T(n.mix) * (state(r)[i] + context[i]);
    keep_rounded(s, n.size, n.rounding);
  }

  // element `feature` of row r at step t in a (steps, rows, features) tensor; null where it is absent
  template <class U = T>
  U* at(const void* tensor, int64_t t, int64_t r, int64_t features) const {
    return tensor ? static_cast<U*>(const_cast<void*>(tensor)) + (t * n.rows + begin + r) * features : nullptr;
  }
  void copy(T* to, const T* from) const {
    if (to && from) std::copy(from, from + n.size, to);
  }

 private:
  const ForwardTensors& a;
  const T *candidate_bias, *modrelu_bias;
  Ahead ahead;
  std::vector<T> hidden, h, cell_states, input, gates, product_s, product_h;

  void clear_row(int64_t r) {
    std::fill_n(hidden.data() + r * lane, lane, T(0));
    std::fill_n(cell_states.data() + r * lane, lane, T(0));
    clear(r);
  }

  // h_t from s_{t-1}, with its saved values
  void recur(int64_t t, int64_t r) {
    T *s = hidden.data() + r * lane, *state = h.data() + r * lane, *cell_state = cell_states.data() + r * lane;
    copy(at(a.prev_states, t, r, n.size), s);
    copy(at(a.cells, t, r, n.size), cell_state);
    T* saved = at(a.gates, t, r, (n.cell == ELMAN ? 1 : 4) * n.size);
    T* made = saved && n.cell != ELMAN && lane == n.size ? saved : gates.data();  // where they are saved, if it is in whole vectors
    const T* projected = whole<T>(at(a.projected, t, r, n.gates() * n.size), n.gates(), n.size, lane, input);
    cell_forward(n, lane, product_s.data() + r * from_hidden.columns, projected, projected + 2 * lane, s, cell_state,
                 candidate_bias, modrelu_bias, made, state);
    if (saved && n.cell == ELMAN) copy(saved, state);
    else if (saved && made != saved)
      for (int64_t g = 0; g < 4; ++g) copy(saved + g * n.size, made + g * lane);
    if (const T* nudge = at(a.nudge, t, r, n.size))
      for (int64_t i = 0; i < n.size; ++i) state[i] += nudge[i];
    keep_rounded(state, n.size, n.rounding);
    keep_rounded(cell_state, n.size, n.rounding);
    copy(at(a.output, t, r, n.size), state);
  }
};

}  // namespace plait
