// The control warps of the forward walk: softmax, credit, and which state is kept. One lane per slot; computed
// identically in every block of a cluster, so that nothing is exchanged.

#pragma once

#include "forward_layout.h"

namespace plait {

template <class K>
struct Control {
  static constexpr int C = K::C, R = K::R, SLOTS = K::SLOTS, WINDOW = K::WINDOW;

  const ForwardArguments& a;
  float* const sm;
  const int warp, lane, rank, first_row;
  const uint32_t mbarriers;
  const bool in;
  bool shifted;
  float credit[K::RC], weight[K::RC], score[K::RC], noise[K::RC], noise_then[K::RC];
  int birth[K::RC], held[K::RC], place[K::RC], newest[K::RC], steps[K::RC], turn[K::RC];
  int from[K::RC], left[K::RC], rival[K::RC];  // lanes of the state that leaves the ring and of the least relevant kept one; birth of the former
  uint32_t least[K::RC];
  bool cut[K::RC];

  MEMBER Control(const ForwardArguments& a_, float* sm_, int warp_, int lane_, int rank_, int first_row_)
      : a(a_), sm(sm_), warp(warp_), lane(lane_), rank(rank_), first_row(first_row_),
        mbarriers(shared_address(sm_)), in(lane_ < SLOTS) {}

  MEMBER int row_of(int i) const { return i * K::NCW + warp; }
  MEMBER int batch_row(int i) const {  // a row beyond the batch repeats the last one
    const int b = first_row + row_of(i);
    return b < a.rows ? b : a.rows - 1;
  }
  MEMBER int* ints(int at) const { return reinterpret_cast<int*>(sm) + at; }

  // |e| <= sum |v|: while that is moderate, exp needs no subtraction of the maximum. e^30 times the number of slots
  // leaves room for products with any state whose square is finite.
  MEMBER void prepare() {
    using Layer = typename K::Layer;
    const Layer* energy = static_cast<const Layer*>(a.energy);
    float bound = 0.0f;
    for (int f = lane; f < K::H; f += 32) {
      const float v = widened(energy[f]);
      bound += v < 0.0f ? -v : v;
    }
#pragma unroll
    for (int m = 16; m; m >>= 1) bound += shuffle_xor(bound, m);
    shifted = K::LEARNED || !(bound < 30.0f);
#pragma unroll
    for (int i = 0; i < K::RC; i++) {
      if (row_of(i) >= R) continue;
      const int b = batch_row(i);
      const int64_t at = (int64_t)b * SLOTS + (in ? lane : 0);
      birth[i] = in && a.born ? (int)a.born[at] : -1;  // without a state every slot is empty
      credit[i] = birth[i] >= 0 ? a.relevance[at] : 0.0f;
      held[i] = birth[i] >= 0 ? lane : -1;
      place[i] = lane, newest[i] = 0, weight[i] = 0.0f, score[i] = credit[i], noise[i] = noise_then[i] = 0.0f, cut[i] = false;
      steps[i] = a.age ? (int)a.age[b] : 0, turn[i] = steps[i] % WINDOW;
      const uint32_t occupied = vote(birth[i] >= 0);
      if (lane == 0) *ints(K::OCCUPIED + row_of(i)) = (int)occupied;
      look_ahead(i, 0);
      seek(i);
    }
  }
  // loads of step t from global memory
  MEMBER void look_ahead(int i, int t) {
    if (t >= a.steps) return;
    const int64_t at = (int64_t)t * a.rows + batch_row(i);
    if constexpr (K::RESET) cut[i] = a.reset[at];
    if constexpr (K::LEARNED) noise[i] = a.noise ? a.noise[at] : 0.0f;
  }

