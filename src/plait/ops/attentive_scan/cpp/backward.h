// The walk back through time; docs/kernels.md derives it.

#pragma once

#include <vector>

#include "blocks.h"
#include "cells.h"
#include "products.h"

namespace plait {

// A slot that was read: where its state, its key and their gradients stand in the history.
template <class T>
struct Read {
  const T *state, *key;
  T *d_state, *d_key;
  const T* grown;
  T weight, d_energy;
  bool plain;
};

// e^{2k} of what the slots of one row hold. Between two steps one or two slots change.
template <class T>
struct GrownKeys {
  std::vector<T> grown;
  std::vector<int32_t> id;
  std::vector<char> plain;
  GrownKeys(int64_t width, int64_t lane) : grown(width * lane), id(width, -1), plain(width) {}
};

template <class T>
class BackwardBlock {
 public:
  BackwardBlock(const Sizes& n, const BackwardTensors& a, const Packed<T>& key, const Packed<T>& to_hidden,
                const T* energy, T* d_energy, int64_t begin, int64_t end)
      : n(n), a(a), key(key), to_hidden(to_hidden), energy(energy), d_energy(d_energy), begin(begin),
        count(end - begin), lane(round_up(n.size, LANES<T>)), d_hidden(count * to_hidden.columns),
        d_cell_state(count * lane), d_back(count * (n.gates() + 1) * lane), d_by_key(count * key.columns),
        d_direct(count * lane), d_z(4 * lane), gates(4 * lane), asked(lane), cell(lane), grown(lane), d_context(lane),
        query(lane), reads(n.width), grown_keys(count, GrownKeys<T>(n.width, lane)) {}

  void run() {
    start();
    for (int64_t t = n.steps - 1; t >= 0; --t) {
      for (int64_t r = 0; r < count; ++r) attend(t, r);
      product(history(a.d_keys, t, 0), lane, count, key, d_by_key.data(), key.columns);
      for (int64_t r = 0; r < count; ++r) recur(t, r);
      product(d_back.data(), (n.gates() + 1) * lane, count, to_hidden, d_hidden.data(), to_hidden.columns);
      for (int64_t r = 0; r < count; ++r) reach_back(t, r);
    }
    for (int64_t r = 0; r < count; ++r) {
      copy(at(a.d_hidden_out, 0, r, n.size), d_hidden.data() + r * to_hidden.columns);
      copy(at(a.d_cell_state_out, 0, r, n.size), d_cell_state.data() + r * lane);
    }
  }

 private:
  const Sizes& n;
  const BackwardTensors& a;
  const Packed<T>&key, &to_hidden;
  const T* energy;
  T* d_energy;
  const int64_t begin, count, lane;
  std::vector<T> d_hidden, d_cell_state, d_back, d_by_key, d_direct;
  std::vector<T> d_z, gates, asked, cell, grown, d_context, query;
  std::vector<Read<T>> reads;
  std::vector<GrownKeys<T>> grown_keys;

  T* at(const void* tensor, int64_t t, int64_t r, int64_t features) const {
    return tensor ? static_cast<T*>(const_cast<void*>(tensor)) + (t * n.rows + begin + r) * features : nullptr;
  }
  T* history(const void* tensor, int64_t t, int64_t r) const { return at(tensor, t, r, lane); }
  T* initial(const void* tensor, int64_t r, int64_t j) const {
    return static_cast<T*>(const_cast<void*>(tensor)) + ((begin + r) * n.width + j) * lane;
  }
  void copy(T* to, const T* from) const {
    if (to && from) std::copy(from, from + n.size, to);
  }

  Read<T> find(int64_t r, int32_t id) const {
    if (id < n.width)
      return {initial(a.initial_states, r, id), initial(a.initial_keys, r, id), initial(a.d_initial_states, r, id),
              initial(a.d_initial_keys, r, id)};
    const int64_t t = id - n.width;
    return {history(a.states, t, r), history(a.keys, t, r), history(a.d_states, t, r), history(a.d_keys, t, r)};
  }

  Read<T> read_slot(int64_t r, int64_t j, int32_t id) {
    Read<T> slot = find(r, id);
    GrownKeys<T>& known = grown_keys[r];
    T* grown = known.grown.data() + j * lane;
    if (known.id[j] != id) known.plain[j] = grow(slot.key, grown, lane), known.id[j] = id;
    slot.grown = grown, slot.plain = known.plain[j];
    return slot;
  }

  void start() {
    for (int64_t r = 0; r < count; ++r) {
      copy(d_hidden.data() + r * to_hidden.columns, at(a.d_hidden, 0, r, n.size));
      copy(d_cell_state.data() + r * lane, at(a.d_cell_state, 0, r, n.size));
      const T* d_slots = at(a.d_slots, 0, r, n.width * n.size);
      const int32_t* ids = a.ids + ((n.steps - 1) * n.rows + begin + r) * n.width;
      for (int64_t j = 0; d_slots && j < n.width; ++j) {
        if (ids[j] < 0) continue;
        T* to = find(r, ids[j]).d_state;
        for (int64_t i = 0; i < n.size; ++i) to[i] += d_slots[j * n.size + i];
      }
    }
  }

