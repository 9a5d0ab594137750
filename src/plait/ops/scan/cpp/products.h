// Products of a few rows with a packed matrix.

#pragma once

#include <vector>

#include "parallel.h"
#include "vectors.h"

namespace plait {

// A tile of 6 rows by 4 vectors (2 where there are 16 registers) keeps its sums in registers.
constexpr int64_t TILE_ROWS = 6;
constexpr int64_t TILE_VECTORS = sizeof(Vec<float>) == 64 ? 4 : 2;
template <class T>
constexpr int64_t PANEL = LANES<T> * TILE_VECTORS;

// A depth x columns matrix cut into panels of PANEL columns, each stored row after row, zero-padded.
template <class T>
struct Packed {
  int64_t depth, columns;
  std::vector<T> data;

  Packed(int64_t depth, int64_t columns)
      : depth(depth), columns(round_up(columns, PANEL<T>)), data(depth * this->columns, T(0)) {}

  T* at(int64_t k, int64_t column) {
    return data.data() + (column / PANEL<T> * depth + k) * PANEL<T> + column % PANEL<T>;
  }
  // An n x n block at (k0, column0): entry (k, column) is source[k * row_stride + column * column_stride].
  void fill(const T* source, int64_t k0, int64_t column0, int64_t n, int64_t row_stride, int64_t column_stride) {
    // a vector of columns at a time, so that each cache line of a transposed matrix is read once
    parallel_for((n + LANES<T> - 1) / LANES<T>, 1 + 4096 / n, [&](int64_t first, int64_t last) {
      for (int64_t column = first * LANES<T>; column < std::min(n, last * LANES<T>); column += LANES<T>) {
        T* to = at(k0, column0 + column);
        const T* from = source + column * column_stride;
        const int64_t count = std::min(LANES<T>, n - column);
        for (int64_t k = 0; k < n; ++k, to += PANEL<T>, from += row_stride)
          for (int64_t c = 0; c < count; ++c) to[c] = from[c * column_stride];
      }
    });
  }
};

// out[r, :] = x[r, :] times a panel VECTORS wide; with ADDS, this is added to it. `x_step` and `panel_step` are the
// strides of x and of the panel's rows.
template <class T, int ROWS, int VECTORS = TILE_VECTORS, bool ADDS = false>
void tile(const T* x, int64_t x_stride, int64_t depth, const T* panel, T* out, int64_t out_stride, int64_t x_step = 1,
          int64_t panel_step = VECTORS * LANES<T>) {
  Vec<T> sum[ROWS][VECTORS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < VECTORS; ++c) sum[r][c] = ADDS ? load(out + r * out_stride + c * LANES<T>) : Vec<T>(T(0));
  for (int64_t k = 0; k < depth; ++k, x += x_step, panel += panel_step) {
    Vec<T> w[VECTORS];
#pragma GCC unroll 4
    for (int c = 0; c < VECTORS; ++c) w[c] = Vec<T>::loadu(panel + c * LANES<T>);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const Vec<T> factor(x[r * x_stride]);
#pragma GCC unroll 4
      for (int c = 0; c < VECTORS; ++c) sum[r][c] = at::vec::fmadd(factor, w[c], sum[r][c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < VECTORS; ++c) sum[r][c].store(out + r * out_stride + c * LANES<T>);
}

// Memory that is read soon, prefetched in small pieces during a product.
class Ahead {
 public:
  void read(const void* from, int64_t bytes) {
    if (from) pieces.push_back({static_cast<const char*>(from), bytes});
  }
  void fetch(int64_t part, int64_t parts) {
    for (const auto& [from, bytes] : pieces)
      for (int64_t i = bytes * part / parts / 64 * 64; i < bytes * (part + 1) / parts; i += 64) __builtin_prefetch(from + i, 0, 2);
    if (part + 1 == parts) pieces.clear();
  }

 private:
  std::vector<std::pair<const char*, int64_t>> pieces;
};

// out[r, :] = x[r, :] times the packed matrix, for `rows` rows
template <class T>
void product(const T* x, int64_t x_stride, int64_t rows, const Packed<T>& w, T* out, int64_t out_stride, Ahead* ahead = nullptr) {
  for (int64_t column = 0; column < w.columns; column += PANEL<T>) {
    if (ahead) ahead->fetch(column / PANEL<T>, w.columns / PANEL<T>);
    const T* panel = w.data.data() + column * w.depth;
    for (int64_t r = 0, tiles = (rows + TILE_ROWS - 1) / TILE_ROWS; r < rows; --tiles) {
      const int64_t count = (rows - r + tiles - 1) / tiles;
      const T* from = x + r * x_stride;
      T* to = out + r * out_stride + column;
      switch (count) {
        case 1: tile<T, 1>(from, x_stride, w.depth, panel, to, out_stride); break;
        case 2: tile<T, 2>(from, x_stride, w.depth, panel, to, out_stride); break;
        case 3: tile<T, 3>(from, x_stride, w.depth, panel, to, out_stride); break;
        case 4: tile<T, 4>(from, x_stride, w.depth, panel, to, out_stride); break;
        case 5: tile<T, 5>(from, x_stride, w.depth, panel, to, out_stride); break;
        default: tile<T, 6>(from, x_stride, w.depth, panel, to, out_stride); break;
      }
      r += count;
    }
  }
}

}  // namespace plait
