// The walk through time.

#pragma once

#include <vector>

#include "blocks.h"
#include "cells.h"
#include "products.h"
#include "slots.h"

namespace plait {

template <class T>
struct Row {
  Slots<T> memory;
  std::vector<T> cell_state, candidate, grown, context, weights;
  std::vector<Seen<T>> seen;
  Row(int64_t width, int64_t lane)
      : memory(width, lane), cell_state(lane), candidate(lane), grown(lane), context(lane), weights(width), seen(width) {}
};

// Rows [begin, end) through all steps.
template <class T>
class ForwardBlock {
 public:
  ForwardBlock(const Sizes& n, const ForwardTensors& a, const Packed<T>& from_hidden, const Packed<T>& to_key,
               const T* energy, const T* bias, int64_t begin, int64_t end)
      : n(n), a(a), from_hidden(from_hidden), to_key(to_key), energy(energy), bias(bias), begin(begin),
        count(end - begin), lane(round_up(n.size, LANES<T>)), hidden(count * lane), h(count * lane),
        product_s(count * std::max(from_hidden.columns, 4 * lane + lane)), product_h(count * to_key.columns),
        rows(count, Row<T>(n.width, lane)) {}

  void run() {
    start();
    for (int64_t t = 0; t < n.steps; ++t) {
      if (a.reset)
        for (int64_t r = 0; r < count; ++r)
          if (a.reset[t * n.rows + begin + r]) clear(r);
      product(hidden.data(), lane, count, from_hidden, product_s.data(), stride());
      for (int64_t r = 0; r < count; ++r) recur(t, r);
      product(h.data(), lane, count, to_key, product_h.data(), to_key.columns);
      for (int64_t r = 0; r < count; ++r) remember(t, r);
    }
    finish();
  }

 private:
  const Sizes& n;
  const ForwardTensors& a;
  const Packed<T>&from_hidden, &to_key;
  const T *energy, *bias;
  const int64_t begin, count, lane;
  std::vector<T> hidden, h, product_s, product_h;
  std::vector<Row<T>> rows;

  int64_t stride() const { return product_s.size() / std::max<int64_t>(count, 1); }
  // element `feature` of row r at step t in a (steps, rows, features) tensor; null where it is absent
  template <class U = T>
  U* at(const void* tensor, int64_t t, int64_t r, int64_t features) const {
    return tensor ? static_cast<U*>(const_cast<void*>(tensor)) + (t * n.rows + begin + r) * features : nullptr;
  }
  void copy(T* to, const T* from) const {
    if (to) std::copy(from, from + n.size, to);
  }

  void clear(int64_t r) {
    std::fill_n(hidden.data() + r * lane, lane, T(0));
    std::fill(rows[r].cell_state.begin(), rows[r].cell_state.end(), T(0));
    rows[r].memory.clear();
  }

  void start() {
    std::vector<T> padded(n.width * lane), keys(n.width * to_key.columns);
    for (int64_t r = 0; r < count; ++r) {
      copy(hidden.data() + r * lane, at(a.hidden, 0, r, n.size));
      if (a.cell_state) copy(rows[r].cell_state.data(), at(a.cell_state, 0, r, n.size));
      auto& memory = rows[r].memory;
      memory.age = a.age[begin + r];
      bool any = false;
      for (int64_t j = 0; j < n.width; ++j) {
        memory.relevance[j] = at(a.relevance, 0, r, n.width)[j];
        memory.born[j] = at<int64_t>(a.born, 0, r, n.width)[j];
        memory.id[j] = memory.born[j] < 0 ? -1 : int32_t(j);
        any |= memory.born[j] >= 0;
        copy(memory.state.data() + j * lane, at(a.slots, 0, r, n.width * n.size) + j * n.size);
      }
      if (!any) continue;
      product(memory.state.data(), lane, n.width, to_key, keys.data(), to_key.columns);
      for (int64_t j = 0; j < n.width; ++j) place_key(memory, j, keys.data() + j * to_key.columns);
    }
  }

  void place_key(Slots<T>& memory, int64_t buffer, const T* key) {
    std::copy(key, key + lane, memory.key.data() + buffer * lane);
    memory.plain[buffer] = grow(key, memory.grown.data() + buffer * lane, lane);
  }

