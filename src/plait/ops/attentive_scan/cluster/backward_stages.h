// The stages of a step back. Each reads for all rows before it writes: a compiler that cannot know what lies apart keeps
// reads behind writes, and the rows would wait for each other.

#pragma once

#include "backward_products.h"

namespace plait {

template <class S>
struct BackStages : BackProducts<S> {
  using L = BackLayout<S>;
  using B = BackPlaces<S>;
  using P = BackProducts<S>;
  using Layer = typename S::Layer;
  using L::C, L::COLUMNS, L::EACH, L::F, L::G, L::GATHERED, L::H, L::HELD, L::KINDS, L::R, L::SLOTS, L::THREADS, L::WARPS;
  using B::a, B::first, B::lane, B::rank, B::ring, B::rows, B::sm;
  using B::factor, B::gathered, B::held, B::ids, B::input, B::layer, B::place, B::record, B::row, B::stash, B::there;
  using P::here, P::multiply, P::own, P::put_product, P::scores_came, P::send_products, P::states_came, P::warp;

  float* at[EACH];                          // this lane's slots at the warp's place
  float4 bend[R][EACH], d_energy, v;  // bend: half of tanh(q + k), then dL/d(q + k)
  float share[R][EACH], d_score[R][EACH];
  int slot[R];                              // where h_t lies
  bool is_reset[R];
  float *left, *leave;                      // what the step after this left, and what this one leaves
  int64_t from_here;                        // where this warp's features of the first row lie in (T, B, H)

  MEMBER BackStages(const BackwardArguments& arguments, float* memory)
      : P(arguments, memory), left(here), leave(here + R * L::STASHED * 4) {
#pragma unroll
    for (int i = 0; i < EACH; i++) at[i] = here + (in(i) ? lane + 32 * i : SLOTS - 1) * 4;
  }
  MEMBER bool in(int i) const { return SLOTS % 32 == 0 || lane + 32 * i < SLOTS; }  // a lane beyond reads the last slot
  MEMBER float of_slot(const float (&each)[EACH], int x) const { return shuffle(x < 32 ? each[0] : each[EACH - 1], x & 31); }

