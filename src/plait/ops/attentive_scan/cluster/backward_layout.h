// Distribution of the data over a cluster that walks back through time, and its layout in shared memory (in floats).
//
// Block `rank` owns F features, and of these warp w the four from 4 w on, with all their rows of M = [V; W_a; U_a]
// (G blocks of V, then W_a, then U_a: `kinds`). A lane handles a slot (two, with more than 32) in sums over features,
// and columns of M in the products. So every sum over a slot's features or over the rows of M begins in registers, and
// only two sums a step leave the warp: the slots' scores and the products. Four more warps (AHEAD) prefetch for the
// others.
//
// Values of a feature are stored for all four of a warp in one chunk of 16 bytes, the chunks of a kind contiguous over
// slots, so that lanes read them without bank conflicts.

#pragma once

#include "shape.h"

namespace plait {

template <class S>
struct BackLayout {
  static constexpr int CELL = S::CELL, H = S::HIDDEN, C = S::CLUSTER, R = S::ROWS, SLOTS = S::SLOTS, G = gates_of(CELL);
  static constexpr int F = H / C, WARPS = F / 4, AHEAD = 4, THREADS = (WARPS + AHEAD) * 32;
  static constexpr int KINDS = G + 2, WIDTH = KINDS * H;   // of M, and of a row of `products`
  static constexpr int COLUMNS = H / 32;                   // of M, a lane
  static constexpr bool IN_FOURS = COLUMNS % 4 == 0;       // a lane's columns are neighbours by the four
  static constexpr int EACH = ceil_div(SLOTS, 32);         // slots a lane
  static constexpr bool DIRECT = CELL == GRU;              // part of the gradient of s_{t-1} bypasses the products
  static constexpr bool LIMITED = S::LIMITED;              // dL/ds_t is, so it comes before the scores: `backward_limited.h`
  // blocks of H that a step writes contiguously: dL/dz, of a GRU dL/d(V_n s), dL/dq
  static constexpr int BESIDE = G + DIRECT + 1;
  // and numbers of a row of dL/dk: with a learned relevance followed by dL/d(g'h), then space for `usage.h`
  static constexpr int KEYED = H + (S::LEARNED ? 4 : 0);
  static constexpr int REGISTER_KINDS = KINDS - S::SHARED_KINDS;  // the rest of M lies in shared memory
  static constexpr int SCORE_ROUNDS = ceil_div(R * C, WARPS), PRODUCT_ROUNDS = ceil_div(R * COLUMNS, WARPS);  // of sending
  // Registers are allocated to groups of four warps: the prefetching warps release those they do not need. A quarter of
  // a multiprocessor has 512 for each lane.
  static constexpr bool DEAL = WARPS % 4 == 0 && WARPS + AHEAD > 8;
  static constexpr int EACH_WARP = 512 / (WARPS / 4 + 1) / 8 * 8, OF_AHEAD = 72;
  static constexpr int REGISTERS = (EACH_WARP * (WARPS / 4 + 1) - OF_AHEAD) / (WARPS < 4 ? 1 : WARPS / 4) / 8 * 8;
  // In the cell a lane is one feature of one row, lane = group * 4 + feature; of the 8 groups a row has 8 / TOGETHER.
  static constexpr int TOGETHER = R <= 1 ? 1 : R <= 2 ? 2 : R <= 4 ? 4 : 8, OF_ROW = 3 - log2_of(TOGETHER);
  // In the scores a lane is a feature of the slots group, group + 8 ...
  static constexpr int EIGHTH = ceil_div(SLOTS, 8);
  static_assert(H % 32 == 0 && F % 4 == 0 && F * C == H && SLOTS <= 64 && R <= 8);
  static_assert(S::SHARED_KINDS == 0 || IN_FOURS);

  // chunks of a slot: P_j by kind (the last is its key), for a GRU h_j; where dL/ds_t comes first its key and h_j alone; and
  // what has been gathered for its key and for h_j
  static constexpr bool STATES = DIRECT || LIMITED;
  static constexpr int FIRST = LIMITED ? KINDS - 1 : 0, KEY = KINDS - 1 - FIRST, HELD = KEY + 1 + STATES, GATHERED = 2;
  // chunks that come in at a step: its gates and c_{t-1} or s_{t-1} (of an Elman cell h before the nudge), q, dL/dh
  static constexpr int GATES = CELL == ELMAN ? 1 : 5, INPUTS = GATES + 2;
  // chunks of what the cell multiplies dL/dh by
  static constexpr int FACTORS = CELL == LSTM ? 6 : CELL == GRU ? 5 : 1;
  // chunks that a step passes to the one before: dL/d(V s), dL/dq, the direct gradient of s, dL/ds_t, dL/dc
  static constexpr int STASHED = G + 3 + (CELL == LSTM);

