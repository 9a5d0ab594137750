// Products of rows with matrices as torch keeps them, (columns, depth): for a single step, which is too short to pay
// for packing, and must not use a packed copy of weights that have changed since.

#pragma once

#include <memory>

#include "products.h"

namespace plait {

// out[c] of COUNT columns for one row; eight sums at a time hide the latency of each
template <class T, int COUNT>
void dots(const T* x, const T* w, int64_t depth, T* out, bool adds = false) {
  Vec<T> sum[COUNT];
#pragma GCC unroll 8
  for (int c = 0; c < COUNT; ++c) sum[c] = Vec<T>(T(0));
  int64_t k = 0;
  for (; k + LANES<T> <= depth; k += LANES<T>) {
    const auto factor = load(x + k);
#pragma GCC unroll 8
    for (int c = 0; c < COUNT; ++c) sum[c] = at::vec::fmadd(factor, load(w + c * depth + k), sum[c]);
  }
  for (int c = 0; c < COUNT; ++c) {
    T rest = adds ? out[c] : T(0);
    for (int64_t i = k; i < depth; ++i) rest += x[i] * w[c * depth + i];
    out[c] = total(sum[c]) + rest;
  }
}

// Rows that are multiplied with several matrices. A few are multiplied one by one. With many, the rows are packed
// instead of the matrix, since the smaller of the two is copied.
template <class T>
class Rowwise {
 public:
  Rowwise(const T* x, int64_t x_stride, int64_t rows, int64_t depth) : x(x), x_stride(x_stride), rows(rows), depth(depth) {
    if (rows <= FEW) return;
    packed = std::make_unique_for_overwrite<T[]>(depth * round_up(rows, LANES<T>));
    for (int64_t first = 0; first < rows; first += width(first)) pack(first, packed.get() + first * depth);
  }

  // out[r * stride + c] = row r times row c of w (columns, depth)
  void product(const T* w, int64_t columns, T* out, int64_t stride) const { product(w, nullptr, nullptr, columns, out, stride); }

  // the same plus the product of other rows with another matrix of as many columns
  void product(const T* w, const Rowwise* other, const T* other_w, int64_t columns, T* out, int64_t stride) const {
    for (int64_t c = 0, count; c < columns; c += count) {
      const int64_t most = rows <= FEW ? 8 : TURNED;
      count = columns - c < most ? 1 : most;
      if (rows > FEW) {
        for (int64_t first = 0; first < rows; first += width(first))
          turn(w + c * depth, other, other ? other_w + c * other->depth : nullptr, count, first, out + c, stride);
        continue;
      }
      for (int64_t r = 0; r < rows; ++r) {
        one(w + c * depth, count, r, out + r * stride + c, false);
        if (other) other->one(other_w + c * other->depth, count, r, out + r * stride + c, true);
      }
    }
  }

 private:
  static constexpr int64_t FEW = 4, TURNED = 4;
  const T* x;
  const int64_t x_stride, rows, depth;
  std::unique_ptr<T[]> packed;
  typedef T Four __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));

  // whole vectors of rows from `first` on, at most a panel
  int64_t width(int64_t first) const { return std::min(PANEL<T>, round_up(rows - first, LANES<T>)); }

  void pack(int64_t first, T* panel) {
    const int64_t wide = width(first), real = std::min(wide, rows - first);
    for (int64_t k = 0; k < depth; ++k) std::fill_n(panel + k * wide + real, wide - real, T(0));
    for (int64_t r = 0; r < real; ++r)
      for (int64_t k = 0; k < depth; ++k) panel[k * wide + r] = x[(first + r) * x_stride + k];
  }

  void one(const T* w, int64_t count, int64_t r, T* out, bool adds) const {
    if (count == 8) dots<T, 8>(x + r * x_stride, w, depth, out, adds);
    else dots<T, 1>(x + r * x_stride, w, depth, out, adds);
  }

  // `count` columns of a panel of rows
  void turn(const T* w, const Rowwise* other, const T* other_w, int64_t count, int64_t first, T* out, int64_t stride) const {
    alignas(64) T sums[TURNED * PANEL<T>];
    const int64_t wide = width(first), real = std::min(wide, rows - first);
    tiles<false>(w, count, first, sums);
    if (other) other->template tiles<true>(other_w, count, first, sums);
    int64_t r = 0;
    if (count == TURNED)
      for (; r + 4 <= real; r += 4) turn_four(sums + r, wide, out + (first + r) * stride, stride);
    for (; r < real; ++r)
      for (int64_t c = 0; c < count; ++c) out[(first + r) * stride + c] = sums[c * wide + r];
  }

  static void turn_four(const T* from, int64_t wide, T* to, int64_t stride) {
    const auto row = [&](int64_t c) { return *reinterpret_cast<const Four*>(from + c * wide); };
    const Four a = row(0), b = row(1), c = row(2), d = row(3);
    const Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5),
               ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    const auto put = [&](int64_t r, Four x) { *reinterpret_cast<Four*>(to + r * stride) = x; };
    put(0, __builtin_shufflevector(ab, cd, 0, 1, 4, 5)), put(1, __builtin_shufflevector(ab, cd, 2, 3, 6, 7));
    put(2, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5)), put(3, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
  }

  template <bool ADDS>
  void tiles(const T* w, int64_t count, int64_t first, T* sums) const {
    switch (width(first) / LANES<T>) {
      case 1: return tiles_of<1, ADDS>(w, count, first, sums);
      case 2: return tiles_of<2, ADDS>(w, count, first, sums);
      case 3: return tiles_of<3, ADDS>(w, count, first, sums);
      default: return tiles_of<TILE_VECTORS, ADDS>(w, count, first, sums);
    }
  }

  template <int VECTORS, bool ADDS>
  void tiles_of(const T* w, int64_t count, int64_t first, T* sums) const {
    constexpr int64_t wide = VECTORS * LANES<T>;
    const T* panel = packed.get() + first * depth;
    if (count == TURNED) tile<T, TURNED, VECTORS, ADDS>(w, depth, depth, panel, sums, wide);
    else tile<T, 1, VECTORS, ADDS>(w, depth, depth, panel, sums, wide);
  }
};

}  // namespace plait
