// The walk back through time. With P_j = [V; W_a] h_j taken once per state, and g = dL/d[V s_t; W_a s_t] (which step t + 1
// left), what a step does to the slots it read is
//
//     dL/da_j = mix g . P_j                       scores, summed over all features: exchanged
//     dL/de_j = a_j (dL/da_j - mean)              then dL/dk_j, dL/dq_t, dL/dv
//     dL/ds_t = [V; W_a]' g,  U_a' dL/dk_t        products over all rows of M: exchanged
//     dL/dh_j += mix (a_j + [j = t]) dL/ds_t      dL/dh_t gains dL/doutput and U_a' dL/dk_t, and is complete
//
// and the cell gives the next g. Each block sums over its own features and rows and sends what it has to the blocks that
// need it, which add in the order of ranks: the same bits every time. Two exchanges a step, no barrier of the cluster.
// That one buffer for each suffices: a block sends the scores of a step only when it has all products of the step
// before, and those were sent when every warp of their block had read its scores; and the other way round.
//
// What a slot gathers lies in its block's shared memory until the slot is given to an older state; `ids` tell which.

#pragma once

#include "backward_ahead.h"

namespace plait {

template <class S>
struct Back : BackPlaces<S> {
  using L = BackLayout<S>;
  using B = BackPlaces<S>;
  using Layer = typename S::Layer;
  using L::C, L::COLUMNS, L::EACH, L::F, L::G, L::GATHERED, L::H, L::HELD, L::KINDS, L::R, L::SLOTS, L::THREADS, L::WARPS;
  using B::a, B::first, B::lane, B::rank, B::ring, B::rows, B::sm;
  using B::factor, B::gathered, B::held, B::ids, B::input, B::layer, B::place, B::record, B::row, B::stash, B::there;

  const int warp, own;                      // own: the first of this warp's features
  float *const here, *at[EACH];             // the warp's place, and there of this lane's slots
  const uint32_t scores_came, states_came;
  float w[L::REGISTER_KINDS * 4][COLUMNS];  // rows of M, the columns of this lane
  float4 bend[R][EACH], d_energy, v;  // bend: half of tanh(q + k), then dL/d(q + k)
  float share[R][EACH], d_score[R][EACH];
  int slot[R];                              // where h_t lies
  bool is_reset[R];
  float *left, *leave;                      // what the step after this left, and what this one leaves
  int64_t from_here;                        // where this warp's features of the first row lie in (T, B, H)

  MEMBER Back(const BackwardArguments& arguments, float* memory)
      : B(arguments, memory), warp(thread_index() / 32), own(rank * F + warp * 4), here(B::of_warp(warp)),
        scores_came(shared_address(memory)), states_came(shared_address(memory) + 8), left(here),
        leave(here + R * L::STASHED * 4) {
#pragma unroll
    for (int i = 0; i < EACH; i++) at[i] = here + (in(i) ? lane + 32 * i : SLOTS - 1) * 4;
  }
  MEMBER bool in(int i) const { return SLOTS % 32 == 0 || lane + 32 * i < SLOTS; }  // a lane beyond reads the last slot
  MEMBER float of_slot(const float (&each)[EACH], int x) const { return shuffle(x < 32 ? each[0] : each[EACH - 1], x & 31); }

