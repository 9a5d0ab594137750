// The walk through time with a bounded memory.

#pragma once

#include <vector>

#include "slots.h"
#include "walk.h"

namespace plait {

template <class T>
struct Row {
  Slots<T> memory;
  std::vector<T> grown, context, weights;
  std::vector<Seen<T>> seen;
  Row(int64_t width, int64_t lane) : memory(width, lane), grown(lane), context(lane), weights(width), seen(width) {}
};

template <class T>
class SlotWalk : public Walk<T> {
 public:
  SlotWalk(const Sizes& n, const ForwardTensors& a, const ForwardWeights<T>& weights, int64_t begin, int64_t end)
      : Walk<T>(n, a, weights, begin, end), a(a), worth(weights.worth.empty() ? nullptr : weights.worth.data()),
        rows(this->count, Row<T>(n.width, lane)) {}

 private:
  using Walk<T>::n, Walk<T>::lane, Walk<T>::begin, Walk<T>::to_key, Walk<T>::copy;
  const ForwardTensors& a;
  const T* worth;  // null where relevance is earned
  std::vector<Row<T>> rows;

  template <class U = T>
  U* at(const void* tensor, int64_t t, int64_t r, int64_t features) const {
    return Walk<T>::template at<U>(tensor, t, r, features);
  }

  void start(int64_t r) override {
    auto& memory = rows[r].memory;
    if (!a.born) return memory.clear();  // nothing came before
    memory.age = a.age[begin + r];
    bool any = false;
    for (int64_t j = 0; j < n.width; ++j) {
      memory.relevance[j] = at(a.relevance, 0, r, n.width)[j];
      if (worth) memory.score[j] = memory.relevance[j];
      memory.born[j] = at<int64_t>(a.born, 0, r, n.width)[j];
      memory.id[j] = memory.born[j] < 0 ? -1 : int32_t(j);
      any |= memory.born[j] >= 0;
      copy(memory.state.data() + j * lane, at(a.slots, 0, r, n.width * n.size) + j * n.size);
    }
    if (!any) return;
    std::vector<T> keys(n.width * to_key.columns);
    product(memory.state.data(), lane, n.width, to_key, keys.data(), to_key.columns);
    for (int64_t j = 0; j < n.width; ++j) place_key(memory, j, keys.data() + j * to_key.columns);
  }

  void clear(int64_t r) override { rows[r].memory.clear(); }

  void place_key(Slots<T>& memory, int64_t buffer, const T* key) {
    std::copy(key, key + lane, memory.key.data() + buffer * lane);
    memory.plain[buffer] = grow(key, memory.grown.data() + buffer * lane, lane);
  }

  // write h_t, read with W_a s_{t-1}, mix
  void remember(int64_t t, int64_t r) override {
    Row<T>& row = rows[r];
    Slots<T>& memory = row.memory;
    const T *state = this->state(r), *key = this->key(r), *query = this->query(r);
    const int64_t buffer = memory.admit(n, int32_t(n.width + t));
    std::copy(state, state + lane, memory.state.data() + buffer * lane);
    place_key(memory, buffer, key);
    if (worth) memory.rate(n, dot(worth, state, lane), a.noise ? *at(a.noise, t, r, 1) : T(0));
    copy(at(a.keys, t, r, n.size), key);
    copy(at(a.queries, t, r, n.size), query);
    attend(n, memory, query, this->energy, !worth, row.grown.data(), row.seen.data(), row.weights.data(),
           row.context.data());
    this->mix(r, row.context.data());
    if (T* to = at(a.weights, t, r, n.width)) std::copy(row.weights.begin(), row.weights.end(), to);
    if (int32_t* to = at<int32_t>(a.ids, t, r, n.width)) std::copy(memory.id.begin(), memory.id.end(), to);
    if (int64_t* to = at<int64_t>(a.trace_born, t, r, n.width)) std::copy(memory.born.begin(), memory.born.end(), to);
    if (T* to = at(a.trace_relevance, t, r, n.width))
      std::copy(memory.relevance.begin(), memory.relevance.end(), to);
  }

  void finish(int64_t r) override {
    const Slots<T>& memory = rows[r].memory;
    a.age_out[begin + r] = memory.age;
    for (int64_t j = 0; j < n.width; ++j) {
      at(a.relevance_out, 0, r, n.width)[j] = memory.relevance[j];
      at<int64_t>(a.born_out, 0, r, n.width)[j] = memory.born[j];
      copy(at(a.slots_out, 0, r, n.width * n.size) + j * n.size, memory.state.data() + memory.buffer[j] * lane);
    }
  }
};

template <class T>
void attentive_scan_forward(const Sizes& n, const ForwardTensors& a, int64_t blocks) {
  const ForwardWeights<T> weights(n, a);
  over_blocks(n.rows, blocks, [&](int64_t, int64_t begin, int64_t end) { SlotWalk<T>(n, a, weights, begin, end).run(); });
}

}  // namespace plait
