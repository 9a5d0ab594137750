// Arguments from Python: sizes and addresses.

#pragma once

#include <cstdint>

namespace plait {

enum Cell : int64_t { ELMAN, LSTM, GRU };
enum Nonlinearity : int64_t { TANH, RELU, MODRELU, IDENTITY };
enum Rounding : int64_t { NONE, BFLOAT16, FLOAT16 };

struct Sizes {
  int64_t steps, rows, size, window, width, every, cell, nonlinearity, rounding, inputs;
  double mix;
  int64_t gates() const { return cell == LSTM ? 4 : cell == GRU ? 3 : 1; }
};

// Tensors come contiguous; null is absent. `ForwardTensors` and `BackwardTensors` are written from the list in
// scan/contract.py when the library is built, under the names of its function `named`.
#include "tensors.h"

// Additional arguments of a single step: it projects its input itself, and reads and writes keys (`MarkedKeys`).
struct StepTensors : ForwardTensors {
  const void *x, *input_weight, *input_bias, *known_keys;
  void* keys_out;
};

}  // namespace plait
