// The stages of a step back. Each reads for all rows before it writes: a compiler that cannot know what lies apart keeps
// reads behind writes, and the rows would wait for each other. What shared memory hands out is what bounds several rows, so
// lanes read one number each, their own, and nothing that a register can hold lies there.

#pragma once

#include "backward_products.h"

namespace plait {

template <class S>
struct BackStages : BackProducts<S> {
  using L = BackLayout<S>;
  using B = BackPlaces<S>;
  using P = BackProducts<S>;
  using Layer = typename S::Layer;
  using L::C, L::COLUMNS, L::EACH, L::EIGHTH, L::G, L::H, L::HELD, L::KINDS, L::R, L::SLOTS, L::WARPS;
  using B::a, B::first, B::lane, B::rank, B::ring, B::rows, B::sm;
  using B::factor, B::held, B::ids, B::input, B::layer, B::place, B::record, B::row, B::stash, B::there;
  using P::here, P::multiply, P::own, P::put_product, P::scores_came, P::send_products, P::states_came, P::warp;

  const int group, feature;  // lane = group * 4 + feature
  // Of the slots group, group + 8 ..., this lane's feature: what is gathered for their keys and states, half of
  // tanh(q + k) and then dL/d(q + k)
  float to_key[R][EIGHTH], to_state[R][EIGHTH], bend[R][EIGHTH];
  float d_energy, v;
  // Of slot lane, lane + 32: dL/d of its score
  float d_score[R][EACH];
  // In the cell, of one row (one that several groups share is kept by the first, and written if the batch has it):
  // dL/dc, what reaches s directly, dL/dq, what dL/dh will be added to, h_t's share of dL/ds_t
  const int mine;
  const bool keeps, writes;
  float d_cell, direct, asked, base, part;
  int slot[R];               // where h_t lies
  bool is_reset[R];
  int64_t from_here;         // where this warp's features of the first row lie in (T, B, H)

