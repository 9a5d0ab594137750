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

// Tensors come contiguous, in the order in which cpu.py (a bounded memory) and full_scan/cpu.py (a full one)
// list them; null is absent. First what both have.
struct ForwardTensors {
  const void *projected, *recurrent, *query, *key, *energy, *cell_bias, *hidden, *cell_state, *slots,
      *relevance;
  const int64_t *born, *age;
  const bool* reset;
  const void* nudge;
  void *output, *hidden_out, *cell_state_out, *slots_out, *relevance_out;
  int64_t *born_out, *age_out;
  void* weights;
  int64_t* trace_born;
  void *trace_relevance, *asked, *cells, *gates;
};

struct SlotForwardTensors : ForwardTensors {
  void *queries, *keys;
  int32_t* ids;
};

struct FullForwardTensors : ForwardTensors {
  void *contexts, *normalisers;
};

struct BackwardTensors {
  const void *recurrent, *query, *key, *energy;
  const void *queries, *asked, *cells, *gates;
  const bool* reset;
  const void *d_hidden, *d_cell_state, *d_slots;
  void *d_projected, *d_queries, *d_energy, *d_hidden_out, *d_cell_state_out;
  void *d_states, *d_keys, *d_initial_states, *d_initial_keys;
};

struct SlotBackwardTensors : BackwardTensors {
  const void *states, *keys, *initial_states, *initial_keys, *weights;
  const int32_t* ids;
};

struct FullBackwardTensors : BackwardTensors {
  const void* slots;
  const int64_t *born, *occupied_before;  // how many initial slots of the rows before are occupied
  const void *output, *normalisers, *d_output;
};

// The same for a scan without memory, in the order of `PlainInputs` and `PlainScanned`.
struct PlainForwardTensors {
  const void *projected, *recurrent, *candidate_bias, *modrelu_bias, *hidden, *cell_state;
  const bool* reset;
  const void* nudge;
  void *output, *hidden_out, *cell_state_out, *cells, *gates;
};

struct PlainBackwardTensors {
  const void *recurrent, *activated, *before, *cells;
  const bool* reset;
  const void *d_output, *d_hidden, *d_cell_state;
  void *d_projected, *d_hidden_out, *d_cell_state_out, *d_states;
};

}  // namespace plait
