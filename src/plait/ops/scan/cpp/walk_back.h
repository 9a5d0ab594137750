// The backward walk of a cell: the part that does not depend on the layout of its states; docs/notes/kernels.md derives
// it.

#pragma once

#include <vector>

#include "blocks.h"
#include "cells.h"
#include "products.h"

namespace plait {

// A state that was read, its key, and the buffers of their gradients.
template <class T>
struct Read {
  const T *state, *key;
  T *d_state, *d_key;
  const T* grown;
  T weight, d_energy;
  bool plain;
  T* d_score;  // of its learned relevance; null where that is earned
};

template <class T>
struct BackwardWeights {
  Packed<T> key, to_hidden;
  std::vector<T> energy, worth;

  BackwardWeights(const Sizes& n, const BackwardTensors& a)
      : key(n.size, round_up(n.size, LANES<T>)),
        to_hidden((n.gates() + 1) * round_up(n.size, LANES<T>), round_up(n.size, LANES<T>)),
        energy(padded_row<T>(a.energy, n.size, round_up(n.size, LANES<T>))) {
    const int64_t lane = round_up(n.size, LANES<T>), gates = n.gates();
    key.fill(static_cast<const T*>(a.key), 0, 0, n.size, n.size, 1);
    for (int64_t g = 0; g < gates; ++g)
      to_hidden.fill(static_cast<const T*>(a.recurrent) + g * n.size * n.size, g * lane, 0, n.size, n.size, 1);
    to_hidden.fill(static_cast<const T*>(a.query), gates * lane, 0, n.size, n.size, 1);
    if (a.worth) worth = padded_row<T>(a.worth, n.size, lane);
  }
};

// Rows [begin, end) of block `block` through all steps.
template <class T>
class WalkBack {
 public:
  WalkBack(const Sizes& n, const BackwardTensors& a, const BackwardWeights<T>& weights, int64_t block, int64_t begin,
           int64_t end)
      : n(n), energy(weights.energy.data()), worth(weights.worth.empty() ? nullptr : weights.worth.data()),
        begin(begin), count(end - begin), lane(round_up(n.size, LANES<T>)), d_context(lane), grown(lane), a(a), key(weights.key), to_hidden(weights.to_hidden),
        d_energy(static_cast<T*>(a.d_energy) + block * lane), d_hidden(count * to_hidden.columns),
        d_cell_state(count * lane), d_back(count * (n.gates() + 1) * lane), d_by_key(count * key.columns),
        d_direct(count * lane), d_z(4 * lane), gates(4 * lane), prev_state(lane), cell(lane), query_room(lane) {}
  virtual ~WalkBack() = default;

  void run() {
    for (int64_t r = 0; r < count; ++r) {
      copy(d_hidden.data() + r * to_hidden.columns, at(a.d_hidden, 0, r, n.size));
      copy(d_cell_state.data() + r * lane, at(a.d_cell_state, 0, r, n.size));
      start(r);
    }
    for (int64_t t = n.steps - 1; t >= 0; --t) {
      for (int64_t r = 0; r < count; ++r) attend(t, r);
      product(d_keys(t), lane, count, key, d_by_key.data(), key.columns);
      for (int64_t r = 0; r < count; ++r) recur(t, r);
      if (t > 0) look_ahead(t - 1);
      product(d_back.data(), (n.gates() + 1) * lane, count, to_hidden, d_hidden.data(), to_hidden.columns, &ahead);
      for (int64_t r = 0; r < count; ++r) reach_back(t, r);
    }
    for (int64_t r = 0; r < count; ++r) {
      copy(at(a.d_hidden_out, 0, r, n.size), d_hidden.data() + r * to_hidden.columns);
      copy(at(a.d_cell_state_out, 0, r, n.size), d_cell_state.data() + r * lane);
      finish(r);
    }
  }

 protected:
  const Sizes& n;
  const T *energy, *worth;
  const int64_t begin, count, lane;
  std::vector<T> d_context, grown;
  const T* query;
  Ahead ahead;

