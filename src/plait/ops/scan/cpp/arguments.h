// What Python hands over: sizes and addresses.

#pragma once

#include <cstdint>

namespace plait {

enum Cell : int64_t { ELMAN, LSTM, GRU };
enum Nonlinearity : int64_t { TANH, RELU, MODRELU, IDENTITY };
enum Rounding : int64_t { NONE, BFLOAT16, FLOAT16 };

struct Sizes {
  int64_t steps, rows, size, window, width, every, cell, nonlinearity, rounding;
  double mix;
  int64_t gates() const { return cell == LSTM ? 4 : cell == GRU ? 3 : 1; }
};

// Tensors come contiguous; null is absent. `ForwardTensors` and `BackwardTensors` are written from the list in
// scan/contract.py when the library is built, under the names of its function `named`.
#include "tensors.h"

}  // namespace plait
