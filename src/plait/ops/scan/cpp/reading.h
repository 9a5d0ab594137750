// Reading occupied slots with a query.

#pragma once

#include "vectors.h"

namespace plait {

// An occupied slot, as a read sees it.
template <class T>
struct Seen {
  int64_t slot;
  const T *state, *key, *grown;
  T weight, score;
};

// energies of COUNT slots, taken together to share the query
template <int COUNT, class T, class Slot>
void energies(int64_t lane, bool plain, const T* query, const T* grown, const T* energy, Slot* seen) {
  const Vec<T> half(T(0.5));
  Vec<T> sum[COUNT];
#pragma GCC unroll 4
  for (int j = 0; j < COUNT; ++j) sum[j] = Vec<T>(T(0));
  each<T>(lane, [&](int64_t i) {
#pragma GCC unroll 4
    for (int j = 0; j < COUNT; ++j) {
      const auto fade = plain ? fading(load(grown + i), load(seen[j].grown + i))
                              : fading_far(load(query + i), load(seen[j].key + i));
      sum[j] = at::vec::fmadd(load(energy + i), half - fade, sum[j]);
    }
  });
  for (int j = 0; j < COUNT; ++j) seen[j].weight = 2 * total(sum[j]);
}

// VECTORS vectors of the context, in registers while all states pass
template <int VECTORS, class T>
void mix_states(const Seen<T>* seen, int64_t count, int64_t i, T* context) {
  Vec<T> sum[VECTORS];
#pragma GCC unroll 8
  for (int v = 0; v < VECTORS; ++v) sum[v] = Vec<T>(T(0));
  for (int64_t j = 0; j < count; ++j) {
    const Vec<T> weight(seen[j].weight);
    const T* state = seen[j].state + i;
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) sum[v] = at::vec::fmadd(weight, load(state + v * LANES<T>), sum[v]);
  }
#pragma GCC unroll 8
  for (int v = 0; v < VECTORS; ++v) sum[v].store(context + i + v * LANES<T>);
}

// The softmax of `count` energies, in place; gives log of the sum of their exponentials. A NaN makes all of them NaN.
template <class T>
T softmax(Seen<T>* seen, int64_t count) {
  T top = -std::numeric_limits<T>::infinity(), sum = 0;
  for (int64_t j = 0; j < count; ++j) top = std::max(top, seen[j].weight);
  for (int64_t j = 0; j < count; ++j) sum += seen[j].weight = std::exp(seen[j].weight - top);
  for (int64_t j = 0; j < count; ++j) seen[j].weight /= sum;
  return top + std::log(sum);
}

// Weights of `count` slots and the context, Σ of weights times states; gives the softmax's normaliser.
template <class T>
T read(int64_t lane, bool plain, const T* query, const T* grown, const T* energy, Seen<T>* seen, int64_t count,
       T* context) {
  int64_t j = 0;
  for (; j + 4 <= count; j += 4) energies<4>(lane, plain, query, grown, energy, seen + j);
  for (; j < count; ++j) energies<1>(lane, plain, query, grown, energy, seen + j);
  for (j = 0; j < count; ++j) seen[j].weight += seen[j].score;
  const T normaliser = softmax(seen, count);
  int64_t i = 0;
  for (; i + 8 * LANES<T> <= lane; i += 8 * LANES<T>) mix_states<8>(seen, count, i, context);
  for (; i < lane; i += LANES<T>) mix_states<1>(seen, count, i, context);
  return normaliser;
}

}  // namespace plait
