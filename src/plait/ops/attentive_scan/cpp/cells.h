// One step of each cell, and its backward; docs/kernels.md derives it.

#pragma once

#include "vectors.h"

namespace plait {

// z (gates x lane) holds projected + V s, for a GRU's candidate V s alone; leaves the gates in z, h in h.
template <class T>
void cell_forward(const Sizes& n, int64_t lane, T* z, const T* candidate, const T* s, T* c, const T* bias, T* h) {
  if (n.cell == ELMAN) {
    if (n.nonlinearity == TANH) each<T>(lane, [&](int64_t i) { load(z + i).tanh().store(h + i); });
    if (n.nonlinearity == IDENTITY) std::copy(z, z + lane, h);
    if (n.nonlinearity == RELU)
      for (int64_t i = 0; i < lane; ++i) h[i] = z[i] < 0 ? T(0) : z[i];
    if (n.nonlinearity == MODRELU)
      for (int64_t i = 0; i < lane; ++i) {
        const T size = std::abs(z[i]) + (bias ? bias[i] : T(0));
        const T sign = z[i] != z[i] ? z[i] : T((z[i] > 0) - (z[i] < 0));
        h[i] = sign * (size < 0 ? T(0) : size);
      }
  } else if (n.cell == LSTM) {
    each<T>(lane, [&](int64_t x) {
      const auto i = sigmoid(load(z + x)), f = sigmoid(load(z + lane + x)), g = load(z + 2 * lane + x).tanh(),
                 o = sigmoid(load(z + 3 * lane + x));
      const auto kept = at::vec::fmadd(i, g, f * load(c + x));
      i.store(z + x), f.store(z + lane + x), g.store(z + 2 * lane + x), o.store(z + 3 * lane + x);
      kept.store(c + x);
      (o * kept.tanh()).store(h + x);
    });
  } else {
    each<T>(lane, [&](int64_t x) {
      const auto r = sigmoid(load(z + x)), u = sigmoid(load(z + lane + x));
      auto v = load(z + 2 * lane + x);
      if (bias) v = v + load(bias + x);
      const auto m = at::vec::fmadd(r, v, load(candidate + x)).tanh();
      r.store(z + x), u.store(z + lane + x), m.store(z + 2 * lane + x), v.store(z + 3 * lane + x);
      at::vec::fmadd(u, load(s + x) - m, m).store(h + x);
    });
  }
}

// d_h and the gates to dz = dL/d(projected) and, in d_back, dL/d(V s); d_c is read and replaced, d_direct
// is what reaches s beside the product.
template <class T>
void cell_backward(const Sizes& n, int64_t lane, const T* d_h, const T* gates, const T* s, const T* c, T* d_c,
                   T* d_z, T* d_back, T* d_direct) {
  const Vec<T> one(T(1));
  if (n.cell == ELMAN) {
    for (int64_t i = 0; i < lane; ++i) {
      const T slope = n.nonlinearity == TANH ? 1 - gates[i] * gates[i] : T(1);
      const bool flat = (n.nonlinearity == RELU || n.nonlinearity == MODRELU) && gates[i] == 0;
      d_z[i] = d_back[i] = flat ? T(0) : d_h[i] * slope;
    }
  } else if (n.cell == LSTM) {
    each<T>(lane, [&](int64_t x) {
      const auto i = load(gates + x), f = load(gates + lane + x), g = load(gates + 2 * lane + x),
                 o = load(gates + 3 * lane + x), before = load(c + x), arriving = load(d_h + x);
      const auto squashed = at::vec::fmadd(i, g, f * before).tanh();
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
      const auto d_m = arriving * (one - u) * (one - m * m), d_u = arriving * (load(s + x) - m) * u * (one - u),
                 d_r = d_m * v * r * (one - r);
      d_r.store(d_z + x), d_u.store(d_z + lane + x), d_m.store(d_z + 2 * lane + x);
      d_r.store(d_back + x), d_u.store(d_back + lane + x), (d_m * r).store(d_back + 2 * lane + x);
      (arriving * u).store(d_direct + x);
    });
  }
}

}  // namespace plait