  // this warp's part of dL/da_j, for the step that read the slots as they are now
  template <class Held>
  MEMBER float score(int i, const float4 (&g)[G + 1], float4 sum, Held held) {
#pragma unroll
    for (int k = 0; k <= G; k++) sum = mad(g[k], held(i, k), sum);
    return a.mix * ((sum.x + sum.y) + (sum.z + sum.w));
  }
  MEMBER void put_score(int r, int i, float score) {
    if (in(i)) sm[L::SCORE + (warp * R + r) * SLOTS + lane + 32 * i] = score;
  }
  // add up the warps' parts and send them to everybody
  MEMBER void send_scores() {
    float sums[L::SCORE_ROUNDS][EACH];
#pragma unroll
    for (int round = 0; round < L::SCORE_ROUNDS; round++) {
      const int r = (round * WARPS + warp) / C;
#pragma unroll
      for (int i = 0; i < EACH; i++)
        sums[round][i] = P::template total<WARPS>(sm + L::SCORE + (r < R ? r : 0) * SLOTS + (in(i) ? lane + 32 * i : 0), R * SLOTS);
    }
#pragma unroll
    for (int round = 0; round < L::SCORE_ROUNDS; round++) {
      const int task = round * WARPS + warp, r = task / C, to = task % C;
#pragma unroll
      for (int i = 0; i < EACH; i++)
        if (r < rows && in(i))
          send(shared_address(sm + L::SCORES_IN + (rank * R + r) * SLOTS + lane + 32 * i), sums[round][i], scores_came, to);
    }
  }
  // while the scores fly: what needs no score
  MEMBER void gather(int t) {
    float product[R][COLUMNS], now[R][EACH];
    float4 gained[R][EACH];
#pragma unroll
    for (int r = 0; r < R; r++) {
      if constexpr (S::RESET) is_reset[r] = a.reset[row(t, there(r) ? r : 0)];
      slot[r] = B::slot_of(t, r);
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int id = in(i) ? ids(t)[r * SLOTS + lane + 32 * i] : -1;
        now[r][i] = id < 0 ? 0.0f : B::shares(t)[r * SLOTS + place(id)];
      }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) product[r][c] = 0.0f;
#pragma unroll
      for (int k = 0; k <= G; k++) multiply(product[r], k, load4(left + stash(r, k)));
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
      const float4 q = SCALE * load4(here + input(ring, r, L::GATES));
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        gained[r][i] = gain(r, i), share[r][i] = now[r][i];  // from the step after this
        const float4 x = mad(SCALE, load4(at[i] + record(r, G + 1)), q);
        bend[r][i] = {0.5f - rcp(1.0f + ex2(x.x)), 0.5f - rcp(1.0f + ex2(x.y)), 0.5f - rcp(1.0f + ex2(x.z)),
                      0.5f - rcp(1.0f + ex2(x.w))};
      }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
      put_product(r, 0, product[r]);
#pragma unroll
      for (int i = 0; i < EACH; i++)
        if (in(i)) store4(at[i] + gathered(r, 1), gained[r][i]);
    }
  }
  // dL/dh_j of this lane's slots with what dL/ds gives of the step whose shares these are
  MEMBER float4 gain(int r, int i) {
    return mad(a.mix * share[r][i], load4(left + stash(r, G + 2)), load4(at[i] + gathered(r, 1)));
  }
  // when they are there: through the softmax and tanh to keys, query and v
  MEMBER void read(int t) {
    float d[R][EACH], mean[R], product[R][COLUMNS];
    float4 keys[R][EACH], newest[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
      mean[r] = 0.0f;
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const float sum = P::template total<C>(sm + L::SCORES_IN + r * SLOTS + (in(i) ? lane + 32 * i : 0), R * SLOTS);
        d[r][i] = share[r][i] > 0.0f ? sum : 0.0f;
        mean[r] = mad(share[r][i], d[r][i], mean[r]);
      }
    }
#pragma unroll
    for (int m = 16; m; m >>= 1) {
#pragma unroll
      for (int r = 0; r < R; r++) mean[r] += shuffle_xor(mean[r], m);
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const float de = share[r][i] * (d[r][i] - mean[r]);
        const float4 half = bend[r][i];
        if constexpr (S::LEARNED) {
          d_score[r][i] += de;
          if (warp == 0 && rank == 0 && in(i) && there(r))
            a.d_energies[row(t, r) * SLOTS + place(ids(t)[r * SLOTS + lane + 32 * i])] = de;
        }
        d_energy = mad(de, half, d_energy);
        bend[r][i] = de * (v * mad(-1.0f * half, half, {0.25f, 0.25f, 0.25f, 0.25f}));
        keys[r][i] = load4(at[i] + gathered(r, 0)) + bend[r][i];
        if (i == 0 || slot[r] >= 32) newest[r] = keys[r][i];
      }
      newest[r] = shuffle(newest[r], slot[r] & 31);
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) product[r][c] = 0.0f;
      multiply(product[r], G + 1, newest[r]);
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
      put_product(r, 1, product[r]);