  // Per warp, from its own offset. A row's slots are contiguous; loads from global memory go to rings. Data of the cell
  // are ordered by rows, so that its lanes read contiguous addresses.
  static constexpr int RECORDS = 0;                                    // R, HELD, SLOTS
  static constexpr int GATHERS = RECORDS + R * HELD * SLOTS * 4;       // R, GATHERED, SLOTS
  static constexpr int STAGED = GATHERS + R * GATHERED * SLOTS * 4;    // 2, R, HELD
  static constexpr int INPUT = STAGED + 2 * R * HELD * 4;              // 3, R, INPUTS
  static constexpr int FACTOR = INPUT + 3 * R * INPUTS * 4;            // FACTORS, R
  static constexpr int STASH = FACTOR + R * FACTORS * 4;               // 2, STASHED, R
  static constexpr int WEIGHTS = STASH + 2 * R * STASHED * 4;          // SHARED_KINDS, 4, COLUMNS, a lane
  static constexpr int OF_WARP = WEIGHTS + S::SHARED_KINDS * 4 * COLUMNS * 32;
  // Of the block
  static constexpr int PRODUCTS = 2 + LIMITED;
  static constexpr int STATE_BYTES = C * F * (LIMITED ? 4 : 8), SCORE_BYTES = C * (SLOTS * 4 + LIMITED * F * 8);  // a row
  static constexpr int PRODUCT = 32 + WARPS * OF_WARP;                 // WARPS, R, PRODUCTS, H; first 128 bytes of barriers
  static constexpr int STATES_IN = PRODUCT + WARPS * R * PRODUCTS * H; // C, WARPS, R, 4, 2
  static constexpr int FIRST_IN = STATES_IN + C * R * F * 2;           // where dL/ds_t comes first: C, WARPS, R, 4
  static constexpr int SCORE = FIRST_IN + LIMITED * C * R * F;         // WARPS, R, SLOTS
  static constexpr int SCORES_IN = SCORE + WARPS * R * SLOTS;          // C, R, SLOTS
  static constexpr int SHARE = SCORES_IN + C * R * SLOTS;              // 4, R, SLOTS
  static constexpr int IDS = SHARE + 4 * R * SLOTS;                    // 8, R, SLOTS
  static constexpr int SLOT = IDS + 8 * R * SLOTS;                     // 4, R
  static constexpr int FLOATS = SLOT + 4 * R;
  static_assert(FLOATS * 4 == S::SHARED_BYTES, "Python's count differs");
};

// Four numbers, of a warp's four features
DEVICE float4 operator+(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }
DEVICE float4 operator*(float4 a, float4 b) { return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w}; }
DEVICE float4 operator*(float a, float4 b) { return {a * b.x, a * b.y, a * b.z, a * b.w}; }
DEVICE float4 mad(float a, float4 b, float4 c) {
  return {mad(a, b.x, c.x), mad(a, b.y, c.y), mad(a, b.z, c.z), mad(a, b.w, c.w)};
}
DEVICE float4 mad(float4 a, float4 b, float4 c) {
  return {mad(a.x, b.x, c.x), mad(a.y, b.y, c.y), mad(a.z, b.z, c.z), mad(a.w, b.w, c.w)};
}
DEVICE float4 shuffle(float4 v, int lane) {
  return {shuffle(v.x, lane), shuffle(v.y, lane), shuffle(v.z, lane), shuffle(v.w, lane)};
}
DEVICE float4 nothing() { return {0.0f, 0.0f, 0.0f, 0.0f}; }

// Four numbers in the layer's type, in any memory
DEVICE float4 widened4(const float* p) { return load4(p); }
DEVICE float4 widened4(const bfloat16* p) { return {widened(p[0]), widened(p[1]), widened(p[2]), widened(p[3])}; }

}  // namespace plait
