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

// whether no lane is beyond `limit`, or a NaN
template <class T>
bool within(const Vec<T>& x, T limit) {
  T lanes[LANES<T>];
  x.store(lanes);
  return std::all_of(lanes, lanes + LANES<T>, [&](T value) { return value <= limit; });
}

template <class T>
Vec<T> exponential(const Vec<T>& x) {
  return x.exp();
}

template <class T>
Vec<T> hyperbolic_tangent(const Vec<T>& x) {
  return x.tanh();
}

template <class T>
Vec<T> reciprocal(const Vec<T>& x) {
  return Vec<T>(T(1)) / x;
}

#ifdef CPU_CAPABILITY_AVX512
inline bool within(const Vec<float>& x, float limit) {
  return _mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_LE_OQ) == 0xffff;
}

// Half the time of a division: 14 bits and one Newton step, exact to 1 or 2 units in the last place. For positive x.
// The minimum keeps infinity out of the step, where it would meet its own reciprocal, 0; it lets a NaN through.
[[gnu::always_inline]] inline Vec<float> reciprocal(const Vec<float>& positive) {
  const __m512 x = _mm512_min_ps(_mm512_set1_ps(4e37f), positive), guess = _mm512_rcp14_ps(x);
  return _mm512_fmadd_ps(_mm512_fnmadd_ps(x, guess, _mm512_set1_ps(1.0f)), guess, guess);
}

// x = n log 2 + r and p = e^r - 1, by a polynomial
struct Halved {
  __m512 n, p;
};
[[gnu::always_inline]] inline Halved halved(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x));
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  for (const float coefficient : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(coefficient));
  return {n, _mm512_fmadd_ps(_mm512_mul_ps(r, r), p, r)};
}

// Inlined, where ATen's vectors call a library: 2^n (1 + p), within 2 units in the last place. Out of range it is 0 or
// infinity, and a NaN is let through.
[[gnu::always_inline]] inline Vec<float> exponential(const Vec<float>& given) {
  const Halved e = halved(_mm512_max_ps(_mm512_set1_ps(-110.0f), _mm512_min_ps(_mm512_set1_ps(90.0f), given)));
  return _mm512_scalef_ps(_mm512_add_ps(e.p, _mm512_set1_ps(1.0f)), e.n);
}

// (e^{2x} - 1) / (e^{2x} + 1), with e^{2x} - 1 = 2^n p + (2^n - 1) where e^r = 1 + p, so that nothing cancels; within 3
// units in the last place, and a NaN is let through.
[[gnu::always_inline]] inline Vec<float> hyperbolic_tangent(const Vec<float>& given) {
  const __m512 bound = _mm512_set1_ps(10.0f), one = _mm512_set1_ps(1.0f);
  const __m512 x = _mm512_max_ps(_mm512_sub_ps(_mm512_setzero_ps(), bound), _mm512_min_ps(bound, given));
  const Halved e = halved(_mm512_add_ps(x, x));
  const __m512 power = _mm512_scalef_ps(one, e.n), less = _mm512_fmadd_ps(power, e.p, _mm512_sub_ps(power, one));
  return _mm512_mul_ps(less, reciprocal(Vec<float>(_mm512_add_ps(less, _mm512_set1_ps(2.0f)))));
}
#endif

template <class T>
[[gnu::always_inline]] inline Vec<T> sigmoid(const Vec<T>& x) {
  return reciprocal(Vec<T>(T(1)) + exponential(x.neg()));
}

// e^{2x} for the vectors of a row; whether no value of the row is out of the range of the identity
template <class T>
bool grow(const T* x, T* grown, int64_t lane) {
  const T limit = std::log(std::numeric_limits<T>::max()) * T(0.49);
  Vec<T> largest(T(0));
  each<T>(lane, [&](int64_t i) {
    const auto value = load(x + i);
    largest = at::vec::maximum(largest, value.abs());  // a NaN stays
    exponential(value + value).store(grown + i);
  });
  return within(largest, limit);
}

// r = 1 / (1 + e^{2(q + k)}), from which tanh = 1 - 2r and tanh' = 4r(1 - r). Each exponential is in range, their product
// need not be: infinity gives r = 0, tanh = 1 and tanh' = 0.
template <class T>
[[gnu::always_inline]] inline Vec<T> fading(const Vec<T>& grown_query, const Vec<T>& grown_key) {
  return reciprocal(at::vec::fmadd(grown_query, grown_key, Vec<T>(T(1))));
}

// The same where an exponential of q or k alone could overflow. Like the one above it is exact to a few units in the last
// place where tanh saturates: 1 - tanh would have lost digits that matter after multiplication by a large weight.
template <class T>
Vec<T> fading_far(const Vec<T>& query, const Vec<T>& key) {
  return sigmoid((query + key) * Vec<T>(T(-2)));
}

// A state is stored in the layer's type, so that the carried, saved and read numbers are the same.
template <class T>
void keep_rounded(T* x, int64_t n, int64_t rounding) {
  if (rounding == BFLOAT16)
    for (int64_t i = 0; i < n; ++i) x[i] = static_cast<T>(static_cast<c10::BFloat16>(static_cast<float>(x[i])));
  if (rounding == FLOAT16)
    for (int64_t i = 0; i < n; ++i) x[i] = static_cast<T>(static_cast<c10::Half>(static_cast<float>(x[i])));
}

}  // namespace plait
