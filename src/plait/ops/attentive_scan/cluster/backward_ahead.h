// What a block of the reverse walk finds where in its memory, and what it asks for ahead of time: everything from far
// away is on its way for two steps before it is used.

#pragma once

#include "backward_cells.h"

namespace plait {

template <class S>
struct BackAhead : BackLayout<S> {
  using L = BackLayout<S>;
  using Layer = typename S::Layer;
  using L::EACH, L::GATHERED, L::GATES, L::H, L::HELD, L::INPUTS, L::KINDS, L::R, L::SLOTS, L::WARPS, L::WIDTH;
  static constexpr int ROUNDS = ceil_div(R * INPUTS, 32), OF_FOUR = 4 * sizeof(Layer);

  const BackwardArguments& a;
  const int warp, lane, rank, first, rows;  // first: row of the cluster; rows: how many of its R exist
  const int own;                            // the first of this warp's features
  float *const sm, *const here, *at[EACH];  // of the block, of the warp, and there of this lane's slots
  const char* coming[ROUNDS];               // what this lane asks for next, of a step's inputs
  int64_t each_step[ROUNDS];
  const int64_t of_state;                   // from a state's products to the next one's
  const float* const products;              // of id 0, this lane's kind
  int ring;                                 // of three, where the inputs of this step lie
  int slot[R], slot_before[R];              // where h_t lies, and h_{t-1}

  MEMBER BackAhead(const BackwardArguments& arguments, float* memory)
      : a(arguments), warp(thread_index() / 32), lane(thread_index() % 32), rank(block_rank()), first(cluster_index() * R),
        rows(a.rows - first < R ? a.rows - first : R), own(rank * L::F + warp * 4), sm(memory),
        here(memory + 32 + warp * L::OF_WARP), of_state((int64_t)a.rows * WIDTH), products(product_of(0, 0, lane)), ring(0) {
#pragma unroll
    for (int i = 0; i < EACH; i++) at[i] = here + (in(i) ? lane + 32 * i : SLOTS - 1) * 4;
  }
  MEMBER bool in(int i) const { return SLOTS % 32 == 0 || lane + 32 * i < SLOTS; }  // a lane beyond reads the last slot
  MEMBER bool beyond(int r) const { return R > 1 && r >= rows; }  // a row that the batch has not
  MEMBER int64_t row(int t, int r) const { return (int64_t)t * a.rows + first + r; }
  MEMBER const Layer* layer(const void* p) const { return static_cast<const Layer*>(p); }

  // ---- where things lie: of a warp, the first two from a lane's slot on or with a slot's offset
  static MEMBER constexpr int record(int r, int kind) { return L::RECORDS + (r * HELD + kind) * SLOTS * 4; }
  static MEMBER constexpr int gathered(int r, int kind) { return L::GATHERS + (r * GATHERED + kind) * SLOTS * 4; }
  static MEMBER constexpr int factor(int r) { return L::FACTOR + r * L::FACTORS * 4; }
  static MEMBER constexpr int stash(int r, int kind) { return L::STASH + (r * L::STASHED + kind) * 4; }
  static MEMBER constexpr int staged(int t, int r) { return L::STAGED + ((t & 1) * R + r) * HELD * 4; }
  MEMBER float* input(int of, int r, int chunk) const { return here + L::INPUT + ((of * R + r) * INPUTS + chunk) * 4; }
  static MEMBER int next(int ring) { return ring == 2 ? 0 : ring + 1; }
  // of the block
  MEMBER float* shares(int t, int r) const { return sm + L::SHARE + ((t & 3) * R + r) * SLOTS; }
  MEMBER int* ids(int t, int r) const { return reinterpret_cast<int*>(sm + L::IDS) + ((t & 7) * R + r) * SLOTS; }
  MEMBER int held(int t, int r, int x) const { return ids(t, r)[x] >> PLACE_BITS; }
  static MEMBER int place(int id) { return id & ((1 << PLACE_BITS) - 1); }
  // the slot that h_t was written to
  MEMBER int slot_of(int t, int r) const {
    int found = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      const uint32_t here = vote(in(i) && held(t, r, in(i) ? lane + 32 * i : 0) == SLOTS + t);
      if (here) found = first_bit(here) + 32 * i;
    }
    return found;
  }
  // chunk `kind` of state `id`: P by kind, then h itself
  MEMBER const float* product_of(int id, int r, int kind) const {
    return a.products + (id * (int64_t)a.rows + first + r) * WIDTH + kind * H + own;
  }
  MEMBER const Layer* state_of(int id, int r) const {
    return id < SLOTS ? layer(a.slots) + ((int64_t)(first + r) * SLOTS + id) * H + own
                      : layer(a.output) + row(id - SLOTS, r) * H + own;
  }
  // the lane's slots with what they held at step t
  MEMBER void refill(int t, int r, int i) {
    const int id = held(t, r, in(i) ? lane + 32 * i : 0);
    if (!in(i)) return;
    for (int kind = 0; kind < KINDS; kind++) store4(at[i] + record(r, kind), id < 0 ? nothing() : load4(product_of(id, r, kind)));
    if constexpr (L::DIRECT)
      for (int f = 0; f < 4; f++) reinterpret_cast<Layer*>(at[i] + record(r, KINDS))[f] = id < 0 ? Layer{} : state_of(id, r)[f];
  }

