// The walk back through time with a bounded memory, whose slots are found again by their ids.

#pragma once

#include <vector>

#include "walk_back.h"

namespace plait {

// The slots of one row at a step, one record each: the state, e^{2k} of its key, and the accumulated gradients of both.
// A step uses some twenty of them; contiguous, they stay in the first-level cache, unlike the tensors over all steps
// and rows. Between two steps one or two slots change.
template <class T>
struct Held {
  const int64_t lane;
  std::vector<T> records;
  std::vector<const T*> key;
  std::vector<char> plain;      // by buffer: e^{2k} is in range
  std::vector<int32_t> id;      // by slot
  std::vector<int64_t> buffer;  // by slot

  Held(int64_t width, int64_t lane)
      : lane(lane), records(width * 4 * lane), key(width), plain(width), id(width, -1), buffer(width) {
    for (int64_t j = 0; j < width; ++j) buffer[j] = j;
  }

  T* part(int64_t slot, int64_t which) { return records.data() + (buffer[slot] * 4 + which) * lane; }
  T* state(int64_t slot) { return part(slot, 0); }
  T* grown(int64_t slot) { return part(slot, 1); }
  T* d_key(int64_t slot) { return part(slot, 2); }
  T* d_state(int64_t slot) { return part(slot, 3); }

  // Slot `slot` held state `now`. Back in time a state moves from a kept slot to one of the ring, which comes before
  // it; a state that is in no later slot was dropped and has no gradient yet. False: `take` it.
  bool moved(int64_t slot, int32_t now) {
    int64_t from = slot + 1;
    const int64_t width = id.size();
    while (now >= 0 && from < width && id[from] != now) ++from;
    const bool found = now < 0 || from < width;
    if (now >= 0 && found) std::swap(buffer[slot], buffer[from]), std::swap(id[slot], id[from]);
    id[slot] = now;
    return found;
  }

  void take(int64_t slot, const T* from, const T* its_key) {
    std::copy(from, from + lane, state(slot));
    std::fill_n(d_key(slot), 2 * lane, T(0));
    key[buffer[slot]] = its_key;
    plain[buffer[slot]] = grow(its_key, grown(slot), lane);
  }
};

template <class T>
class SlotWalkBack : public WalkBack<T> {
 public:
  SlotWalkBack(const Sizes& n, const BackwardTensors& a, const BackwardWeights<T>& weights, int64_t block,
               int64_t begin, int64_t end)
      : WalkBack<T>(n, a, weights, block, begin, end), a(a), reads(n.width), held(this->count, Held<T>(n.width, lane)),
        newest(this->count) {}

 private:
  using WalkBack<T>::n, WalkBack<T>::lane, WalkBack<T>::begin, WalkBack<T>::at;
  const BackwardTensors& a;
  std::vector<Read<T>> reads;
  std::vector<Held<T>> held;
  std::vector<int64_t> newest;  // by row: the slot of the state of the step

  T* history(const void* tensor, int64_t t, int64_t r) const { return at(tensor, t, r, lane); }
  T* initial(const void* tensor, int64_t r, int64_t j) const {
    return static_cast<T*>(const_cast<void*>(tensor)) + ((begin + r) * n.width + j) * lane;
  }
  const T* state(int64_t t, int64_t r) const override { return history(a.output, t, r); }
  T* d_state(int64_t t, int64_t r) override {
    T* gathered = held[r].d_state(newest[r]);
    if (const T* arriving = at(a.d_output, t, r, n.size))
      for (int64_t i = 0; i < n.size; ++i) gathered[i] += arriving[i];
    return gathered;
  }
  const T* d_keys(int64_t t) override {
    for (int64_t r = 0; r < this->count; ++r) this->whole_d_key(held[r].d_key(newest[r]), history(a.d_keys, t, r));
    return history(a.d_keys, t, 0);
  }

  T d_score(int64_t t, int64_t r) const override { return *at(a.d_scores, t, r, 1); }

  // update the slots of row r to step t
  const int32_t* turn(int64_t t, int64_t r) {
    const int32_t* ids = a.ids + (t * n.rows + begin + r) * n.width;
    Held<T>& known = held[r];
    for (int64_t j = 0; j < n.width; ++j) {
      const int64_t born = ids[j] - n.width;
      if (born == t) newest[r] = j;
      if (known.id[j] == ids[j] || known.moved(j, ids[j])) continue;
      if (born < 0) known.take(j, initial(a.slots, r, ids[j]), initial(a.initial_keys, r, ids[j]));
      else known.take(j, history(a.output, born, r), history(a.keys, born, r));
    }
    return ids;
  }

  void expect(int64_t t, int64_t r) override {
    const int32_t* ids = a.ids + (t * n.rows + begin + r) * n.width;
    const int64_t row = n.size * sizeof(T);
    for (int64_t j = 0; j < n.width; ++j) {
      const int64_t born = ids[j] - n.width;
      if (held[r].id[j] == ids[j] || born < 0) continue;
      this->ahead.read(history(a.output, born, r), row);
      this->ahead.read(history(a.keys, born, r), row);
    }
  }

  void start(int64_t r) override {
    const T* d_slots = at(a.d_slots, 0, r, n.width * n.size);
    const int32_t* ids = turn(n.steps - 1, r);
    for (int64_t j = 0; d_slots && j < n.width; ++j) {
      if (ids[j] < 0) continue;
      for (int64_t i = 0; i < n.size; ++i) held[r].d_state(j)[i] += d_slots[j * n.size + i];
    }
  }

  void reread(int64_t t, int64_t r, bool plain) override {
    const int32_t* ids = turn(t, r);
    const T* weights = at(a.weights, t, r, n.width);
    Held<T>& known = held[r];
    int64_t read = 0;
    for (int64_t j = 0; j < n.width; ++j) {
      if (ids[j] < 0 || weights[j] == 0) continue;
      const int64_t buffer = known.buffer[j], born = ids[j] - n.width;
      reads[read++] = {known.state(j), known.key[buffer], known.d_state(j), known.d_key(j), known.grown(j), weights[j],
                       T(0), known.plain[buffer] && plain,
                       !this->worth ? nullptr : born < 0 ? at(a.d_initial_scores, 0, r, n.width) + ids[j] : at(a.d_scores, born, r, 1)};
    }
    this->spread(r, reads.data(), read);
    if (T* to = at(a.d_energies, t, r, n.width)) {  // by slot; none if it was not read
      read = 0;
      for (int64_t j = 0; j < n.width; ++j) to[j] = ids[j] < 0 || weights[j] == 0 ? T(0) : reads[read++].d_energy;
    }
  }

  void finish(int64_t r) override {
    for (int64_t j = 0; j < n.width; ++j) {
      const int32_t id = held[r].id[j];
      if (id < 0 || id >= n.width) continue;
      this->whole_d_key(held[r].d_key(j), initial(a.d_initial_keys, r, id));
      std::copy_n(held[r].d_state(j), lane, initial(a.d_initial_states, r, id));
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