  // through the read of step t: to the states and keys it read, and to the query
  void attend(int64_t t, int64_t r) {
    const T* d_s = d_hidden.data() + r * to_hidden.columns;
    for (int64_t i = 0; i < lane; ++i) d_context[i] = T(n.mix) * d_s[i];
    copy(query.data(), at(a.queries, t, r, n.size));
    const bool plain = grow(query.data(), grown.data(), lane);
    const int32_t* ids = a.ids + (t * n.rows + begin + r) * n.width;
    const T* weights = at(a.weights, t, r, n.width);
    int64_t read = 0;
    T mean = 0;
    for (int64_t j = 0; j < n.width; ++j) {
      if (ids[j] < 0 || weights[j] == 0) continue;
      Read<T>& slot = reads[read++] = read_slot(r, j, ids[j]);
      slot.weight = weights[j];
      slot.plain = slot.plain && plain;
      Vec<T> sum(T(0));
      each<T>(lane, [&](int64_t i) { sum = at::vec::fmadd(load(d_context.data() + i), load(slot.state + i), sum); });
      slot.d_energy = total(sum);
      mean += slot.weight * slot.d_energy;
    }
    for (int64_t j = 0; j < read; ++j) reads[j].d_energy = reads[j].weight * (reads[j].d_energy - mean);
    T* d_query = d_back.data() + (r * (n.gates() + 1) + n.gates()) * lane;
    std::fill_n(d_query, lane, T(0));
    int64_t j = 0;
    for (; j + 4 <= read; j += 4) score<4>(&reads[j], d_query);
    for (; j < read; ++j) score<1>(&reads[j], d_query);
    copy(at(a.d_queries, t, r, n.size), d_query);
  }

  // through the scores of COUNT slots, read together to share what they have in common
  template <int COUNT>
  void score(const Read<T>* slots, T* d_query) {
    bool plain = true;
    for (int j = 0; j < COUNT; ++j) plain &= slots[j].plain;
    const Vec<T> one(T(1)), two(T(2)), four(T(4));
    each<T>(lane, [&](int64_t i) {
      const auto arriving = load(d_context.data() + i), v = load(energy + i) * four;
      auto d_q = load(d_query + i), d_v = load(d_energy + i);
#pragma GCC unroll 4
      for (int j = 0; j < COUNT; ++j) {
        const Read<T>& slot = slots[j];
        const auto fade = plain ? fading(load(grown.data() + i), load(slot.grown + i))
                                : fading_far(load(query.data() + i), load(slot.key + i));
        const Vec<T> d_e(slot.d_energy);
        const auto d_score = d_e * v * fade * (one - fade);
        d_q = d_q + d_score;
        d_v = at::vec::fmadd(d_e, one - two * fade, d_v);
        (load(slot.d_key + i) + d_score).store(slot.d_key + i);
        at::vec::fmadd(Vec<T>(slot.weight), arriving, load(slot.d_state + i)).store(slot.d_state + i);
      }
      d_q.store(d_query + i);
      d_v.store(d_energy + i);
    });
  }

  // from h_t to the gates
  void recur(int64_t t, int64_t r) {
    const int64_t count_gates = n.gates();
    T* d_h = history(a.d_states, t, r);
    const T *d_s = d_hidden.data() + r * to_hidden.columns, *by_key = d_by_key.data() + r * key.columns;
    for (int64_t i = 0; i < lane; ++i) d_h[i] += T(n.mix) * d_s[i] + by_key[i];
    if (const T* saved = at(a.gates, t, r, (n.cell == ELMAN ? 1 : 4) * n.size))
      for (int64_t g = 0; g < (n.cell == ELMAN ? 1 : 4); ++g) copy(gates.data() + g * lane, saved + g * n.size);
    else
      copy(gates.data(), history(a.states, t, r));
    if (n.cell == GRU) copy(asked.data(), at(a.asked, t, r, n.size));
    if (n.cell == LSTM) copy(cell.data(), at(a.cells, t, r, n.size));
    cell_backward(n, lane, d_h, gates.data(), asked.data(), cell.data(), d_cell_state.data() + r * lane, d_z.data(),
                  d_back.data() + r * (count_gates + 1) * lane, d_direct.data() + r * lane);
    T* d_projected = at(a.d_projected, t, r, count_gates * n.size);
    for (int64_t g = 0; g < count_gates; ++g) copy(d_projected + g * n.size, d_z.data() + g * lane);
  }

  // the product has given dL/ds_{t-1}
  void reach_back(int64_t t, int64_t r) {
    T* d_s = d_hidden.data() + r * to_hidden.columns;
    if (n.cell == GRU)
      for (int64_t i = 0; i < lane; ++i) d_s[i] += d_direct[r * lane + i];
    if (a.reset && a.reset[t * n.rows + begin + r]) {
      std::fill_n(d_s, lane, T(0));
      std::fill_n(d_cell_state.data() + r * lane, lane, T(0));
    }
  }
};

template <class T>
void backward(const Sizes& n, const BackwardTensors& a, int64_t blocks) {
  const int64_t lane = round_up(n.size, LANES<T>), gates = n.gates();
  Packed<T> key(n.size, lane), to_hidden((gates + 1) * lane, lane);
  key.fill(static_cast<const T*>(a.key), 0, 0, n.size, n.size, 1);
  for (int64_t g = 0; g < gates; ++g)
    to_hidden.fill(static_cast<const T*>(a.recurrent) + g * n.size * n.size, g * lane, 0, n.size, n.size, 1);
  to_hidden.fill(static_cast<const T*>(a.query), gates * lane, 0, n.size, n.size, 1);
  const auto energy = padded_row<T>(a.energy, n.size, lane);
  over_blocks(n.rows, blocks, [&](int64_t block, int64_t begin, int64_t end) {
    T* d_energy = static_cast<T*>(a.d_energy) + block * lane;
    BackwardBlock<T>(n, a, key, to_hidden, energy.data(), d_energy, begin, end).run();
  });
}

}  // namespace plait
