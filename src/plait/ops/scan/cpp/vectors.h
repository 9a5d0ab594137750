// ATen's vectors and the functions of them that both walks share.

#pragma once

#include <ATen/cpu/vec/vec.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "arguments.h"

namespace plait {

template <class T>
using Vec = at::vec::Vectorized<T>;
template <class T>
constexpr int64_t LANES = Vec<T>::size();
inline int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

template <class T, class F>
void each(int64_t lane, const F& f) {
  for (int64_t i = 0; i < lane; i += LANES<T>) f(i);
}

template <class T>
Vec<T> load(const T* x) {
  return Vec<T>::loadu(x);
}

template <class T>
T total(const Vec<T>& x) {
  if constexpr (requires { x.reduce_add(); }) return x.reduce_add();
  T lanes[LANES<T>], sum = 0;
  x.store(lanes);
  for (const T lane : lanes) sum += lane;
  return sum;
}

template <class T>
T dot(const T* a, const T* b, int64_t lane) {
  Vec<T> sum(T(0));
  each<T>(lane, [&](int64_t i) { sum = at::vec::fmadd(load(a + i), load(b + i), sum); });
  return total(sum);
}

template <class T, class F>
bool every(const Vec<T>& x, const F& holds) {
  T lanes[LANES<T>];
  x.store(lanes);
  return std::all_of(lanes, lanes + LANES<T>, holds);
}

template <class T>
Vec<T> sigmoid(const Vec<T>& x) {
  return Vec<T>(T(1)) / (Vec<T>(T(1)) + x.neg().exp());
}

// e^{2x} for the vectors of a row; whether no value of the row is out of the range of the identity
template <class T>
bool grow(const T* x, T* grown, int64_t lane) {
  const T limit = std::log(std::numeric_limits<T>::max()) * T(0.49);
  Vec<T> largest(T(0));
  each<T>(lane, [&](int64_t i) {
    const auto value = load(x + i);
    largest = at::vec::maximum(largest, value.abs());  // a NaN stays
    (value + value).exp().store(grown + i);
  });
  return every(largest, [&](T value) { return value <= limit; });
}

// 1 / (1 + e^{2(q + k)}), from which tanh = 1 - 2r and tanh' = 4r(1 - r)
template <class T>
Vec<T> fading(const Vec<T>& grown_query, const Vec<T>& grown_key) {
  return Vec<T>(T(1)) / at::vec::fmadd(grown_query, grown_key, Vec<T>(T(1)));
}

#ifdef CPU_CAPABILITY_AVX512
// Half the time of a division: 14 bits and one Newton step, exact to 1 or 2 units in the last place. The
// minimum keeps infinity out of the step (and lets a NaN through).
inline Vec<float> fading(const Vec<float>& grown_query, const Vec<float>& grown_key) {
  const __m512 one = _mm512_set1_ps(1.0f), most = _mm512_set1_ps(1e30f);
  const __m512 x = _mm512_min_ps(most, _mm512_fmadd_ps(grown_query, grown_key, one));
  const __m512 guess = _mm512_rcp14_ps(x);
  return _mm512_fmadd_ps(_mm512_fnmadd_ps(x, guess, one), guess, guess);
}
#endif

// the same, where an exponential could overflow
template <class T>
Vec<T> fading_far(const Vec<T>& query, const Vec<T>& key) {
  return (Vec<T>(T(1)) - (query + key).tanh()) * Vec<T>(T(0.5));
}

// A state is kept in the layer's type: what is carried over, saved and read is the same number.
template <class T>
void keep_rounded(T* x, int64_t n, int64_t rounding) {
  if (rounding == BFLOAT16)
    for (int64_t i = 0; i < n; ++i) x[i] = static_cast<T>(static_cast<c10::BFloat16>(static_cast<float>(x[i])));
  if (rounding == FLOAT16)
    for (int64_t i = 0; i < n; ++i) x[i] = static_cast<T>(static_cast<c10::Half>(static_cast<float>(x[i])));
}

}  // namespace plait
