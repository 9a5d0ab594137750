// The walk back through time with a bounded memory, whose slots are found again by their ids.

#pragma once

#include <vector>

#include "walk_back.h"

namespace plait {

// e^{2k} of what the slots of one row hold. Between two steps one or two slots change.
template <class T>
struct GrownKeys {
  std::vector<T> grown;
  std::vector<int32_t> id;
  std::vector<char> plain;
  GrownKeys(int64_t width, int64_t lane) : grown(width * lane), id(width, -1), plain(width) {}
};

template <class T>
class SlotWalkBack : public WalkBack<T> {
 public:
  SlotWalkBack(const Sizes& n, const BackwardTensors& a, const BackwardWeights<T>& weights, int64_t block,
               int64_t begin, int64_t end)
      : WalkBack<T>(n, a, weights, block, begin, end), a(a), reads(n.width),
        grown_keys(this->count, GrownKeys<T>(n.width, lane)) {}

 private:
  using WalkBack<T>::n, WalkBack<T>::lane, WalkBack<T>::begin, WalkBack<T>::at;
  const BackwardTensors& a;
  std::vector<Read<T>> reads;
  std::vector<GrownKeys<T>> grown_keys;

  T* history(const void* tensor, int64_t t, int64_t r) const { return at(tensor, t, r, lane); }
  T* initial(const void* tensor, int64_t r, int64_t j) const {
    return static_cast<T*>(const_cast<void*>(tensor)) + ((begin + r) * n.width + j) * lane;
  }
  const T* state(int64_t t, int64_t r) const override { return history(a.output, t, r); }
  T* d_state(int64_t t, int64_t r) override { return history(a.d_states, t, r); }
  const T* d_keys(int64_t t) override { return history(a.d_keys, t, 0); }

  T d_score(int64_t t, int64_t r) const override { return *at(a.d_scores, t, r, 1); }

  Read<T> find(int64_t r, int32_t id) const {
    Read<T> slot{};
    if (id < n.width) {
      slot = {initial(a.slots, r, id), initial(a.initial_keys, r, id), initial(a.d_initial_states, r, id),
              initial(a.d_initial_keys, r, id)};
      if (this->worth) slot.d_score = at(a.d_initial_scores, 0, r, n.width) + id;
    } else {
      const int64_t t = id - n.width;
      slot = {history(a.output, t, r), history(a.keys, t, r), history(a.d_states, t, r), history(a.d_keys, t, r)};
      if (this->worth) slot.d_score = at(a.d_scores, t, r, 1);
    }
    return slot;
  }

  Read<T> read_slot(int64_t r, int64_t j, int32_t id) {
    Read<T> slot = find(r, id);
    GrownKeys<T>& known = grown_keys[r];
    T* grown = known.grown.data() + j * lane;
    if (known.id[j] != id) known.plain[j] = grow(slot.key, grown, lane), known.id[j] = id;
    slot.grown = grown, slot.plain = known.plain[j];
    return slot;
  }

  void start(int64_t r) override {
    const T* d_slots = at(a.d_slots, 0, r, n.width * n.size);
    const int32_t* ids = a.ids + ((n.steps - 1) * n.rows + begin + r) * n.width;
    for (int64_t j = 0; d_slots && j < n.width; ++j) {
      if (ids[j] < 0) continue;
      T* to = find(r, ids[j]).d_state;
      for (int64_t i = 0; i < n.size; ++i) to[i] += d_slots[j * n.size + i];
    }
  }

  void reread(int64_t t, int64_t r, bool plain) override {
    const int32_t* ids = a.ids + (t * n.rows + begin + r) * n.width;
    const T* weights = at(a.weights, t, r, n.width);
    int64_t read = 0;
    T mean = 0;
    for (int64_t j = 0; j < n.width; ++j) {
      if (ids[j] < 0 || weights[j] == 0) continue;
      Read<T>& slot = reads[read++] = read_slot(r, j, ids[j]);
      slot.plain = slot.plain && plain;
      mean += this->weigh(slot, weights[j]);
    }
    this->spread(r, reads.data(), read, mean);
    if (T* to = at(a.d_energies, t, r, n.width)) {  // by slot; what was not read has none
      read = 0;
      for (int64_t j = 0; j < n.width; ++j) to[j] = ids[j] < 0 || weights[j] == 0 ? T(0) : reads[read++].d_energy;
    }
  }
};

template <class T>
void attentive_scan_backward(const Sizes& n, const BackwardTensors& a, int64_t blocks) {
  const BackwardWeights<T> weights(n, a);
  over_blocks(n.rows, blocks, [&](int64_t block, int64_t begin, int64_t end) {
    SlotWalkBack<T>(n, a, weights, block, begin, end).run();
  });
}

}  // namespace plait