  // The stages of a step. Each reads for all rows before it writes: a compiler that cannot know what lies apart keeps
  // reads behind writes, and the rows would wait for each other.

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
  // N numbers so far apart
  template <int N>
  static MEMBER float total(const float* from, int apart) {
    if constexpr (N == 1) return from[0];
    else return total<N / 2>(from, apart) + total<N - N / 2>(from + N / 2 * apart, apart);
  }
  // add up the warps' parts and send them to everybody
  MEMBER void send_scores() {
    float sums[L::SCORE_ROUNDS][EACH];
#pragma unroll
    for (int round = 0; round < L::SCORE_ROUNDS; round++) {
      const int r = (round * WARPS + warp) / C;
#pragma unroll
      for (int i = 0; i < EACH; i++)
        sums[round][i] = total<WARPS>(sm + L::SCORE + (r < R ? r : 0) * SLOTS + (in(i) ? lane + 32 * i : 0), R * SLOTS);
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
  // add four rows of M, of one kind, times d
  MEMBER void multiply(float (&sum)[COLUMNS], int kind, float4 d) {
    const float each[4] = {d.x, d.y, d.z, d.w};
#pragma unroll
    for (int f = 0; f < 4; f++) {
      if (kind < L::REGISTER_KINDS) {
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) sum[c] = mad(w[kind < L::REGISTER_KINDS ? kind * 4 + f : 0][c], each[f], sum[c]);
      } else {
#pragma unroll
        for (int c = 0; c < COLUMNS; c += 4) {
          const float4 m = load4(shared_weight(kind, f, c));
          sum[c] = mad(m.x, each[f], sum[c]), sum[c + 1] = mad(m.y, each[f], sum[c + 1]);
          sum[c + 2] = mad(m.z, each[f], sum[c + 2]), sum[c + 3] = mad(m.w, each[f], sum[c + 3]);
        }
      }
    }
  }
  // this warp's part of a product, where the others' lie
  MEMBER void put_product(int r, int which, const float (&product)[COLUMNS]) {
    float* to = sm + L::PRODUCT + ((warp * R + r) * 2 + which) * H;
    if constexpr (L::IN_FOURS) {
#pragma unroll
      for (int c = 0; c < COLUMNS; c += 4)
        store4(to + 32 * c + 4 * lane, {product[c], product[c + 1], product[c + 2], product[c + 3]});
    } else {
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) to[32 * c + lane] = product[c];
    }
  }
  MEMBER float* shared_weight(int kind, int f, int c) {
    return here + L::WEIGHTS + ((kind - L::REGISTER_KINDS) * 4 + f) * COLUMNS * 32 + c * 32 + lane * 4;
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
        const float sum = total<C>(sm + L::SCORES_IN + r * SLOTS + (in(i) ? lane + 32 * i : 0), R * SLOTS);
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
  // add up the warps' parts and send each column of both products to its owner
  MEMBER void send_products() {
    float2 sums[L::PRODUCT_ROUNDS];
#pragma unroll
    for (int round = 0; round < L::PRODUCT_ROUNDS; round++) {
      const int task = round * WARPS + warp, r = task / COLUMNS, column = task % COLUMNS * 32 + lane;
      const float* from = sm + L::PRODUCT + (r < R ? r : 0) * 2 * H + column;
      sums[round] = {total<WARPS>(from, 2 * R * H), total<WARPS>(from + H, 2 * R * H)};
    }
#pragma unroll
    for (int round = 0; round < L::PRODUCT_ROUNDS; round++) {
      const int task = round * WARPS + warp, r = task / COLUMNS, column = task % COLUMNS * 32 + lane;
      if (r < rows)
        send2(shared_address(sm + L::STATES_IN + ((rank * R + r) * F + column % F) * 2), sums[round], states_came, column / F);
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

  // ---- before and after
  MEMBER int column(int c) { return L::IN_FOURS ? c / 4 * 128 + lane * 4 + c % 4 : c * 32 + lane; }
  MEMBER void load_weights() {
#pragma unroll
    for (int k = 0; k < KINDS; k++) {
#pragma unroll
      for (int f = 0; f < 4; f++) {
        const Layer* from = k < G ? layer(a.recurrent) + (int64_t)(k * H + own + f) * H
                                  : layer(k == G ? a.query : a.key) + (int64_t)(own + f) * H;
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
          if (k < L::REGISTER_KINDS) w[k < L::REGISTER_KINDS ? k * 4 + f : 0][c] = widened(from[column(c)]);
          else shared_weight(k, f, c / 4 * 4)[c % 4] = widened(from[column(c)]);
        }
      }
    }
  }
  MEMBER void begin() {
    const int last = a.steps - 1;
    load_weights();
    from_here = row(last, 0) * H + own;
    v = 4.0f * widened4(layer(a.energy) + own), d_energy = nothing();
#pragma unroll
    for (int r = 0; r < R; r++) {
      is_reset[r] = false;
#pragma unroll
      for (int i = 0; i < EACH; i++) d_score[r][i] = 0.0f, share[r][i] = 0.0f;
      if (!there(r)) continue;
      const int64_t b = first + r;
      const float4 arrived = a.d_hidden ? widened4(layer(a.d_hidden) + b * H + own) : nothing();
      if (lane == 0) {
        store4(left + stash(r, G + 1), arrived);
        if (a.d_cell_state) store4(left + stash(r, G + 3), widened4(layer(a.d_cell_state) + b * H + own));
      }
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int id = in(i) ? ids(last)[r * SLOTS + lane + 32 * i] : -1;
        const float4 state = id < 0 ? nothing() : widened4(B::state_of(held(id), r, own));
        const float4 direct = arrived * state;
        put_score(r, i, a.mix * ((direct.x + direct.y) + (direct.z + direct.w)));
        refill(last, r, i);
        if (in(i) && a.d_slots && id >= 0)
          store4(at[i] + gathered(r, 1), widened4(layer(a.d_slots) + (b * SLOTS + place(id)) * H + own));
      }
    }
  }
  MEMBER void walk() {
    begin();
    Watch<S::PROFILE> watch;
    for (int t = a.steps - 1; t >= 0; t--) {
      const int parity = (a.steps - 1 - t) & 1;
      barrier_sync(0, THREADS);
      watch.stamp(0);
      send_scores();
      watch.stamp(1);
      gather(t);
      watch.stamp(2);
      mbarrier_wait(scores_came, parity);
      if (thread_index() == 0) mbarrier_expect(scores_came, C * rows * SLOTS * 4);
      watch.stamp(3);
      read(t);
      watch.stamp(4);
      barrier_sync(1, THREADS);
      watch.stamp(5);
      send_products();
      watch.stamp(6);
      settle(t);
      watch.stamp(7);
      Ready ready;
      make_ready(0, ready);
      float4 records[EACH][HELD];
      if constexpr (R == 1) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
#pragma unroll
          for (int k = 0; k < HELD; k++)
            if (k <= G || k == KINDS) records[i][k] = record_of(0, i, k);
        }
      }
      mbarrier_wait(states_came, parity);
      if (thread_index() == 0) mbarrier_expect(states_came, C * rows * F * 8);
      watch.stamp(8);
      if constexpr (R == 1) recede_one(t, ready, records);
      else recede_all(t, ready);
      watch.stamp(9);
      ring = B::next(ring), from_here -= (int64_t)a.rows * H;
      float* const last = left;
      left = leave, leave = last;
    }
    if (cluster_index() == 0 && rank == 0 && lane == 0) watch.write(a.profile, warp);
    end();
  }
  // dL/ds_0 takes one product more; then what the initial slots have gathered, dL/dc_0, and dL/dv of the cluster. Before
  // that everybody meets: no exchange lies between this product and the last, which everybody must have read. An initial
  // slot that nobody read comes out as zeros, whatever it held.
  MEMBER void end() {
    warp_sync();
#pragma unroll
    for (int r = 0; r < R; r++) {
      float product[COLUMNS], none[COLUMNS];
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) product[c] = none[c] = 0.0f;
#pragma unroll
      for (int k = 0; k <= G; k++) multiply(product, k, load4(left + stash(r, k)));
      put_product(r, 0, product), put_product(r, 1, none);
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const float4 gained = gain(r, i);
        if (in(i)) store4(at[i] + gathered(r, 1), gained);
      }
    }
    cluster_sync();
    send_products();
    mbarrier_wait(states_came, a.steps & 1);
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (!there(r)) continue;
      const int64_t b = first + r;
      float4 ds = L::DIRECT ? load4(left + stash(r, G + 1)) : nothing();
      for (int c = 0; c < C; c++) {
        const float* from = sm + L::STATES_IN + ((c * R + r) * F + warp * 4) * 2;
        ds = ds + float4{from[0], from[2], from[4], from[6]};
      }
      if (lane == 0) store4(a.d_hidden_out + b * H + own, ds);
      if (S::CELL == LSTM && lane == 0) store4(a.d_cell_state_out + b * H + own, load4(left + stash(r, G + 3)));
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int x = lane + 32 * i;
        if (!in(i)) continue;
        const bool stayed = held(ids(0)[r * SLOTS + x]) == x;
        store4(a.d_initial_keys + (b * SLOTS + x) * H + own, stayed ? load4(at[i] + gathered(r, 0)) : nothing());
        store4(a.d_initial_states + (b * SLOTS + x) * H + own, stayed ? load4(at[i] + gathered(r, 1)) : nothing());
        store4(a.initial_slots + (b * SLOTS + x) * H + own,
               stayed ? widened4(layer(a.slots) + (b * SLOTS + x) * H + own) : nothing());
        if (S::LEARNED && warp == 0 && rank == 0) a.d_initial_scores[b * SLOTS + x] = stayed ? d_score[r][i] : 0.0f;
      }
    }
