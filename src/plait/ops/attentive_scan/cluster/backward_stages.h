// The stages of a step back. Each reads for all rows before it writes: the compiler cannot rule out aliasing and would
// order reads after writes, so that rows would wait for each other.

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
  float share[R][EACH], d_score[R][EACH], felt[R][EACH];  // dL/de
  int slot[R];                              // the slot of h_t
  bool is_reset[R];
  float *left, *leave;                      // values from the step after this, and those for the step before
  // In the cell: this lane's group, feature and row (one that several groups share is kept by the first), and whether
  // the batch has that row; dL/dq, what dL/dh will be added to, and h_t's share of dL/ds_t
  const int group, feature, mine;
  const bool keeps, writes;
  float d_query, base, part;
  float limited, pulled;                    // where dL/ds_t comes first: it, and dL/de of h_t
  int64_t from_here;                        // where this warp's features of the first row lie in (T, B, H)

  MEMBER BackStages(const BackwardArguments& arguments, float* memory)
      : P(arguments, memory), left(here), leave(here + R * L::STASHED * 4), group(lane / 4), feature(lane % 4),
        mine(group >> L::OF_ROW < R ? group >> L::OF_ROW : R - 1),
        keeps((group & ((1 << L::OF_ROW) - 1)) == 0 && group >> L::OF_ROW < R), writes(keeps && there(mine)) {
#pragma unroll
    for (int i = 0; i < EACH; i++) at[i] = here + (in(i) ? lane + 32 * i : SLOTS - 1) * 4;
  }
  MEMBER bool in(int i) const { return SLOTS % 32 == 0 || lane + 32 * i < SLOTS; }  // a lane beyond reads the last slot
  MEMBER float of_slot(const float (&each)[EACH], int x) const { return shuffle(x < 32 ? each[0] : each[EACH - 1], x & 31); }

  MEMBER void put_score(int r, int i, float score) {
    if (in(i)) sm[L::SCORE + (warp * R + r) * SLOTS + lane + 32 * i] = score;
  }
  // add up the warps' parts and send them to all blocks
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
  // while the scores are in flight: everything that does not depend on them
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
        bend[r][i] = bent(load4(at[i] + record(r, L::KEY)), q);
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
  // half of tanh(q + k), of a scaled query
  static MEMBER float4 bent(float4 key, float4 q) {
    const float4 x = mad(SCALE, key, q);
    return {0.5f - rcp(1.0f + ex2(x.x)), 0.5f - rcp(1.0f + ex2(x.y)), 0.5f - rcp(1.0f + ex2(x.z)), 0.5f - rcp(1.0f + ex2(x.w))};
  }
  // the factor from dL/de to dL/d(q + k), from that half
  MEMBER float4 bent_back(float4 half) const { return v * mad(-1.0f * half, half, {0.25f, 0.25f, 0.25f, 0.25f}); }
  // add to dL/dh_j of this lane's slots the part of dL/ds of the step with these weights
  MEMBER float4 gain(int r, int i) {
    return mad(a.mix * share[r][i], load4(left + stash(r, G + 2)), load4(at[i] + gathered(r, 1)));
  }
  // after their arrival: through the softmax and tanh to keys, query and v
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
        felt[r][i] = de, bend[r][i] = de * bent_back(half);
        keys[r][i] = load4(at[i] + gathered(r, 0)) + bend[r][i];
        if (i == 0 || slot[r] >= 32) newest[r] = keys[r][i];
      }
      newest[r] = shuffle(newest[r], slot[r] & 31);
      if constexpr (!L::LIMITED) {
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) product[r][c] = 0.0f;
        multiply(product[r], G + 1, newest[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
      if constexpr (!L::LIMITED) put_product(r, 1, product[r]);
#pragma unroll
      for (int i = 0; i < EACH; i++)
        if (in(i)) store4(at[i] + gathered(r, 0), keys[r][i]);
      if (lane == 0 && there(r))
        store4(a.d_keys + (S::LEARNED ? row(t, r) * L::KEYED + own : from_here + r * H), newest[r]);
    }
  }
  // while the products are in flight: dL/dq, the other terms of dL/dh, and the slots as the step before read them
  MEMBER void settle(int t) {
    float each[L::TOGETHER];
    const bool upper = lane & 2, odd = lane & 1;
#pragma unroll
    for (int r = 0; r < L::TOGETHER; r++) {
      each[r] = 0.0f;
      if (r >= R) continue;
      float4 sum = bend[r][0];
#pragma unroll
      for (int i = 1; i < EACH; i++) sum = sum + bend[r][i];
      const float x = (upper ? sum.z : sum.x) + shuffle_xor(upper ? sum.x : sum.z, 2);
      const float y = (upper ? sum.w : sum.y) + shuffle_xor(upper ? sum.y : sum.w, 2);
      each[r] = (odd ? y : x) + shuffle_xor(odd ? x : y, 1);
    }
    d_query = reduce8<L::TOGETHER, 4>(each, group);
    const int x = B::slot_of(t, mine);
    part = L::LIMITED ? a.mix : a.mix * (1.0f + B::shares(t)[mine * SLOTS + place(ids(t)[mine * SLOTS + x])]);
    base = widened(reinterpret_cast<Layer*>(here + input(ring, mine, L::GATES + 1))[feature]);
    base += here[gathered(mine, 1) + x * 4 + feature];
    if constexpr (S::LEARNED) {
#pragma unroll
      for (int r = 0; r < R; r++) {
        const float score = of_slot(d_score[r], slot[r]);
        if (warp == 0 && rank == 0 && lane == 0 && there(r)) a.d_scores[row(t, r) * L::KEYED] = score;
        if (r == mine) base = mad(score, widened(layer(a.worth)[own + feature]), base);
      }
    }
    float4 again[R];
#pragma unroll
    for (int r = 0; r < R; r++)
      again[r] = load4(here + B::staged(t, r) + (lane < HELD ? lane : 0) * 4);
    if (writes) a.d_queries[L::BESIDE * (from_here - own + mine * H) + own + feature] = d_query;
    warp_sync();
    if (t > 0) restore(t, again);
  }
  // restore the slot of h_t, or after a reset every slot, to its previous content
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
    for (int k = 0; k <= L::KEY; k++)
      store4(at[i] + record(r, k), id < 0 ? nothing() : load4(B::product_of(id, r, L::FIRST + k, own)));
    if constexpr (L::STATES)
      for (int f = 0; f < 4; f++)
        reinterpret_cast<Layer*>(at[i] + record(r, HELD - 1))[f] = id < 0 ? Layer{} : B::state_of(id, r, own)[f];
  }
  // values needed right after the products arrive; with one row also those of its slots
  struct Ready {
    float factors[L::FACTORS], d_cell, direct, records[L::EIGHTH][HELD];
  };
  MEMBER void make_ready(int t, Ready& ready) {
#pragma unroll
    for (int k = 0; k < L::FACTORS; k++) ready.factors[k] = here[factor(mine, k) + feature];
    ready.d_cell = S::CELL == LSTM ? left[stash(mine, G + 3) + feature] : 0.0f;
    ready.direct = L::DIRECT || t == a.steps - 1 ? left[stash(mine, G + 1) + feature] : 0.0f;
    if constexpr (R == 1 && !L::LIMITED) read_records(0, ready.records);
  }
  // of the slots group, group + 8 ... this lane's feature; beyond the last slot the values are arbitrary and never read
  MEMBER void read_records(int r, float (&records)[L::EIGHTH][HELD]) {
#pragma unroll
    for (int i = 0; i < L::EIGHTH; i++) {
#pragma unroll
      for (int k = 0; k < HELD; k++) {
        if (k <= G) records[i][k] = here[record(r, k) + lane + 32 * i];
        if (k == KINDS) records[i][k] = state_at(r, i);
      }
    }
  }
  MEMBER float state_at(int r, int i) const {
    return widened(reinterpret_cast<const Layer*>(here + record(r, HELD - 1) + (group + 8 * i) * 4)[feature]);
  }
  // after the products arrive: through the cell to dL/d[V s; W_a s] of the step before (the last of g: the direct
  // gradient of s), one lane per feature and row; then to the scores of the step before
  MEMBER void recede_all(int t, Ready& ready) {
    float g[G + 2], ds = ready.direct, dh = base, d_cell = ready.d_cell, dz[G], sums[2] = {0.0f, 0.0f};
#pragma unroll
    for (int c = 0; c < C; c++) {
      const float2 x = load2(B::state_in(c, warp, mine, feature));
      sums[0] += x.x, sums[1] += x.y;
    }
    if constexpr (L::LIMITED) ds = limited, dh = mad(part, ds, dh + mad(pulled, sums[1], sums[0]));
    else ds += sums[0], dh = mad(part, ds, dh + sums[1]);
    g[G + 1] = 0.0f;
    recede<S>(ready.factors, dh, d_cell, dz, g[G - 1], g[G + 1]);
    const float recurred = g[G - 1];
#pragma unroll
    for (int k = 0; k < G - 1; k++) g[k] = dz[k];
    g[G] = d_query;
    if constexpr (S::RESET) {
      bool cut = false;
#pragma unroll
      for (int r = 0; r < R; r++)
        if (r == mine) cut = is_reset[r];
      if (cut) {  // no earlier state
#pragma unroll
        for (int k = 0; k < G + 2; k++) g[k] = 0.0f;
        d_cell = 0.0f;
      }
    }
    if constexpr (R == 1 && !L::LIMITED) put_scores(0, g, ready.records);
    if (keeps) {
#pragma unroll
      for (int k = 0; k < G + 1 + L::DIRECT; k++) leave[stash(mine, k) + feature] = g[k];
      if constexpr (!L::LIMITED) leave[stash(mine, G + 2) + feature] = ds;
      if constexpr (S::CELL == LSTM) leave[stash(mine, G + 3) + feature] = d_cell;
    }
    if constexpr (R > 1 && !L::LIMITED) {
#pragma unroll
      for (int r = 0; r < R; r++) {
        float of_row[G + 2], records[L::EIGHTH][HELD];
#pragma unroll
        for (int k = 0; k < G + 1 + L::DIRECT; k++) of_row[k] = shuffle(g[k], (r << L::OF_ROW) * 4 + feature);
        read_records(r, records);
        put_scores(r, of_row, records);
      }
    }
    if (writes) {
      float* to = a.d_projected + L::BESIDE * (from_here - own + mine * H) + own + feature;
#pragma unroll
      for (int k = 0; k < G; k++) to[k * H] = dz[k];
      if constexpr (L::DIRECT) to[G * H] = recurred;
      if (a.d_states) a.d_states[from_here + mine * H + feature] = dh;
    }
  }
  // this warp's part of dL/da_j for the step that read the slots as they are now; of g, or of dL/ds_t alone
  MEMBER void put_scores(int r, const float (&g)[G + 2], const float (&records)[L::EIGHTH][HELD]) {
#pragma unroll
    for (int i = 0; i < L::EIGHTH; i += 4) {
      float sum[4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        sum[j] = 0.0f;
        if (i + j >= L::EIGHTH) continue;
        const float (&of_slot)[HELD] = records[i + j < L::EIGHTH ? i + j : 0];
        if constexpr (L::DIRECT) sum[j] = g[G + 1] * of_slot[HELD - 1];
#pragma unroll
        for (int k = 0; k <= G; k++) sum[j] = mad(g[k], of_slot[k], sum[j]);
      }
      put_four(r, i, sum);
    }
  }
  MEMBER void put_scores(int r, float ds) {
#pragma unroll
    for (int i = 0; i < L::EIGHTH; i += 4) {
      float sum[4];
#pragma unroll
      for (int j = 0; j < 4; j++) sum[j] = i + j < L::EIGHTH ? ds * state_at(r, i + j) : 0.0f;
      put_four(r, i, sum);
    }
  }
  // the sums of four slots over features: a lane is left with slot group + 8 (i + feature)
  MEMBER void put_four(int r, int i, const float (&sum)[4]) {
    const bool upper = lane & 2, odd = lane & 1;
    const float x = (upper ? sum[2] : sum[0]) + shuffle_xor(upper ? sum[0] : sum[2], 2);
    const float y = (upper ? sum[3] : sum[1]) + shuffle_xor(upper ? sum[1] : sum[3], 2);
    const float score = a.mix * ((odd ? y : x) + shuffle_xor(odd ? x : y, 1));
    const int slot = group + 8 * (i + feature);
    if (slot < SLOTS) sm[L::SCORE + (warp * R + r) * SLOTS + slot] = score;
  }
};

}  // namespace plait