  virtual void start(int64_t r) = 0;
  // pass the states that row r read at step t, with their weights, to `spread`
  virtual void reread(int64_t t, int64_t r, bool plain) = 0;
  // prefetch the inputs of `reread` of step t
  virtual void expect(int64_t t, int64_t r) {}
  virtual const T* state(int64_t t, int64_t r) const = 0;
  virtual T* d_state(int64_t t, int64_t r) = 0;
  // complete gradients of the keys of step t, (rows, lane)
  virtual const T* d_keys(int64_t t) = 0;
  // gradient of the score of h_t, if there is `worth`
  virtual T d_score(int64_t t, int64_t r) const { return 0; }
  virtual void finish(int64_t r) {}

  // to the states and keys that were read, and to the query of row r; the gradient of a key is accumulated without the
  // factor 4 v_a, which `whole_d_key` applies once
  void spread(int64_t r, Read<T>* reads, int64_t read) {
    int64_t j = 0;
    for (; j + 4 <= read; j += 4) weigh<4>(reads + j);
    for (; j < read; ++j) weigh<1>(reads + j);
    T mean = 0;
    for (j = 0; j < read; ++j) mean += reads[j].weight * reads[j].d_energy;
    for (j = 0; j < read; ++j) {
      reads[j].d_energy = reads[j].weight * (reads[j].d_energy - mean);
      if (worth) *reads[j].d_score += reads[j].d_energy;
    }
    T* d_query = d_back.data() + (r * (n.gates() + 1) + n.gates()) * lane;
    int64_t i = 0;
    for (; i + 4 * LANES<T> <= lane; i += 4 * LANES<T>) score<4>(reads, read, i, d_query);
    for (; i < lane; i += LANES<T>) score<1>(reads, read, i, d_query);
  }

  // the two may be one
  void whole_d_key(const T* gathered, T* d_key) const {
    const Vec<T> four(T(4));
    each<T>(lane, [&](int64_t i) { (load(gathered + i) * (load(energy + i) * four)).store(d_key + i); });
  }

  T* at(const void* tensor, int64_t t, int64_t r, int64_t features) const {
    return tensor ? static_cast<T*>(const_cast<void*>(tensor)) + (t * n.rows + begin + r) * features : nullptr;
  }
  void copy(T* to, const T* from) const {
    if (to && from) std::copy(from, from + n.size, to);
  }

 private:
  const BackwardTensors& a;
  const Packed<T>&key, &to_hidden;
  T* d_energy;
  std::vector<T> d_hidden, d_cell_state, d_back, d_by_key, d_direct;
  std::vector<T> d_z, gates, prev_state, cell, query_room;

  // rows of step t are contiguous
  void look_ahead(int64_t t) {
    const int64_t row = count * n.size * sizeof(T);
    ahead.read(at(a.gates, t, 0, (n.cell == ELMAN ? 1 : 4) * n.size), (n.cell == ELMAN ? 1 : 4) * row);
    ahead.read(at(a.queries, t, 0, n.size), row);
    ahead.read(at(a.d_output, t, 0, n.size), row);
    if (n.cell == LSTM) ahead.read(at(a.cells, t, 0, n.size), row);
    if (n.cell == GRU) ahead.read(at(a.prev_states, t, 0, n.size), row);
    for (int64_t r = 0; r < count; ++r) expect(t, r);
  }

  // through the read of step t
  void attend(int64_t t, int64_t r) {
    const T* d_s = d_hidden.data() + r * to_hidden.columns;
    for (int64_t i = 0; i < lane; ++i) d_context[i] = T(n.mix) * d_s[i];
    query = whole<T>(at(a.queries, t, r, n.size), 1, n.size, lane, query_room);
    reread(t, r, grow(query, grown.data(), lane));
    copy(at(a.d_queries, t, r, n.size), d_back.data() + (r * (n.gates() + 1) + n.gates()) * lane);
  }

  // dL/dα of COUNT states that were read
  template <int COUNT>
  [[gnu::noinline]] void weigh(Read<T>* slots) const {
    Vec<T> sum[COUNT];
#pragma GCC unroll 4
    for (int j = 0; j < COUNT; ++j) sum[j] = Vec<T>(T(0));
    each<T>(lane, [&](int64_t i) {
      const auto arriving = load(d_context.data() + i);
#pragma GCC unroll 4
      for (int j = 0; j < COUNT; ++j) sum[j] = at::vec::fmadd(arriving, load(slots[j].state + i), sum[j]);
    });
    for (int j = 0; j < COUNT; ++j) slots[j].d_energy = total(sum[j]);
  }