#pragma unroll
    for (int m = 16; m; m >>= 1) {
      const float4 other = {shuffle_xor(d_energy.x, m), shuffle_xor(d_energy.y, m), shuffle_xor(d_energy.z, m),
                            shuffle_xor(d_energy.w, m)};
      d_energy = d_energy + other;
    }
    if (lane == 0) store4(a.d_energy + (int64_t)cluster_index() * H + own, 2.0f * d_energy);
  }
};

template <class S>
DEVICE void scan_backward(const BackwardArguments& a, unsigned char* memory) {
  using L = BackLayout<S>;
  float* sm = reinterpret_cast<float*>(memory);
  const BackPlaces<S> places(a, sm);
  if (thread_index() == 0) {
    const uint32_t scores_came = shared_address(memory), states_came = scores_came + 8;
    mbarrier_init(scores_came, 1), mbarrier_init(states_came, 1);
    mbarrier_fence();
    mbarrier_expect(scores_came, L::C * places.rows * L::SLOTS * 4);
    mbarrier_expect(states_came, L::C * places.rows * L::F * 8);
  }
  for (int n = 32 + thread_index() * 4; n < L::FLOATS; n += L::THREADS * 4)  // of rows that are not there, too
    for (int i = 0; i < 4 && n + i < L::FLOATS; i++) sm[n + i] = 0.0f;
  barrier_sync(0, L::THREADS);
  for (int n = thread_index(); n < 3 * places.rows * L::SLOTS; n += L::THREADS) {  // what the first steps need at once
    const int t = a.steps - 1 - n / (places.rows * L::SLOTS), at = n % (places.rows * L::SLOTS);
    if (t >= 0) places.ids(t)[at] = a.ids[places.row(t, 0) * L::SLOTS + at];
  }
  cluster_sync();  // the barriers stand before anyone sends
  if (thread_index() < L::WARPS * 32) {
    if constexpr (L::DEAL) more_registers<L::REGISTERS>();
    Back<S>(a, sm).walk();
  } else {
    if constexpr (L::DEAL) fewer_registers<L::OF_AHEAD>();
    BackAhead<S>(a, sm).walk();
    cluster_sync();  // with the others, at their end
  }
  cluster_sync();  // nobody leaves while its memory may be written
}

}  // namespace plait
