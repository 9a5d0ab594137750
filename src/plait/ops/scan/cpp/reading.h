// Reading occupied slots with a query, wherever they lie.

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

// context += weights of COUNT slots times their states
template <class T, int COUNT>
void mix_in(int64_t lane, const Seen<T>* seen, T* context) {
  each<T>(lane, [&](int64_t i) {
    Vec<T> sum = load(context + i);
#pragma GCC unroll 4
    for (int j = 0; j < COUNT; ++j) sum = at::vec::fmadd(Vec<T>(seen[j].weight), load(seen[j].state + i), sum);
    sum.store(context + i);
  });
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
  std::fill_n(context, lane, T(0));
  for (j = 0; j + 4 <= count; j += 4) mix_in<T, 4>(lane, seen + j, context);
  for (; j < count; ++j) mix_in<T, 1>(lane, seen + j, context);
  return normaliser;
}

}  // namespace plait