  // alpha of step t - 1, not yet normalised, for the sums of step t
  MEMBER void publish(int t) {
    const int before = t - 1, parity = before & 1;
    if (t > 0) {
      const uint32_t arrived = mbarriers + 8 + 8 * parity;
      mbarrier_wait(arrived, before >> 1 & 1);
      if (warp == 0 && lane == 0) mbarrier_expect(arrived, K::E_BYTES);
    }
#pragma unroll
    for (int i = 0; i < K::RC; i++) {
      const int r = row_of(i);
      if (r >= R) continue;
      if (t > 0) weigh(i, sm + K::E_IN + (parity * C * R + r) * K::EROW);
      const bool reset = K::RESET && t < a.steps && cut[i];
      if (lane < K::PADDED)
        sm[K::ALPHAS + (r * 4 + lane / K::QUARTER) * K::AQ + lane % K::QUARTER] = reset || t == 0 ? 0.0f : weight[i];
      if (lane == 0) {
        if (t < 2) sm[K::FACTOR + r] = t == 0 ? 1.0f : a.mix;
        if constexpr (K::RESET) *ints(K::CUT + r) = reset;
      }
    }
  }
  MEMBER void weigh(int i, const float* from) {
    float e = from[in ? lane : 0];
#pragma unroll
    for (int c = 1; c < C; c++) e += from[c * R * K::EROW + (in ? lane : 0)];
    if constexpr (K::LEARNED) {
      float rated = from[SLOTS];
#pragma unroll
      for (int c = 1; c < C; c++) rated += from[c * R * K::EROW + SLOTS];
      if (lane == newest[i]) score[i] = rated, credit[i] = rated + noise_then[i];
      e += score[i];
    }
    const bool occupied = in && birth[i] >= 0;
    if (shifted) e -= unordered(warp_max(occupied ? ordered(e) : 0u));
    weight[i] = occupied ? ex2(e * LOG2E) : 0.0f;
  }