  MEMBER BackStages(const BackwardArguments& arguments, float* memory)
      : P(arguments, memory), group(lane / 4), feature(lane % 4),
        mine(group >> L::OF_ROW < R ? group >> L::OF_ROW : R - 1),
        keeps((group & ((1 << L::OF_ROW) - 1)) == 0 && group >> L::OF_ROW < R), writes(keeps && there(mine)) {}
  // Slot lane + 32 i, and slot group + 8 i. A lane beyond the last slot has no share; what it reads is another's.
  MEMBER bool in(int i) const { return SLOTS % 32 == 0 || lane + 32 * i < SLOTS; }
  MEMBER int slot_at(int i) const { return group + 8 * i; }
  MEMBER bool has(int i) const { return SLOTS % 8 == 0 || i < EIGHTH - 1 || slot_at(i) < SLOTS; }
  MEMBER float of_slot(const float (&each)[EACH], int x) const { return shuffle(x < 32 ? each[0] : each[EACH - 1], x & 31); }
  // what the lanes of slot x hold of it
  MEMBER float held_for(const float (&each)[EIGHTH], int x) const {
    uint32_t found = 0;  // by bits: a compiler would choose between addresses, and an array in registers has none
#pragma unroll
    for (int i = 0; i < EIGHTH; i++) found |= bits_of(each[i]) & (x >> 3 == i ? 0xffffffffu : 0u);
    return of_bits(found);
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
#pragma unroll
    for (int r = 0; r < R; r++) {
      if constexpr (S::RESET) is_reset[r] = a.reset[row(t, there(r) ? r : 0)];
      slot[r] = B::slot_of(t, r);
      const float q = SCALE * here[input(ring, r, L::GATES) + feature];
#pragma unroll
      for (int i = 0; i < EIGHTH; i++) {
        const int x = has(i) ? slot_at(i) : SLOTS - 1;
        bend[r][i] = 0.5f - half_gap(q, SCALE * here[record(r, G + 1) + x * 4 + feature]);
      }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
      float product[COLUMNS];
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) product[c] = 0.0f;
#pragma unroll
      for (int k = 0; k <= G; k++) multiply(product, k, load4(here + stash(r, k)));
      put_product(r, 0, product);
    }
  }
  // when they are there: through the softmax and tanh to keys, query and v
  MEMBER void read(int t) {
    float own_share[R][EACH], d[R][EACH], mean[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
      mean[r] = 0.0f;
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int x = in(i) ? lane + 32 * i : 0;
        const float sum = P::template total<C>(sm + L::SCORES_IN + r * SLOTS + x, R * SLOTS);
        own_share[r][i] = in(i) ? B::shares(t)[r * SLOTS + x] : 0.0f;
        d[r][i] = own_share[r][i] > 0.0f ? sum : 0.0f;
        mean[r] = mad(own_share[r][i], d[r][i], mean[r]);
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
        d[r][i] = own_share[r][i] * (d[r][i] - mean[r]);
        if constexpr (S::LEARNED) {
          d_score[r][i] += d[r][i];
          if (warp == 0 && rank == 0 && in(i) && there(r))
            a.d_energies[row(t, r) * SLOTS + place(ids(t)[r * SLOTS + lane + 32 * i])] = d[r][i];
        }
      }
#pragma unroll
      for (int i = 0; i < EIGHTH; i++) {
        const float de = shuffle(d[r][i < 4 ? 0 : EACH - 1], slot_at(i) & 31), half = bend[r][i];
        d_energy = mad(de, half, d_energy);
        bend[r][i] = de * (v * mad(-half, half, 0.25f));
        to_key[r][i] += bend[r][i];
      }
      const float newest = held_for(to_key[r], slot[r]);
      if (group == (slot[r] & 7) && there(r)) a.d_keys[from_here + r * H + feature] = newest;
      const int from = (slot[r] & 7) * 4;
      float product[COLUMNS];
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) product[c] = 0.0f;
      multiply(product, G + 1, {shuffle(newest, from), shuffle(newest, from + 1), shuffle(newest, from + 2), shuffle(newest, from + 3)});
      put_product(r, 1, product);
    }
  }
  // while the products fly: dL/dq, what dL/dh will be added to, and the slots as the step before read them
  MEMBER void settle(int t) {
    float each[L::TOGETHER];
    float4 again[R];
    base = widened(reinterpret_cast<Layer*>(here + input(ring, mine, L::GATES + 1))[feature]);
    part = a.mix * (1.0f + B::shares(t)[mine * SLOTS + B::slot_of(t, mine)]);
#pragma unroll
    for (int r = 0; r < R; r++)
      if (lane < HELD) again[r] = load4(here + B::staged(t, r) + lane * 4);
#pragma unroll
    for (int r = 0; r < L::TOGETHER; r++) {
      each[r] = 0.0f;
      if (r >= R) continue;
#pragma unroll
      for (int i = 0; i < EIGHTH; i++) each[r] += bend[r][i];
      const float gathered = shuffle(held_for(to_state[r], slot[r]), (slot[r] & 7) * 4 + feature);
      if (r == mine) base += gathered;
      if constexpr (S::LEARNED) {
        const float score = of_slot(d_score[r], slot[r]);
        if (warp == 0 && rank == 0 && lane == 0 && there(r)) a.d_scores[row(t, r)] = score;
        if (r == mine) base = mad(score, widened(layer(a.worth)[own + feature]), base);
      }
    }
    asked = reduce8<L::TOGETHER, 4>(each, group);
    if (writes) a.d_queries[L::BESIDE * (from_here - own + mine * H) + own + feature] = asked;
    if (t > 0) restore(t, again);
  }
  // give the slot of h_t, or after a reset every slot, back to what it held before
  MEMBER void restore(int t, const float4 (&again)[R]) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      const bool all = S::RESET && is_reset[r] && there(r);
      if (all) refill(t - 1, r);
      else if (lane < HELD) store4(here + record(r, lane) + slot[r] * 4, again[r]);
#pragma unroll
      for (int i = 0; i < EIGHTH; i++)
        if (all || slot_at(i) == slot[r]) to_key[r][i] = 0.0f, to_state[r][i] = 0.0f;
