// All states of a row since its last reset, and the walk through time that reads them.

#pragma once

#include <memory>
#include <vector>

#include "reading.h"
#include "walk.h"

namespace plait {

// The occupied initial slots of one row, then h_0, h_1 ..., each with its key. What a step reads is always one
// piece of it: everything from the last reset on. Empty slots are left out, so they cost nothing.
template <class T>
struct Past {
  int64_t lane, stride, initial = 0, first = 0, end = 0;  // keys are `stride` apart, as a product writes them
  std::vector<int64_t> position;                          // index in the returned memory
  std::vector<char> plain;                                // e^{2k} is in range
  std::unique_ptr<T[]> state, key, grown;

  // `slots` (width, size) and `born` (width) of the initial memory; capacity for `steps` more states
  Past(const Sizes& n, int64_t lane, const Packed<T>& to_key, const T* slots, const int64_t* born)
      : lane(lane), stride(to_key.columns) {
    for (int64_t j = 0; j < n.width; ++j)
      if (born[j] >= 0) position.push_back(j);
    initial = end = position.size();
    for (int64_t t = 0; t < n.steps; ++t) position.push_back(n.width + t);
    plain.resize(position.size());
    state = std::make_unique_for_overwrite<T[]>(position.size() * lane);
    key = std::make_unique_for_overwrite<T[]>(position.size() * stride);
    grown = std::make_unique_for_overwrite<T[]>(position.size() * lane);
    for (int64_t i = 0; i < initial; ++i) place(i, slots + position[i] * n.size, n.size);
    take_keys(0, initial, to_key);
  }

  void place(int64_t i, const T* from, int64_t size) {
    std::copy(from, from + size, state.get() + i * lane);
    std::fill_n(state.get() + i * lane + size, lane - size, T(0));
  }
  void take_keys(int64_t from, int64_t to, const Packed<T>& to_key) {
    if (from == to) return;
    product(state.get() + from * lane, lane, to - from, to_key, key.get() + from * stride, stride);
    for (int64_t i = from; i < to; ++i) grow_key(i);
  }
  void grow_key(int64_t i) { plain[i] = grow(key.get() + i * stride, grown.get() + i * lane, lane); }
};

template <class T>
class FullWalk : public Walk<T> {
 public:
  FullWalk(const Sizes& n, const ForwardTensors& a, const ForwardWeights<T>& weights, int64_t begin, int64_t end)
      : Walk<T>(n, a, weights, begin, end), a(a), width(n.width + n.steps), grown(lane), context(lane) {}

 private:
  using Walk<T>::n, Walk<T>::lane, Walk<T>::begin, Walk<T>::to_key, Walk<T>::copy;
  const ForwardTensors& a;
  const int64_t width;
  std::vector<Past<T>> pasts;
  std::vector<std::vector<int64_t>> borns;  // of what stands in a past
  std::vector<int64_t> ages;
  std::vector<T> grown, context;
  std::vector<Seen<T>> seen;

  template <class U = T>
  U* at(const void* tensor, int64_t t, int64_t r, int64_t features) const {
    return Walk<T>::template at<U>(tensor, t, r, features);
  }

  void start(int64_t r) override {
    const int64_t* born = at<int64_t>(a.born, 0, r, n.width);
    const Past<T>& past = pasts.emplace_back(n, lane, to_key, at(a.slots, 0, r, n.width * n.size), born);
    auto& known = borns.emplace_back(past.position.size());
    for (int64_t i = 0; i < past.initial; ++i) known[i] = born[past.position[i]];
    ages.push_back(a.age[begin + r]);
    seen.resize(std::max(seen.size(), past.position.size()));
  }

  void clear(int64_t r) override { pasts[r].first = pasts[r].end, ages[r] = 0; }

  // append h_t, read with W_a s_{t-1}, mix
  void remember(int64_t t, int64_t r) override {
    Past<T>& past = pasts[r];
    past.place(past.end, this->state(r), n.size);
    std::copy_n(this->key(r), lane, past.key.get() + past.end * past.stride);
    past.grow_key(past.end);
    borns[r][past.end++] = ages[r]++;
    bool plain = grow(this->query(r), grown.data(), lane);
    int64_t count = 0;
    for (int64_t i = past.first; i < past.end; ++i) {
      seen[count++] = {i, past.state.get() + i * lane, past.key.get() + i * past.stride, past.grown.get() + i * lane, T(0)};
      plain = plain && past.plain[i];
    }
    const T normaliser = read(lane, plain, this->query(r), grown.data(), this->energy, seen.data(), count, context.data());
    if (T* to = at(a.normalisers, t, r, 1)) *to = normaliser;
    copy(at(a.contexts, t, r, n.size), context.data());
    this->mix(r, context.data());
    if (a.weights) {
      T* weights = at(a.weights, t, r, width);
      std::fill_n(weights, width, T(0));
      for (int64_t j = 0; j < count; ++j) weights[past.position[seen[j].slot]] = seen[j].weight;
      tell(r, at<int64_t>(a.trace_born, t, r, width), at(a.trace_relevance, t, r, width));
    }
  }

  // birth and relevance of what row r can read; a full memory gives no credit; initial slots keep their relevance
  void tell(int64_t r, int64_t* born, T* relevance) const {
    const Past<T>& past = pasts[r];
    const T* given = at(a.relevance, 0, r, n.width);
    std::fill_n(born, width, int64_t(-1));
    std::fill_n(relevance, width, T(0));
    for (int64_t i = past.first; i < past.end; ++i) born[past.position[i]] = borns[r][i];
    for (int64_t i = past.first; i < past.initial; ++i) relevance[past.position[i]] = given[past.position[i]];
  }

  void finish(int64_t r) override {
    const Past<T>& past = pasts[r];
    a.age_out[begin + r] = ages[r];
    tell(r, at<int64_t>(a.born_out, 0, r, width), at(a.relevance_out, 0, r, width));
    T* slots = at(a.slots_out, 0, r, width * n.size);
    int64_t next = 0;
    for (int64_t i = past.first; i < past.end; ++i, ++next) {
      std::fill(slots + next * n.size, slots + past.position[i] * n.size, T(0));
      next = past.position[i];
      copy(slots + next * n.size, past.state.get() + i * lane);
    }
  }
};

template <class T>
void full_scan_forward(const Sizes& n, const ForwardTensors& a, int64_t blocks) {
  const ForwardWeights<T> weights(n, a);
  over_blocks(n.rows, blocks, [&](int64_t, int64_t begin, int64_t end) { FullWalk<T>(n, a, weights, begin, end).run(); });
}

}  // namespace plait
