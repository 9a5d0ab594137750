// A batch cut into blocks of rows, one task each.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "parallel.h"

namespace plait {

template <class T>
std::vector<T> padded_row(const void* tensor, int64_t size, int64_t lane) {
  std::vector<T> row(lane, T(0));
  if (tensor) std::copy_n(static_cast<const T*>(tensor), size, row.data());
  return row;
}

// `count` rows of features in whole vectors: in place if they are, else copied to `room`, padded with zeros
template <class T>
const T* whole(const T* from, int64_t count, int64_t size, int64_t lane, std::vector<T>& room) {
  if (lane == size) return from;
  for (int64_t i = 0; i < count; ++i) std::copy_n(from + i * size, size, room.data() + i * lane);
  return room.data();
}

template <class F>
void over_blocks(int64_t rows, int64_t blocks, const F& f) {
  parallel_for(blocks, 1, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) f(block, rows * block / blocks, rows * (block + 1) / blocks);
  });
}

}  // namespace plait