  // h_t from s_{t-1}, and what of it is saved
  void recur(int64_t t, int64_t r) {
    Row<T>& row = rows[r];
    T *z = product_s.data() + r * stride(), *s = hidden.data() + r * lane, *state = h.data() + r * lane;
    const int64_t gates = n.gates();
    copy(at(a.asked, t, r, n.size), s);
    copy(at(a.queries, t, r, n.size), z + gates * lane);
    copy(at(a.cells, t, r, n.size), row.cell_state.data());
    const T* projected = at(a.projected, t, r, gates * n.size);
    for (int64_t g = 0; g < gates; ++g)
      if (n.cell == GRU && g == 2)
        copy(row.candidate.data(), projected + g * n.size);
      else
        for (int64_t i = 0; i < n.size; ++i) z[g * lane + i] += projected[g * n.size + i];
    // the query stands behind the gates, where a GRU saves V_n s + b': keep it
    if (n.cell == GRU) std::copy(z + 3 * lane, z + 4 * lane, z + 4 * lane);
    cell_forward(n, lane, z, row.candidate.data(), s, row.cell_state.data(), bias, bias, state);
    if (T* saved = at(a.gates, t, r, (n.cell == ELMAN ? 1 : 4) * n.size)) {
      if (n.cell == ELMAN) copy(saved, state);
      else
        for (int64_t g = 0; g < 4; ++g) copy(saved + g * n.size, z + g * lane);
    }
    if (const T* nudge = at(a.nudge, t, r, n.size))
      for (int64_t i = 0; i < n.size; ++i) state[i] += nudge[i];
    keep_rounded(state, n.size, n.rounding);
    keep_rounded(row.cell_state.data(), n.size, n.rounding);
    copy(at(a.output, t, r, n.size), state);
  }

  // write h_t, read with W_a s_{t-1}, mix
  void remember(int64_t t, int64_t r) {
    Row<T>& row = rows[r];
    Slots<T>& memory = row.memory;
    const T *state = h.data() + r * lane, *key = product_h.data() + r * to_key.columns;
    const T* query = product_s.data() + r * stride() + (n.cell == GRU ? 4 : n.gates()) * lane;
    const int64_t buffer = memory.admit(n, int32_t(n.width + t));
    std::copy(state, state + lane, memory.state.data() + buffer * lane);
    place_key(memory, buffer, key);
    copy(at(a.keys, t, r, n.size), key);
    attend(n, memory, query, energy, row.grown.data(), row.seen.data(), row.weights.data(), row.context.data());
    keep_rounded(row.context.data(), n.size, n.rounding);
    T* s = hidden.data() + r * lane;
    for (int64_t i = 0; i < lane; ++i) s[i] = T(n.mix) * (state[i] + row.context[i]);
    keep_rounded(s, n.size, n.rounding);
    if (T* to = at(a.weights, t, r, n.width)) std::copy(row.weights.begin(), row.weights.end(), to);
    if (int32_t* to = at<int32_t>(a.ids, t, r, n.width)) std::copy(memory.id.begin(), memory.id.end(), to);
    if (int64_t* to = at<int64_t>(a.trace_born, t, r, n.width)) std::copy(memory.born.begin(), memory.born.end(), to);
    if (T* to = at(a.trace_relevance, t, r, n.width))
      std::copy(memory.relevance.begin(), memory.relevance.end(), to);
  }

  void finish() {
    for (int64_t r = 0; r < count; ++r) {
      const Slots<T>& memory = rows[r].memory;
      copy(at(a.hidden_out, 0, r, n.size), hidden.data() + r * lane);
      copy(at(a.cell_state_out, 0, r, n.size), rows[r].cell_state.data());
      a.age_out[begin + r] = memory.age;
      for (int64_t j = 0; j < n.width; ++j) {
        at(a.relevance_out, 0, r, n.width)[j] = memory.relevance[j];
        at<int64_t>(a.born_out, 0, r, n.width)[j] = memory.born[j];
        copy(at(a.slots_out, 0, r, n.width * n.size) + j * n.size, memory.state.data() + memory.buffer[j] * lane);
      }
    }
  }
};

template <class T>
void forward(const Sizes& n, const ForwardTensors& a, int64_t blocks) {
  const int64_t lane = round_up(n.size, LANES<T>), gates = n.gates();
  Packed<T> from_hidden(n.size, (gates + 1) * lane), to_key(n.size, lane);
  const T* recurrent = static_cast<const T*>(a.recurrent);
  for (int64_t g = 0; g < gates; ++g)
    from_hidden.fill(recurrent + g * n.size * n.size, 0, g * lane, n.size, 1, n.size);
  from_hidden.fill(static_cast<const T*>(a.query), 0, gates * lane, n.size, 1, n.size);
  to_key.fill(static_cast<const T*>(a.key), 0, 0, n.size, 1, n.size);
  const auto energy = padded_row<T>(a.energy, n.size, lane), bias = padded_row<T>(a.cell_bias, n.size, lane);
  over_blocks(n.rows, blocks, [&](int64_t, int64_t begin, int64_t end) {
    ForwardBlock<T>(n, a, from_hidden, to_key, energy.data(), a.cell_bias ? bias.data() : nullptr, begin, end).run();
  });
}

}  // namespace plait