  // The end of step t - 1: its weights, and the relevance they add
  MEMBER float settle(int i) {
    float sum = weight[i];
#pragma unroll
    for (int m = 16; m; m >>= 1) sum += shuffle_xor(sum, m);
    const float share = divide(weight[i], sum);
    if (!K::LEARNED && place[i] < WINDOW) credit[i] += share;
    return share;
  }
  MEMBER void record(int i, int t, float share, int held_then, int place_then, int birth_then, float credit_then) {
    if (!in) return;
    const int64_t at = ((int64_t)t * a.rows + batch_row(i)) * SLOTS;
    if constexpr (K::WEIGHTS) a.weights[at + place_then] = share;
    if constexpr (K::SAVE) a.ids[at + lane] = held_then * (1 << PLACE_BITS) + place_then;
    if constexpr (K::TRACE) {
      a.trace_born[at + place_then] = birth_then;
      a.trace_relevance[at + place_then] = credit_then;
    }
  }
  // The write: an admitted state swaps logical slots with the one it replaces, whose physical slot h_t takes. The state
  // that leaves the ring and the one it would replace are known before the last weights, so they are searched while
  // other warps compute.
  MEMBER void seek(int i) {
    from[i] = first_bit(vote(in && place[i] == turn[i])), left[i] = shuffle(birth[i], from[i]);
    if constexpr (K::CAPACITY > 0) {
      const bool kept = in && place[i] >= WINDOW;
      int worst;
      if constexpr (K::EVERY > 0) {
        worst = WINDOW + (left[i] < 0 ? 0 : left[i]) / K::EVERY % K::CAPACITY;
      } else {
        const uint32_t worth = kept ? (birth[i] < 0 ? 0u : ordered(credit[i])) : 0xffffffffu;
        least[i] = warp_min(worth);
        worst = (int)warp_min(kept && worth == least[i] ? (uint32_t)place[i] : 64u);
      }
      rival[i] = first_bit(vote(kept && place[i] == worst));
    }
  }
  MEMBER void write(int i, int t) {
    if (K::RESET && cut[i]) {
      credit[i] = 0.0f, score[i] = 0.0f, birth[i] = -1, held[i] = -1, steps[i] = 0, turn[i] = 0;
      seek(i);
    }
    newest[i] = from[i];
    if constexpr (K::CAPACITY > 0) {
      bool admitted;
      if constexpr (K::EVERY > 0) admitted = left[i] >= 0 && left[i] % K::EVERY == 0;
      else admitted = left[i] >= 0 && ordered(shuffle(credit[i], from[i])) > least[i];
      if (admitted) {
        const int kept_place = shuffle(place[i], rival[i]);
        newest[i] = rival[i];
        place[i] = lane == from[i] ? kept_place : lane == rival[i] ? turn[i] : place[i];
      }
    }
    if (lane == 0) *ints(K::WHERE + (t & 1) * 8 + row_of(i)) = K::record(row_of(i), newest[i]);
    if (lane == newest[i]) credit[i] = 0.0f, score[i] = 0.0f, birth[i] = steps[i], held[i] = SLOTS + t;
    noise_then[i] = noise[i];
    steps[i]++, turn[i] = turn[i] + 1 == WINDOW ? 0 : turn[i] + 1;
  }
  MEMBER void send_energies(int i, int t) {
    const int r = row_of(i);
    float fresh = 0.0f, rated = 0.0f;
#pragma unroll
    for (int k = 0; k < K::KW; k += 4) {
      const float4 x = load4(sm + K::E_NEW + r * K::PK_ROW + k);
      fresh += (x.x + x.y) + (x.z + x.w);
    }
    if constexpr (K::LEARNED) {
#pragma unroll
      for (int k = 0; k < K::SCORES; k++) rated += sm[K::SCORE + r * K::SCORES + k];
    }
    constexpr int PIECES = K::EROW / 4;
    const uint32_t arrived = mbarriers + 8 + 8 * (t & 1);
#pragma unroll
    for (int n = lane; n < ceil_div(PIECES * C, 32) * 32; n += 32) {
      const int piece = n % PIECES, to = n / PIECES;
      float4 e = load4(sm + K::E_OLD + r * K::EROW + piece * 4);
      const int at = newest[i] - piece * 4, last = SLOTS - piece * 4;
      e.x = at == 0 ? fresh : K::LEARNED && last == 0 ? rated : e.x;
      e.y = at == 1 ? fresh : K::LEARNED && last == 1 ? rated : e.y;
      e.z = at == 2 ? fresh : K::LEARNED && last == 2 ? rated : e.z;
      e.w = at == 3 ? fresh : K::LEARNED && last == 3 ? rated : e.w;
      if (to < C)
        send4(shared_address(sm + K::E_IN + (((t & 1) * C + rank) * R + r) * K::EROW + piece * 4), e, arrived, to);
    }
  }
  MEMBER void finish(int i) {
    const int r = row_of(i), b = batch_row(i);
    if (in) *ints(K::PLACES + r * K::PADDED + lane) = place[i];
    if (rank) return;
    if (in) {
      a.relevance_out[(int64_t)b * SLOTS + place[i]] = credit[i];
      a.born_out[(int64_t)b * SLOTS + place[i]] = birth[i];
    }
    if (lane == 0) a.age_out[b] = steps[i];
  }

  MEMBER void walk() {
    for (int t = 0; t <= a.steps; t++) {
      publish(t);
      barrier_arrive(ALPHA, K::MEET);
      float share[K::RC], credit_then[K::RC];
      int held_then[K::RC], place_then[K::RC], birth_then[K::RC];
#pragma unroll
      for (int i = 0; i < K::RC; i++) {
        if (row_of(i) >= R) continue;
        share[i] = t > 0 ? settle(i) : 0.0f;
        held_then[i] = held[i], place_then[i] = place[i], birth_then[i] = birth[i], credit_then[i] = credit[i];
        if (t < a.steps) write(i, t);
        else finish(i);
      }
      barrier_arrive(PLACED, K::MEET);
#pragma unroll
      for (int i = 0; i < K::RC; i++) {
        if (row_of(i) >= R) continue;
        if (t > 0 && rank == (t & (C - 1))) record(i, t - 1, share[i], held_then[i], place_then[i], birth_then[i], credit_then[i]);
        if (t < a.steps) look_ahead(i, t + 1), seek(i);
      }
      if (t == a.steps) break;
      barrier_sync(ENERGIES, K::MEET);
#pragma unroll
      for (int i = 0; i < K::RC; i++)
        if (row_of(i) < R) send_energies(i, t);
    }
  }
};

}  // namespace plait
