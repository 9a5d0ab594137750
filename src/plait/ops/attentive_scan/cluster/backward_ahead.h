// Addresses within a block of the reverse walk, and its prefetching warps: they load everything from global memory two
// steps before it is used, find the slot each state was written to, and compute the factors of dL/dh from a step's
// gates.

#pragma once

#include "backward_cells.h"

namespace plait {

template <class S>
struct BackPlaces : BackLayout<S> {
  using L = BackLayout<S>;
  using Layer = typename S::Layer;
  using L::GATHERED, L::H, L::HELD, L::INPUTS, L::KINDS, L::R, L::SLOTS, L::WIDTH;

  const BackwardArguments& a;
  const int lane, rank, first, rows;  // first: row of the cluster; rows: how many of its R exist
  float* const sm;
  int ring;                           // index in the ring of three of this step's inputs

  MEMBER BackPlaces(const BackwardArguments& arguments, float* memory)
      : a(arguments), lane(thread_index() % 32), rank(block_rank()), first(cluster_index() * R),
        rows(a.rows - first < R ? a.rows - first : R), sm(memory), ring(0) {}

  MEMBER bool there(int r) const { return R == 1 || r < rows; }  // a cluster may have more rows than the batch
  MEMBER int64_t row(int t, int r) const { return (int64_t)t * a.rows + first + r; }
  MEMBER const Layer* layer(const void* p) const { return static_cast<const Layer*>(p); }
  MEMBER float* of_warp(int warp) const { return sm + 32 + warp * L::OF_WARP; }
  // of a warp: the first two from a lane's slot on or with a slot's offset
  static MEMBER constexpr int record(int r, int kind) { return L::RECORDS + (r * HELD + kind) * SLOTS * 4; }
  static MEMBER constexpr int gathered(int r, int kind) { return L::GATHERS + (r * GATHERED + kind) * SLOTS * 4; }
  static MEMBER constexpr int factor(int r, int kind) { return L::FACTOR + (kind * R + r) * 4; }
  static MEMBER constexpr int stash(int r, int kind) { return L::STASH + (kind * R + r) * 4; }
  static MEMBER constexpr int staged(int t, int r) { return L::STAGED + ((t & 1) * R + r) * HELD * 4; }
  static MEMBER constexpr int input(int ring, int r, int chunk) { return L::INPUT + ((ring * R + r) * INPUTS + chunk) * 4; }
  // of the block
  MEMBER float* shares(int t) const { return sm + L::SHARE + (t & 3) * R * SLOTS; }
  MEMBER int* ids(int t) const { return reinterpret_cast<int*>(sm + L::IDS) + (t & 7) * R * SLOTS; }
  MEMBER int& slot_of(int t, int r) const { return reinterpret_cast<int*>(sm + L::SLOT)[(t & 3) * R + r]; }
  static MEMBER int held(int id) { return id >> PLACE_BITS; }
  static MEMBER int place(int id) { return id & ((1 << PLACE_BITS) - 1); }
  static MEMBER int next(int ring) { return ring == 2 ? 0 : ring + 1; }
  // chunk `kind` of state `id` from feature `own` on: P by kind; and h itself
  MEMBER const float* product_of(int id, int r, int kind, int own) const {
    return a.products + (id * (int64_t)a.rows + first + r) * WIDTH + kind * H + own;
  }
  // the first of the two numbers that came from block c for a feature of a warp; and the one that came before these
  MEMBER float* state_in(int c, int warp, int r, int feature) const {
    return sm + L::STATES_IN + (((c * L::WARPS + warp) * R + r) * 4 + feature) * 2;
  }
  MEMBER float* first_in(int c, int warp, int r, int feature) const {
    return sm + L::FIRST_IN + ((c * L::WARPS + warp) * R + r) * 4 + feature;
  }
  MEMBER const Layer* state_of(int id, int r, int own) const {
    return id < SLOTS ? layer(a.slots) + ((int64_t)(first + r) * SLOTS + id) * H + own
                      : layer(a.output) + row(id - SLOTS, r) * H + own;
  }
};

template <class S>
struct BackAhead : BackPlaces<S> {
  using L = BackLayout<S>;
  using B = BackPlaces<S>;
  using Layer = typename S::Layer;
  using L::F, L::GATES, L::H, L::HELD, L::INPUTS, L::R, L::SLOTS, L::WARPS;
  using B::a, B::held, B::ids, B::lane, B::layer, B::next, B::of_warp, B::rank, B::ring, B::row, B::rows, B::slot_of, B::sm;
  static constexpr int MINE = L::AHEAD * 32, ROUNDS = ceil_div(R * INPUTS * WARPS, MINE), OF_FOUR = 4 * sizeof(Layer);

  const int warp, thread;
  const char* coming[ROUNDS];  // the next address that this thread loads of a step's inputs
  int64_t each_step[ROUNDS];

  MEMBER BackAhead(const BackwardArguments& arguments, float* memory)
      : B(arguments, memory), warp(thread_index() / 32 - WARPS), thread(thread_index() - WARPS * 32) {}

