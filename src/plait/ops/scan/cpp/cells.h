// One step of each cell, and its backward; docs/notes/kernels.md derives it.

#pragma once

#include "vectors.h"

namespace plait {

// h = phi(z); z and h may be one
template <class T>
void activate(int64_t nonlinearity, int64_t lane, const T* z, const T* modrelu_bias, T* h) {
  if (nonlinearity == TANH) each<T>(lane, [&](int64_t i) { hyperbolic_tangent(load(z + i)).store(h + i); });
  if (nonlinearity == IDENTITY && z != h) std::copy(z, z + lane, h);
  if (nonlinearity == RELU)
    for (int64_t i = 0; i < lane; ++i) h[i] = z[i] < 0 ? T(0) : z[i];
  if (nonlinearity == MODRELU)
    for (int64_t i = 0; i < lane; ++i) {
      const T size = std::abs(z[i]) + (modrelu_bias ? modrelu_bias[i] : T(0));
      const T sign = z[i] != z[i] ? z[i] : T((z[i] > 0) - (z[i] < 0));
      h[i] = sign * (size < 0 ? T(0) : size);
    }
}

// dL/dz from dL/dphi and phi(z): selected where relu and modrelu are flat, so that nothing infinite comes back
template <class T>
Vec<T> through_slope(int64_t nonlinearity, const Vec<T>& arriving, const Vec<T>& activated) {
  if (nonlinearity == TANH) return arriving * (Vec<T>(T(1)) - activated * activated);
  return nonlinearity == IDENTITY ? arriving : arriving & (activated != Vec<T>(T(0)));
}

// From V s (`given`, gates x lane) and the projected input, which is null where `given` holds it already (but for the
// `candidate` of a GRU, which V s meets later): the gates, h, and c replaced. `gates` may be `given`, and h may be s.
template <class T>
void cell_forward(const Sizes& n, int64_t lane, const T* given, const T* projected, const T* candidate, const T* s, T* c,
                  const T* candidate_bias, const T* modrelu_bias, T* gates, T* h) {
  const auto argument = [&](int64_t x) { return projected ? load(given + x) + load(projected + x) : load(given + x); };
  if (n.cell == ELMAN) {
    each<T>(lane, [&](int64_t x) { argument(x).store(h + x); });
    activate(n.nonlinearity, lane, h, modrelu_bias, h);
  } else if (n.cell == LSTM) {
    each<T>(lane, [&](int64_t x) {
      const auto i = sigmoid(argument(x)), f = sigmoid(argument(lane + x)), g = hyperbolic_tangent(argument(2 * lane + x)),
                 o = sigmoid(argument(3 * lane + x));
      const auto kept = at::vec::fmadd(i, g, f * load(c + x));
      i.store(gates + x), f.store(gates + lane + x), g.store(gates + 2 * lane + x), o.store(gates + 3 * lane + x);
      kept.store(c + x);
      (o * hyperbolic_tangent(kept)).store(h + x);
    });
  } else {
    each<T>(lane, [&](int64_t x) {
      const auto r = sigmoid(argument(x)), u = sigmoid(argument(lane + x));
      auto v = load(given + 2 * lane + x);
      if (candidate_bias) v = v + load(candidate_bias + x);
      r.store(gates + x), u.store(gates + lane + x), v.store(gates + 3 * lane + x);
      at::vec::fmadd(r, v, load(candidate + x)).store(gates + 2 * lane + x);
    });
    activate(n.nonlinearity, lane, gates + 2 * lane, modrelu_bias, gates + 2 * lane);
    each<T>(lane, [&](int64_t x) {
      const auto m = load(gates + 2 * lane + x);
      at::vec::fmadd(load(gates + lane + x), load(s + x) - m, m).store(h + x);
    });
  }
}

// d_h and the gates to dz = dL/d(projected) and, in d_back, dL/d(V s); d_c is read and replaced, d_direct is the
// gradient of s that bypasses the product.
template <class T>
void cell_backward(const Sizes& n, int64_t lane, const T* d_h, const T* gates, const T* s, const T* c, T* d_c,
                   T* d_z, T* d_back, T* d_direct) {
  const Vec<T> one(T(1));
  if (n.cell == ELMAN) {
    each<T>(lane, [&](int64_t x) {
      const auto d = through_slope<T>(n.nonlinearity, load(d_h + x), load(gates + x));
      d.store(d_z + x), d.store(d_back + x);
    });
  } else if (n.cell == LSTM) {
    each<T>(lane, [&](int64_t x) {
      const auto i = load(gates + x), f = load(gates + lane + x), g = load(gates + 2 * lane + x),
                 o = load(gates + 3 * lane + x), before = load(c + x), arriving = load(d_h + x);
      const auto squashed = hyperbolic_tangent(at::vec::fmadd(i, g, f * before));
      const auto d_kept = at::vec::fmadd(arriving * o, one - squashed * squashed, load(d_c + x));
      const Vec<T> d[4] = {d_kept * g * i * (one - i), d_kept * before * f * (one - f), d_kept * i * (one - g * g),
                           arriving * squashed * o * (one - o)};
      for (int gate = 0; gate < 4; ++gate) d[gate].store(d_z + gate * lane + x), d[gate].store(d_back + gate * lane + x);
      (d_kept * f).store(d_c + x);
    });
  } else {
    each<T>(lane, [&](int64_t x) {
      const auto r = load(gates + x), u = load(gates + lane + x), m = load(gates + 2 * lane + x),
                 v = load(gates + 3 * lane + x), arriving = load(d_h + x);
      const auto d_m = through_slope<T>(n.nonlinearity, arriving * (one - u), m), d_u = arriving * (load(s + x) - m) * u * (one - u),
                 d_r = d_m * v * r * (one - r);
      d_r.store(d_z + x), d_u.store(d_z + lane + x), d_m.store(d_z + 2 * lane + x);
      d_r.store(d_back + x), d_u.store(d_back + lane + x), (d_m * r).store(d_back + 2 * lane + x);
      (arriving * u).store(d_direct + x);
    });
  }
}

}  // namespace plait
