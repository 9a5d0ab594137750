// A cell walked back through time: what does not depend on where its states lie; docs/notes/kernels.md derives it.

#pragma once

#include <vector>

#include "blocks.h"
#include "cells.h"
#include "products.h"

namespace plait {

// A state that was read: it, its key, and where their gradients gather.
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
        d_direct(count * lane), d_z(4 * lane), gates(4 * lane), asked(lane), cell(lane), query_room(lane) {}
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
      product(d_back.data(), (n.gates() + 1) * lane, count, to_hidden, d_hidden.data(), to_hidden.columns);
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

  virtual void start(int64_t r) = 0;
  // what row r read at step t, to `weigh` and `spread`
  virtual void reread(int64_t t, int64_t r, bool plain) = 0;
  virtual const T* state(int64_t t, int64_t r) const = 0;
  virtual T* d_state(int64_t t, int64_t r) = 0;
  // what the keys of step t have gathered, (rows, lane)
  virtual const T* d_keys(int64_t t) = 0;
  // what the score of h_t has gathered, where there is `worth`
  virtual T d_score(int64_t t, int64_t r) const { return 0; }
  virtual void finish(int64_t r) {}

  // dL/dα of a state that was read with `weight`; gives α dL/dα
  T weigh(Read<T>& slot, T weight) const {
    slot.weight = weight, slot.d_energy = dot(d_context.data(), slot.state, lane);
    return weight * slot.d_energy;
  }

  // to the states and keys that were read, and to the query of row r; `mean` is the sum of what `weigh` gave
  void spread(int64_t r, Read<T>* reads, int64_t read, T mean) {
    for (int64_t j = 0; j < read; ++j) {
      reads[j].d_energy = reads[j].weight * (reads[j].d_energy - mean);
      if (worth) *reads[j].d_score += reads[j].d_energy;
    }
    T* d_query = d_back.data() + (r * (n.gates() + 1) + n.gates()) * lane;
    std::fill_n(d_query, lane, T(0));
    int64_t j = 0;
    for (; j + 4 <= read; j += 4) score<4>(reads + j, d_query);
    for (; j < read; ++j) score<1>(reads + j, d_query);
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
  std::vector<T> d_z, gates, asked, cell, query_room;

  // `count` rows of features in whole vectors: where they are, if they are, or in `room`, whose rest is zero
  const T* whole(const T* from, int64_t count, std::vector<T>& room) const {
    if (lane == n.size) return from;
    for (int64_t i = 0; i < count; ++i) copy(room.data() + i * lane, from + i * n.size);
    return room.data();
  }

  // through the read of step t
  void attend(int64_t t, int64_t r) {
    const T* d_s = d_hidden.data() + r * to_hidden.columns;
    for (int64_t i = 0; i < lane; ++i) d_context[i] = T(n.mix) * d_s[i];
    query = whole(at(a.queries, t, r, n.size), 1, query_room);
    reread(t, r, grow(query, grown.data(), lane));
    copy(at(a.d_queries, t, r, n.size), d_back.data() + (r * (n.gates() + 1) + n.gates()) * lane);
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
                                : fading_far(load(query + i), load(slot.key + i));
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
    T* d_h = d_state(t, r);
    const T *d_s = d_hidden.data() + r * to_hidden.columns, *by_key = d_by_key.data() + r * key.columns;
    for (int64_t i = 0; i < lane; ++i) d_h[i] += T(n.mix) * d_s[i] + by_key[i];
    if (worth) {
      const T arriving = d_score(t, r);
      for (int64_t i = 0; i < lane; ++i) d_h[i] += arriving * worth[i];
    }
    const T *saved = at(a.gates, t, r, (n.cell == ELMAN ? 1 : 4) * n.size), *s = nullptr, *c = nullptr;
    saved = saved ? whole(saved, n.cell == ELMAN ? 1 : 4, gates) : state(t, r);
    if (n.cell == GRU) s = whole(at(a.asked, t, r, n.size), 1, asked);
    if (n.cell == LSTM) c = whole(at(a.cells, t, r, n.size), 1, cell);
    T* d_projected = at(a.d_projected, t, r, count_gates * n.size);
    cell_backward(n, lane, d_h, saved, s, c, d_cell_state.data() + r * lane, lane == n.size ? d_projected : d_z.data(),
                  d_back.data() + r * (count_gates + 1) * lane, d_direct.data() + r * lane);
    if (lane == n.size) return;
    for (int64_t g = 0; g < count_gates; ++g) copy(d_projected + g * n.size, d_z.data() + g * lane);
  }

  // the product has given dL/ds_{t-1}
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