#pragma unroll
      for (int i = 0; i < EACH; i++)
        if (all || lane + 32 * i == slot[r]) d_score[r][i] = 0.0f;
    }
    warp_sync();
  }
  // the row's slots with what they held at step t
  MEMBER void refill(int t, int r) {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      if (!in(i)) continue;
      const int x = lane + 32 * i, id = held(ids(t)[r * SLOTS + x]);
      float* at = here + x * 4;
      for (int k = 0; k < KINDS; k++) store4(at + record(r, k), id < 0 ? nothing() : load4(B::product_of(id, r, k, own)));
      if constexpr (L::DIRECT)
        for (int f = 0; f < 4; f++)
          reinterpret_cast<Layer*>(at + record(r, KINDS))[f] = id < 0 ? Layer{} : B::state_of(id, r, own)[f];
    }
  }
  // what is needed as soon as the products are there; with one row of its slots, too
  struct Ready {
    float factors[L::FACTORS], records[EIGHTH][HELD];
  };
  MEMBER void make_ready(Ready& ready) {
#pragma unroll
    for (int k = 0; k < L::FACTORS; k++) ready.factors[k] = here[factor(mine, k) + feature];
    if constexpr (R == 1) read_records(0, ready.records);
  }
  // beyond the last slot whatever lies there, to be read by nobody
  MEMBER void read_records(int r, float (&records)[EIGHTH][HELD]) {
#pragma unroll
    for (int i = 0; i < EIGHTH; i++) {
#pragma unroll
      for (int k = 0; k < HELD; k++) {
        if (k <= G) records[i][k] = here[record(r, k) + lane + 32 * i];
        if (k == KINDS) records[i][k] = widened(reinterpret_cast<const Layer*>(here + record(r, k) + slot_at(i) * 4)[feature]);
      }
    }
  }
  // when the products are there: through the cell to dL/d[V s; W_a s] of the step before, and on to its scores
  MEMBER void recede_all(int t, Ready& ready) {
    float g[G + 2], ds = 0.0f, dh = 0.0f, dz[G];  // the last of g: what reaches s directly
#pragma unroll
    for (int c = 0; c < C; c++) {
      const float2 x = load2(B::state_in(c, warp, mine, feature));
      ds += x.x, dh += x.y;
    }
    ds += direct, dh = mad(part, ds, dh + base);
    direct = 0.0f;
    recede<S>(ready.factors, dh, d_cell, dz, g[G - 1], direct);
    const float recurred = g[G - 1];
#pragma unroll
    for (int k = 0; k < G - 1; k++) g[k] = dz[k];
    g[G] = asked;
    if constexpr (S::RESET) {
      bool cut = false;
#pragma unroll
      for (int r = 0; r < R; r++)
        if (r == mine) cut = is_reset[r];
      if (cut) {  // nothing came from before
#pragma unroll
        for (int k = 0; k <= G; k++) g[k] = 0.0f;
        direct = 0.0f, d_cell = 0.0f;
      }
    }
    g[G + 1] = direct;
    if constexpr (R == 1) put_scores(0, g, ready.records);
    if (keeps) {
#pragma unroll
      for (int k = 0; k <= G; k++) here[stash(mine, k) + feature] = g[k];
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
      const int from = (r << L::OF_ROW) * 4 + feature;
      const float given = S::RESET && is_reset[r] ? 0.0f : a.mix * (R == 1 ? ds : shuffle(ds, from));
#pragma unroll
      for (int i = 0; i < EIGHTH; i++)  // h_t has had its share, and its slot is another's
        if (has(i) && slot_at(i) != slot[r]) to_state[r][i] = mad(B::shares(t)[r * SLOTS + slot_at(i)], given, to_state[r][i]);
      if constexpr (R == 1) continue;
      float of_row[G + 2], records[EIGHTH][HELD];
#pragma unroll
      for (int k = 0; k < G + 1 + L::DIRECT; k++) of_row[k] = shuffle(g[k], from);
      read_records(r, records);
      put_scores(r, of_row, records);
    }
    if (writes) {
      float* to = a.d_projected + L::BESIDE * (from_here - own + mine * H) + own + feature;
#pragma unroll
      for (int k = 0; k < G; k++) to[k * H] = dz[k];
      if constexpr (L::DIRECT) to[G * H] = recurred;
      if (a.d_states) a.d_states[from_here + mine * H + feature] = dh;
    }
  }
  // this warp's part of dL/da_j for the step that read the slots as they are now
  MEMBER void put_scores(int r, const float (&g)[G + 2], const float (&records)[EIGHTH][HELD]) {
    float sum[EIGHTH];
#pragma unroll
    for (int i = 0; i < EIGHTH; i++) {
      sum[i] = L::DIRECT ? g[G + 1] * records[i][HELD - 1] : 0.0f;
#pragma unroll
      for (int k = 0; k <= G; k++) sum[i] = mad(g[k], records[i][k], sum[i]);
    }
    put_scores(r, sum);
  }
  MEMBER void put_scores(int r, const float (&sum)[EIGHTH]) {
    const bool upper = lane & 2, odd = lane & 1;
#pragma unroll
    for (int i = 0; i < EIGHTH; i += 4) {  // over features, four slots together: a lane is left with slot_at(i + feature)
      float each[4];
#pragma unroll
      for (int j = 0; j < 4; j++) each[j] = i + j < EIGHTH ? sum[i + j < EIGHTH ? i + j : 0] : 0.0f;
      const float x = (upper ? each[2] : each[0]) + shuffle_xor(upper ? each[0] : each[2], 2);
      const float y = (upper ? each[3] : each[1]) + shuffle_xor(upper ? each[1] : each[3], 2);
      const float score = a.mix * ((odd ? y : x) + shuffle_xor(odd ? x : y, 1));
      if (slot_at(i + feature) < SLOTS) sm[L::SCORE + (warp * R + r) * SLOTS + slot_at(i + feature)] = score;
    }
  }
};

}  // namespace plait