  // through the scores: VECTORS vectors of features from i on, whose sums stay in registers while all slots pass
  template <int VECTORS>
  [[gnu::noinline]] void score(const Read<T>* slots, int64_t count, int64_t i, T* d_query) {
    const Vec<T> half(T(0.5)), two(T(2)), four(T(4));
    Vec<T> queries[VECTORS], arriving[VECTORS], d_q[VECTORS], d_v[VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) {
      queries[v] = load(grown.data() + i + v * LANES<T>), arriving[v] = load(d_context.data() + i + v * LANES<T>);
      d_q[v] = d_v[v] = Vec<T>(T(0));
    }
    for (int64_t j = 0; j < count; ++j) {
      const Read<T> slot = slots[j];
      const Vec<T> d_e(slot.d_energy), weight(slot.weight);
      T *d_key = slot.d_key + i, *d_state = slot.d_state + i;
      const T* key = slot.grown + i;
      Vec<T> fade[VECTORS];
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) fade[v] = fading(queries[v], load(key + v * LANES<T>));
      if (!slot.plain)
        for (int v = 0; v < VECTORS; ++v)
          fade[v] = fading_far(load(query + i + v * LANES<T>), load(slot.key + i + v * LANES<T>));
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) {
        const auto d_score = d_e * at::vec::fnmadd(fade[v], fade[v], fade[v]);
        d_q[v] = d_q[v] + d_score;
        d_v[v] = at::vec::fmadd(d_e, half - fade[v], d_v[v]);
        (load(d_key + v * LANES<T>) + d_score).store(d_key + v * LANES<T>);
        at::vec::fmadd(weight, arriving[v], load(d_state + v * LANES<T>)).store(d_state + v * LANES<T>);
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) {
      const int64_t x = i + v * LANES<T>;
      (d_q[v] * (load(energy + x) * four)).store(d_query + x);
      at::vec::fmadd(two, d_v[v], load(d_energy + x)).store(d_energy + x);
    }
  }

  // from h_t to the gates
  void recur(int64_t t, int64_t r) {
    const int64_t count_gates = n.gates();
    T* d_h = d_state(t, r);
    const T *d_s = d_hidden.data() + r * to_hidden.columns, *by_key = d_by_key.data() + r * key.columns;
    for (int64_t i = 0; i < lane; ++i) d_h[i] += T(n.mix) * d_s[i] + by_key[i];
    if (worth) {
      const T arriving = d_score(t, r);
      for (int64_t i = 0; i < lane; ++i) d_h[i] += arriving * worth[i];
    }
    copy(at(a.d_states, t, r, n.size), d_h);
    const T *saved = at(a.gates, t, r, (n.cell == ELMAN ? 1 : 4) * n.size), *s = nullptr, *c = nullptr;
    saved = saved ? whole<T>(saved, n.cell == ELMAN ? 1 : 4, n.size, lane, gates) : state(t, r);
    if (n.cell == GRU) s = whole<T>(at(a.prev_states, t, r, n.size), 1, n.size, lane, prev_state);
    if (n.cell == LSTM) c = whole<T>(at(a.cells, t, r, n.size), 1, n.size, lane, cell);
    T* d_projected = at(a.d_projected, t, r, count_gates * n.size);
    cell_backward(n, lane, d_h, saved, s, c, d_cell_state.data() + r * lane, lane == n.size ? d_projected : d_z.data(),
                  d_back.data() + r * (count_gates + 1) * lane, d_direct.data() + r * lane);
    if (lane == n.size) return;
    for (int64_t g = 0; g < count_gates; ++g) copy(d_projected + g * n.size, d_z.data() + g * lane);
  }

  // the product has computed dL/ds_{t-1}
  void reach_back(int64_t t, int64_t r) {
    T* d_s = d_hidden.data() + r * to_hidden.columns;
    if (n.cell == GRU)
      for (int64_t i = 0; i < lane; ++i) d_s[i] += d_direct[r * lane + i];
    if (a.limit) {
      const T most = *static_cast<const T*>(a.limit);  // a NaN stays one
      for (int64_t i = 0; i < lane; ++i) d_s[i] = d_s[i] > most ? most : d_s[i] < -most ? -most : d_s[i];
    }
    if (a.reset && a.reset[t * n.rows + begin + r]) {
      std::fill_n(d_s, lane, T(0));
      std::fill_n(d_cell_state.data() + r * lane, lane, T(0));
    }
  }
};

}  // namespace plait