  // ---- ahead of time
  // A lane asks for the same chunk of the same row at every step: the gates, what was before, the query, dL/doutput.
  MEMBER void begin_inputs(int t) {
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
      const int n = lane + 32 * i, r = n / INPUTS, chunk = n % INPUTS;
      const int64_t at_row = row(t, r < rows ? r : 0);
      const bool gate = S::CELL == ELMAN ? chunk == 0 && a.gates : chunk < 4;
      const void* from = gate ? a.gates : chunk == GATES + 1 ? a.d_output : S::CELL == ELMAN ? a.output : S::CELL == LSTM ? a.cells : a.asked;
      const int64_t width = gate && S::CELL != ELMAN ? 4 * H : H, skipped = gate ? chunk * H + own : own;
      if (chunk == GATES) {
        coming[i] = reinterpret_cast<const char*>(a.queries + at_row * H + own), each_step[i] = (int64_t)a.rows * H * 4;
      } else {
        coming[i] = from ? reinterpret_cast<const char*>(layer(from) + at_row * width + skipped) : nullptr;
        each_step[i] = a.rows * width * (int64_t)sizeof(Layer);
      }
    }
  }
  MEMBER void ask_inputs(int t, int to) {
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
      const int n = lane + 32 * i;
      const bool there = coming[i] != nullptr;
      const void* from = there ? coming[i] : reinterpret_cast<const char*>(a.queries);
      float* into = here + L::INPUT + to * R * INPUTS * 4 + n * 4;
      if (n < rows * INPUTS) {
        if (OF_FOUR == 16 || n % INPUTS == GATES) copy_async<16>(into, from, there);
        else copy_async<OF_FOUR>(into, from, there);
      }
      if (there) coming[i] -= each_step[i];
    }
    ask_slots(shares(t, 0), a.weights, t);
  }
  // a number of every slot of step t; a warp asks for a row
  MEMBER void ask_slots(void* into, const void* from, int t) {
#pragma unroll
    for (int round = 0; round < L::SLOT_ROUNDS; round++) {
      const int r = round * WARPS + warp;
      if (r >= rows) continue;
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int x = lane + 32 * i;
        if (in(i)) copy_async<4>(static_cast<float*>(into) + r * SLOTS + x, static_cast<const float*>(from) + row(t, r) * SLOTS + x, true);
      }
    }
  }
  // for a step two steps on, and for the one before it the state that comes back where h_{t-1} lies
  MEMBER void ask(int t) {
    if (t >= 2) ask_inputs(t - 2, ring == 0 ? 2 : ring - 1);
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (beyond(r) || t < 1) continue;
      slot_before[r] = slot_of(t - 1, r);
      if (t < 2) continue;
      const int id = held(t - 2, r, slot_before[r]);
      if (lane < KINDS)
        copy_async<16>(here + staged(t - 1, r) + lane * 4, products + (id < 0 ? 0 : id) * of_state + r * WIDTH, id >= 0);
      if (L::DIRECT && lane == KINDS) copy_async<OF_FOUR>(here + staged(t - 1, r) + lane * 4, state_of(id < 0 ? 0 : id, r), id >= 0);
    }
    if (t >= 4) ask_slots(ids(t - 4, 0), a.ids, t - 4);
    copies_group();
  }
};

}  // namespace plait