  // A thread loads the same chunk of the same row at every step: of the gates, the previous state, the query and
  // dL/doutput. Adjacent threads load adjacent features.
  MEMBER void begin_inputs(int t) {
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
      const int n = thread + MINE * i, r = n / (INPUTS * WARPS), chunk = n / WARPS % INPUTS, own = rank * F + n % WARPS * 4;
      const int64_t at = row(t, r < rows ? r : 0);
      const bool gate = S::CELL == ELMAN ? chunk == 0 && a.gates : chunk < 4;
      const void* before = S::CELL == ELMAN ? a.output : S::CELL == LSTM ? a.cells : a.prev_states;
      const void* from = gate ? a.gates : chunk == GATES + 1 ? a.d_output : before;
      const int64_t width = gate && S::CELL != ELMAN ? 4 * H : H, skipped = gate ? chunk * H + own : own;
      if (chunk == GATES) {
        coming[i] = reinterpret_cast<const char*>(a.queries + at * H + own), each_step[i] = (int64_t)a.rows * H * 4;
      } else {
        coming[i] = from ? reinterpret_cast<const char*>(layer(from) + at * width + skipped) : nullptr;
        each_step[i] = a.rows * width * (int64_t)sizeof(Layer);
      }
    }
  }
  MEMBER void ask_inputs(int t, int to) {
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
      const int n = thread + MINE * i, r = n / (INPUTS * WARPS), chunk = n / WARPS % INPUTS;
      const bool there = coming[i] != nullptr;
      const void* from = there ? coming[i] : reinterpret_cast<const char*>(a.queries);
      float* into = of_warp(n % WARPS) + L::INPUT + to * R * INPUTS * 4 + (r * INPUTS + chunk) * 4;
      if (r < rows) {
        if (OF_FOUR == 16 || chunk == GATES) copy_async<16>(into, from, there);
        else copy_async<OF_FOUR>(into, from, there);
      }
      if (there) coming[i] -= each_step[i];
    }
  }
  // loads for the step after next, and for the next one the state that returns to the slot of h_{t-1}; one warp per row
  MEMBER void ask(int t) {
    if (t >= 2) ask_inputs(t - 2, ring == 0 ? 2 : ring - 1);
    for (int r = warp; r < rows; r += L::AHEAD) {
      int slot = 0;
      for (int x = lane; t >= 1 && x < round_up_32(SLOTS); x += 32) {
        const uint32_t found = vote(x < SLOTS && held(ids(t - 1)[r * SLOTS + (x < SLOTS ? x : 0)]) == SLOTS + t - 1);
        if (found) slot = first_bit(found) + x - lane;
      }
      if (t >= 1 && lane == 0) slot_of(t - 1, r) = slot;
      for (int x = lane; x < SLOTS; x += 32) {
        if (t >= 2) copy_async<4>(B::shares(t - 2) + r * SLOTS + x, a.weights + row(t - 2, r) * SLOTS + x, true);
        if (t >= 4) copy_async<4>(ids(t - 4) + r * SLOTS + x, a.ids + row(t - 4, r) * SLOTS + x, true);
      }
      if (t < 2) continue;
      const int id = held(ids(t - 2)[r * SLOTS + slot]);
      for (int n = lane; n < HELD * WARPS; n += 32) {
        const int kind = n / WARPS, own = rank * F + n % WARPS * 4;
        float* into = of_warp(n % WARPS) + B::staged(t - 1, r) + kind * 4;
        if (kind <= L::KEY) copy_async<16>(into, B::product_of(id < 0 ? 0 : id, r, L::FIRST + kind, own), id >= 0);
        else copy_async<OF_FOUR>(into, B::state_of(id < 0 ? 0 : id, r, own), id >= 0);
      }
    }
    copies_group();
  }
  // factors of the cell at step t
  MEMBER void prepare_all() {
    for (int n = thread; n < rows * F; n += MINE) {
      const int r = n / F, f = n % F;
      float* here = of_warp(f / 4) + f % 4;
      float from[GATES], to[L::FACTORS];
#pragma unroll
      for (int k = 0; k < GATES; k++) from[k] = widened(reinterpret_cast<Layer*>(of_warp(f / 4) + B::input(ring, r, k))[f % 4]);
      prepare<S>(from, to);
#pragma unroll
      for (int k = 0; k < L::FACTORS; k++) here[B::factor(r, k)] = to[k];
    }
  }
  MEMBER void walk() {
    begin_inputs(a.steps - 1);
    ask_inputs(a.steps - 1, 0);
    for (int r = warp; r < rows; r += L::AHEAD)
      for (int x = lane; x < SLOTS; x += 32)
        copy_async<4>(B::shares(a.steps - 1) + r * SLOTS + x, a.weights + row(a.steps - 1, r) * SLOTS + x, true);
    copies_group();
    ring = 2;  // as it was one step on
    ask(a.steps);
    ring = 0;
    copies_wait<1>();
    for (int t = a.steps - 1; t >= 0; t--) {
      barrier_sync(0, L::THREADS);
      ask(t);
      prepare_all();
      copies_wait<1>();
      barrier_arrive(1, L::THREADS);
      ring = next(ring);
    }
  }
  static MEMBER constexpr int round_up_32(int n) { return (n + 31) / 32 * 32; }
};

}  // namespace plait
