// Sums over many rows of one vector times another, which is what the gradient of a weight is.

#pragma once

#include "products.h"

namespace plait {

// Rows at a time: their part of `right` stays in the first-level cache while all of `left` passes.
constexpr int64_t OUTER_ROWS = 128;

// COUNT columns of left (rows, m) times right (rows, n), to as many rows of out (m, n)
template <class T, int COUNT, bool ADDS>
void outer_tile(const T* left, int64_t m, const T* right, int64_t n, int64_t rows, int64_t column, T* out) {
  if (column + PANEL<T> <= n) return tile<T, COUNT, TILE_VECTORS, ADDS>(left, 1, rows, right + column, out + column, n, m, n);
  for (; column < n; column += LANES<T>) tile<T, COUNT, 1, ADDS>(left, 1, rows, right + column, out + column, n, m, n);
}

template <class T, int COUNT>
void outer_tile(const T* left, int64_t m, const T* right, int64_t n, int64_t rows, int64_t column, T* out, bool adds) {
  adds ? outer_tile<T, COUNT, true>(left, m, right, n, rows, column, out)
       : outer_tile<T, COUNT, false>(left, m, right, n, rows, column, out);
}

// out (m, n) = leftᵀ right, n in whole vectors. Each number is one sum in the order of the rows, for any number of
// threads.
template <class T>
void outer_product(const T* left, int64_t m, const T* right, int64_t n, int64_t rows, T* out) {
  const int64_t tiles = (m + TILE_ROWS - 1) / TILE_ROWS;
  parallel_for(tiles, 1 + (1 << 16) / (TILE_ROWS * n * rows + 1), [&](int64_t first, int64_t last) {
    for (int64_t row = 0; row < rows; row += OUTER_ROWS)
      for (int64_t column = 0; column < n; column += PANEL<T>)
        for (int64_t c = first * TILE_ROWS; c < std::min(m, last * TILE_ROWS);) {
          const int64_t some = std::min(OUTER_ROWS, rows - row);
          const T *from = left + row * m + c, *with = right + row * n;
          if (column == 0)
            for (int64_t r = OUTER_ROWS; r < std::min(2 * OUTER_ROWS, rows - row); ++r) __builtin_prefetch(from + r * m, 0, 2);
          if (c + TILE_ROWS <= m) outer_tile<T, TILE_ROWS>(from, m, with, n, some, column, out + c * n, row > 0), c += TILE_ROWS;
          else outer_tile<T, 1>(from, m, with, n, some, column, out + c * n, row > 0), c += 1;
        }
  });
}

}  // namespace plait