#pragma unroll
      for (int i = 0; i < EACH; i++)
        if (in(i)) store4(at[i] + gathered(r, 0), keys[r][i]);
      if (lane == 0 && there(r)) store4(a.d_keys + from_here + r * H, newest[r]);
    }
  }
  // while the products fly: dL/dq, what dL/dh will be added to, and the slots as the step before read them
  MEMBER void settle(int t) {
    float x[R], y[R], base[R], part[R];
    const bool upper = lane & 16, odd = lane & 8;  // a lane is left with feature lane / 8 of dL/dq
#pragma unroll
    for (int r = 0; r < R; r++) {
      x[r] = 0.0f, y[r] = 0.0f;
      float4 sum = bend[r][0];
#pragma unroll
      for (int i = 1; i < EACH; i++) sum = sum + bend[r][i];
      x[r] = (upper ? sum.z : sum.x) + shuffle_xor(upper ? sum.x : sum.z, 16);
      y[r] = (upper ? sum.w : sum.y) + shuffle_xor(upper ? sum.y : sum.w, 16);
      part[r] = a.mix * (1.0f + of_slot(share[r], slot[r]));
      base[r] = widened(reinterpret_cast<Layer*>(here + input(ring, r, L::GATES + 1))[lane & 3]);
      base[r] += here[gathered(r, 1) + slot[r] * 4 + (lane & 3)];
      if constexpr (S::LEARNED) {
        const float score = of_slot(d_score[r], slot[r]);
        if (warp == 0 && rank == 0 && lane == 0 && there(r)) a.d_scores[row(t, r)] = score;
        base[r] = mad(score, widened(layer(a.worth)[own + (lane & 3)]), base[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < R; r++) x[r] = (odd ? y[r] : x[r]) + shuffle_xor(odd ? x[r] : y[r], 8);
#pragma unroll
    for (int m = 4; m; m >>= 1) {
#pragma unroll
      for (int r = 0; r < R; r++) x[r] += shuffle_xor(x[r], m);
    }
    float4 again[R];
#pragma unroll
    for (int r = 0; r < R; r++)
      again[r] = load4(here + B::staged(t, r) + (lane < HELD ? lane : 0) * 4);
#pragma unroll
    for (int r = 0; r < R; r++) {
      if ((lane & 7) == 0) leave[stash(r, G) + lane / 8] = x[r];
      if ((lane & 7) == 0 && there(r)) a.d_queries[from_here + r * H + lane / 8] = x[r];
      if (lane < 4) {
        here[factor(r) + 4 * L::FACTORS - 8 + lane] = base[r];
        here[factor(r) + 4 * L::FACTORS - 4 + lane] = part[r];
      }
    }
    warp_sync();
    if (t > 0) restore(t, again);
  }
  // give the slot of h_t, or after a reset every slot, back to what it held before
  MEMBER void restore(int t, const float4 (&again)[R]) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      if constexpr (S::RESET) {
        if (is_reset[r] && there(r)) {
#pragma unroll
          for (int i = 0; i < EACH; i++) {
            refill(t - 1, r, i);
            for (int k = 0; in(i) && k < GATHERED; k++) store4(at[i] + gathered(r, k), nothing());
            d_score[r][i] = 0.0f, share[r][i] = 0.0f;
          }
          continue;
        }
      }
      if (lane < HELD) store4(here + record(r, lane) + slot[r] * 4, again[r]);
      if (lane < GATHERED) store4(here + gathered(r, lane) + slot[r] * 4, nothing());
#pragma unroll
      for (int i = 0; i < EACH; i++)
        if (lane + 32 * i == slot[r]) d_score[r][i] = 0.0f, share[r][i] = 0.0f;
    }
    warp_sync();
  }
  // the lane's slots with what they held at step t
  MEMBER void refill(int t, int r, int i) {
    if (!in(i)) return;
    const int id = held(ids(t)[r * SLOTS + lane + 32 * i]);
    for (int k = 0; k < KINDS; k++) store4(at[i] + record(r, k), id < 0 ? nothing() : load4(B::product_of(id, r, k, own)));
    if constexpr (L::DIRECT)
      for (int f = 0; f < 4; f++)
        reinterpret_cast<Layer*>(at[i] + record(r, KINDS))[f] = id < 0 ? Layer{} : B::state_of(id, r, own)[f];
  }
  // what is needed as soon as the products are there; the first row's is read before
  struct Ready {
    float4 factors[L::FACTORS], asked, d_cell;
  };
  MEMBER void make_ready(int r, Ready& ready) {
#pragma unroll
    for (int k = 0; k < L::FACTORS; k++) ready.factors[k] = load4(here + factor(r) + 4 * k);
    ready.asked = load4(leave + stash(r, G));
    if constexpr (S::CELL == LSTM) ready.d_cell = load4(left + stash(r, G + 3));
  }
  MEMBER float4 record_of(int r, int i, int k) {
    return k < KINDS ? load4(at[i] + record(r, k)) : widened4(reinterpret_cast<const Layer*>(at[i] + record(r, k)));
  }
  // when the products are there: through the cell to dL/d[V s; W_a s] of the step before and what reaches s directly
  MEMBER void recede_row(int t, int r, const Ready& ready, float4 (&g)[G + 1], float4& direct) {
    float4 ds = nothing(), dh = nothing(), d_cell = ready.d_cell, dz[G], recurred;
#pragma unroll
    for (int c = 0; c < C; c++) {  // of each feature both, side by side
      const float* from = sm + L::STATES_IN + ((c * R + r) * F + warp * 4) * 2;
      const float4 x = load4(from), y = load4(from + 4);
      ds = ds + float4{x.x, x.z, y.x, y.z}, dh = dh + float4{x.y, x.w, y.y, y.w};
    }
    if (L::DIRECT || t == a.steps - 1) ds = ds + load4(left + stash(r, G + 1));
    dh = mad(ready.factors[L::FACTORS - 1], ds, dh + ready.factors[L::FACTORS - 2]);
    direct = nothing();
    recede<S>(ready.factors, dh, d_cell, dz, recurred, direct);
#pragma unroll
    for (int k = 0; k < G; k++) g[k] = k == G - 1 ? recurred : dz[k];
    g[G] = ready.asked;
    if constexpr (S::RESET) {
      if (is_reset[r]) {  // nothing came from before
#pragma unroll
        for (int k = 0; k <= G; k++) g[k] = nothing();
        direct = nothing(), d_cell = nothing();
      }
    }
    if (lane == 0) {
      store4(leave + stash(r, G + 2), ds);
      if constexpr (S::CELL == LSTM) store4(leave + stash(r, G + 3), d_cell);
    }
    if (lane == 0 && there(r)) {
      float* to = a.d_projected + G * (from_here - own + r * H) + own;
#pragma unroll
      for (int k = 0; k < G; k++) store4(to + k * H, dz[k]);
      if (a.d_states) store4(a.d_states + from_here + r * H, dh);
    }
  }
  MEMBER void put_stash(int r, const float4 (&g)[G + 1], float4 direct) {
    if (S::RESET && is_reset[r]) warp_sync();  // everybody has read dL/dq
    if (lane != 0) return;
#pragma unroll
    for (int k = 0; k < G + S::RESET; k++) store4(leave + stash(r, k), g[k]);
    store4(leave + stash(r, G + 1), direct);
  }
  // and on to the scores of the step before
  MEMBER void recede_one(int t, const Ready& ready, const float4 (&records)[EACH][HELD]) {
    float4 g[G + 1], direct;
    recede_row(t, 0, ready, g, direct);
#pragma unroll
    for (int i = 0; i < EACH; i++)
      put_score(0, i, score(i, g, L::DIRECT ? direct * records[i][HELD - 1] : nothing(), [&](int i, int k) { return records[i][k]; }));
    put_stash(0, g, direct);
  }
  MEMBER void recede_all(int t, const Ready& zero) {
    Ready ready[2] = {zero, zero};
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (r + 1 < R) make_ready(r + 1, ready[(r + 1) & 1]);  // before the row before it is written
      float4 g[G + 1], direct;
      recede_row(t, r, ready[r & 1], g, direct);
      put_stash(r, g, direct);
    }
    warp_sync();
    float scores[R][EACH];
#pragma unroll
    for (int r = 0; r < R; r++) {
      float4 g[G + 1];
#pragma unroll
      for (int k = 0; k <= G; k++) g[k] = load4(leave + stash(r, k));
#pragma unroll
      for (int i = 0; i < EACH; i++)
        scores[r][i] = score(i, g, L::DIRECT ? load4(leave + stash(r, G + 1)) * record_of(r, i, HELD - 1) : nothing(),
                             [&](int i, int k) { return record_of(r, i, k); });
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
      for (int i = 0; i < EACH; i++) put_score(r, i, scores[r][i]);
    }
  }
};

}  // namespace plait
