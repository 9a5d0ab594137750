// The walk back through time with a full memory: scores are recomputed, weights follow from the normalisers.

#pragma once

#include <vector>

#include "past.h"
#include "walk_back.h"

namespace plait {

template <class T>
class FullWalkBack : public WalkBack<T> {
 public:
  FullWalkBack(const Sizes& n, const BackwardTensors& a, const BackwardWeights<T>& weights,
               const Packed<T>& to_key, int64_t block, int64_t begin, int64_t end)
      : WalkBack<T>(n, a, weights, block, begin, end), a(a), to_key(to_key), d_key_rows(this->count * lane) {}

 private:
  using WalkBack<T>::n, WalkBack<T>::lane, WalkBack<T>::begin, WalkBack<T>::at, WalkBack<T>::copy;
  const BackwardTensors& a;
  const Packed<T>& to_key;
  struct Row {
    Past<T> past;
    std::vector<T> d_states, d_keys;    // of what stands in the past
    std::vector<int64_t> first;         // by step: the first position it could read
  };
  std::vector<Row> rows;
  std::vector<Read<T>> reads;
  std::vector<T> d_key_rows;

  const T* state(int64_t t, int64_t r) const override {
    return rows[r].past.state.get() + (rows[r].past.initial + t) * lane;
  }
  T* d_state(int64_t t, int64_t r) override { return rows[r].d_states.data() + (rows[r].past.initial + t) * lane; }
  const T* d_keys(int64_t t) override {
    for (int64_t r = 0; r < this->count; ++r) {
      T* d_key = rows[r].d_keys.data() + (rows[r].past.initial + t) * lane;
      this->whole_d_key(d_key, d_key);
      std::copy_n(d_key, lane, d_key_rows.data() + r * lane);
    }
    return d_key_rows.data();
  }

  void start(int64_t r) override {
    const int64_t* born = a.born ? a.born + (begin + r) * n.width : nullptr;
    Row& row = rows.emplace_back(Row{Past<T>(n, lane, to_key, at(a.slots, 0, r, n.width * n.size), born)});
    Past<T>& past = row.past;
    const int64_t held = past.position.size();
    row.d_states.resize(held * lane), row.d_keys.resize(held * lane), row.first.resize(n.steps);
    for (int64_t t = 0; t < n.steps; ++t) {
      past.place(past.initial + t, at(a.output, t, r, n.size), n.size);
      copy(d_state(t, r), at(a.d_output, t, r, n.size));
      if (a.reset && a.reset[t * n.rows + begin + r]) past.first = past.initial + t;
      row.first[t] = past.first;
    }
    past.take_keys(past.initial, held, to_key);
    reads.resize(std::max<size_t>(reads.size(), held));
    const T* d_slots = at(a.d_slots, 0, r, (n.width + n.steps) * n.size);
    for (int64_t i = past.first; d_slots && i < held; ++i) {
      const T* from = d_slots + past.position[i] * n.size;
      for (int64_t x = 0; x < n.size; ++x) row.d_states[i * lane + x] += from[x];
    }
  }

  void reread(int64_t t, int64_t r, bool plain) override {
    Row& row = rows[r];
    Past<T>& past = row.past;
    int64_t read = 0, j = 0;
    for (int64_t i = row.first[t]; i <= past.initial + t; ++i) {
      reads[read++] = {past.state.get() + i * lane, past.key.get() + i * past.stride, row.d_states.data() + i * lane,
                       row.d_keys.data() + i * lane, past.grown.get() + i * lane};
      plain = plain && past.plain[i];
    }
    const T *query = this->query, *grown = this->grown.data();
    for (; j + 4 <= read; j += 4) energies<4>(lane, plain, query, grown, this->energy, &reads[j]);
    for (; j < read; ++j) energies<1>(lane, plain, query, grown, this->energy, &reads[j]);
    const T normaliser = *at(a.normalisers, t, r, 1);
    T sum = 0;
    for (j = 0; j < read; ++j) reads[j].plain = plain, sum += reads[j].weight = std::exp(reads[j].weight - normaliser);
    // a large normaliser is rounded by more than the weights were: without this they would not sum to 1
    for (j = 0; j < read; ++j) reads[j].weight /= sum;
    this->spread(r, reads.data(), read);
  }

  void finish(int64_t r) override {
    Row& row = rows[r];
    const T* d_states = row.d_states.data();
    T* d_keys = row.d_keys.data();
    for (int64_t i = 0; i < row.past.initial; ++i, d_states += lane, d_keys += lane) {
      this->whole_d_key(d_keys, d_keys);
      const int64_t place = (a.occupied_before[begin + r] + i) * n.size;
      copy(static_cast<T*>(a.d_initial_states) + place, d_states);
      copy(static_cast<T*>(a.d_initial_keys) + place, d_keys);
    }
    for (int64_t t = 0; t < n.steps; ++t, d_keys += lane) copy(at(a.d_keys, t, r, n.size), d_keys);
  }
};

template <class T>
void full_scan_backward(const Sizes& n, const BackwardTensors& a, int64_t blocks) {
  const BackwardWeights<T> weights(n, a);
  Packed<T> to_key(n.size, round_up(n.size, LANES<T>));
  to_key.fill(static_cast<const T*>(a.key), 0, 0, n.size, 1, n.size);
  over_blocks(n.rows, blocks, [&](int64_t block, int64_t begin, int64_t end) {
    FullWalkBack<T>(n, a, weights, to_key, block, begin, end).run();
  });
}

}  // namespace plait
