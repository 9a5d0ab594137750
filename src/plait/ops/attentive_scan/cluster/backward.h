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
struct Back : BackAhead<S> {
  using L = BackLayout<S>;
  using A = BackAhead<S>;
  using Layer = typename S::Layer;
  using L::C, L::COLUMNS, L::EACH, L::F, L::G, L::GATHERED, L::H, L::HELD, L::KINDS, L::R, L::SLOTS, L::THREADS, L::WARPS;
  using A::a, A::at, A::first, A::here, A::lane, A::own, A::rank, A::ring, A::rows, A::slot, A::slot_before, A::sm, A::warp;
  using A::factor, A::gathered, A::held, A::ids, A::in, A::input, A::layer, A::place, A::record, A::row, A::stash;

  const uint32_t scores_came, states_came;
  float w[L::REGISTER_KINDS * 4][COLUMNS];  // rows of M, the columns of this lane
  float4 bend[R][EACH], d_cell[R], d_energy, v;  // bend: half of tanh(q + k), then dL/d(q + k)
  float share[R][EACH], d_score[R][EACH];
  bool is_reset[R];
  int64_t from_here;                        // where this warp's features of the first row lie in (T, B, H)

  MEMBER Back(const BackwardArguments& arguments, float* memory)
      : A(arguments, memory), scores_came(shared_address(memory)), states_came(shared_address(memory) + 8) {}

  // ---- the stages of a step
  // this warp's part of dL/da_j, for the step that read the slots as they are now
  template <class Held, class Direct>
  MEMBER void score(int r, const float4 (&g)[G + 1], Held held, Direct direct) {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      float4 sum = direct(i);
#pragma unroll
      for (int k = 0; k <= G; k++) sum = mad(g[k], held(i, k), sum);
      if (in(i)) sm[L::SCORE + (warp * R + r) * SLOTS + lane + 32 * i] = a.mix * ((sum.x + sum.y) + (sum.z + sum.w));
    }
  }
  // N numbers so far apart
  template <int N>
  static MEMBER float total(const float* from, int apart) {
    if constexpr (N == 1) return from[0];
    else return total<N / 2>(from, apart) + total<N - N / 2>(from + N / 2 * apart, apart);
  }
  // add up the warps' parts and send them to everybody
  MEMBER void send_scores() {
#pragma unroll
    for (int round = 0; round < L::SCORE_ROUNDS; round++) {
      const int task = round * WARPS + warp, r = task / C, to = task % C;
      if (r >= rows) continue;
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        if (!in(i)) continue;
        const float* from = sm + L::SCORE + r * SLOTS + lane + 32 * i;
        const float sum = total<WARPS>(from, R * SLOTS);
        send(shared_address(sm + L::SCORES_IN + (rank * R + r) * SLOTS + lane + 32 * i), sum, scores_came, to);
      }
    }
  }
  // while the scores fly: what needs no score
  MEMBER void gather(int t) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (A::beyond(r)) continue;
      if constexpr (S::RESET) is_reset[r] = a.reset[row(t, r)];
      float product[COLUMNS];
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) product[c] = 0.0f;
#pragma unroll
      for (int k = 0; k <= G; k++) multiply(product, k, load4(here + stash(r, k)));
      put_product(r, 0, product);
      const float4 q = SCALE * load4(input(ring, r, L::GATES)), ds = load4(here + stash(r, G + 2));
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        gain(r, i, ds);  // from the step after this
        const int id = in(i) ? ids(t, r)[lane + 32 * i] : -1;
        share[r][i] = id < 0 ? 0.0f : A::shares(t, r)[place(id)];
        const float4 x = mad(SCALE, load4(at[i] + record(r, G + 1)), q);
        bend[r][i] = {0.5f - rcp(1.0f + ex2(x.x)), 0.5f - rcp(1.0f + ex2(x.y)), 0.5f - rcp(1.0f + ex2(x.z)),
                      0.5f - rcp(1.0f + ex2(x.w))};
      }
    }
  }
  // dL/dh_j of this lane's slots from dL/ds of the step whose shares these are
  MEMBER void gain(int r, int i, float4 ds) {
    const float4 sum = mad(a.mix * share[r][i], ds, load4(at[i] + gathered(r, 1)));
    if (in(i)) store4(at[i] + gathered(r, 1), sum);
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
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (A::beyond(r)) continue;
      float d[EACH], mean = 0.0f;
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const float* from = sm + L::SCORES_IN + r * SLOTS + (in(i) ? lane + 32 * i : 0);
        d[i] = from[0];
#pragma unroll
        for (int c = 1; c < C; c++) d[i] += from[c * R * SLOTS];
        d[i] = share[r][i] > 0.0f ? d[i] : 0.0f;
        mean = mad(share[r][i], d[i], mean);
      }
#pragma unroll
      for (int m = 16; m; m >>= 1) mean += shuffle_xor(mean, m);
      float4 newest = nothing();
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const float de = share[r][i] * (d[i] - mean);
        const float4 half = bend[r][i];
        if constexpr (S::LEARNED) d_score[r][i] += de;
        d_energy = mad(de, half, d_energy);
        bend[r][i] = de * (v * mad(-1.0f * half, half, {0.25f, 0.25f, 0.25f, 0.25f}));
        const float4 key = load4(at[i] + gathered(r, 0)) + bend[r][i];
        if (in(i)) store4(at[i] + gathered(r, 0), key);
        if (i == 0 || slot[r] >= 32) newest = key;
      }
      newest = shuffle(newest, slot[r] & 31);
      float product[COLUMNS];
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) product[c] = 0.0f;
      multiply(product, G + 1, newest);
      put_product(r, 1, product);
      if (lane == 0) store4(a.d_keys + from_here + r * H, newest);
    }
  }
  // add up the warps' parts and send each column of both products to its owner
  MEMBER void send_products() {
#pragma unroll
    for (int round = 0; round < L::PRODUCT_ROUNDS; round++) {
      const int task = round * WARPS + warp, r = task / COLUMNS, column = task % COLUMNS * 32 + lane;
      if (r >= rows) continue;
      const float* from = sm + L::PRODUCT + r * 2 * H + column;
      const float2 sums = {total<WARPS>(from, 2 * R * H), total<WARPS>(from + H, 2 * R * H)};
      send2(shared_address(sm + L::STATES_IN + ((rank * R + r) * F + column % F) * 2), sums, states_came, column / F);
    }
  }
  // while the products fly: dL/dq, what the cell will multiply by, and the slots as the step before read them
  MEMBER void settle(int t) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (A::beyond(r)) continue;
      float4 sum = bend[r][0];
#pragma unroll
      for (int i = 1; i < EACH; i++) sum = sum + bend[r][i];
      const bool upper = lane & 16, odd = lane & 8;  // a lane is left with feature lane / 8
      const float x = (upper ? sum.z : sum.x) + shuffle_xor(upper ? sum.x : sum.z, 16);
      const float y = (upper ? sum.w : sum.y) + shuffle_xor(upper ? sum.y : sum.w, 16);
      float dq = (odd ? y : x) + shuffle_xor(odd ? x : y, 8);
#pragma unroll
      for (int m = 4; m; m >>= 1) dq += shuffle_xor(dq, m);
      if ((lane & 7) == 0) here[stash(r, G) + lane / 8] = dq, a.d_queries[from_here + r * H + lane / 8] = dq;
      float score = 0.0f;
      if constexpr (S::LEARNED) {
        score = shuffle(slot[r] < 32 ? d_score[r][0] : d_score[r][EACH - 1], slot[r] & 31);
        if (warp == 0 && rank == 0 && lane == 0) a.d_scores[row(t, r)] = score;
      }
      const float read = shuffle(slot[r] < 32 ? share[r][0] : share[r][EACH - 1], slot[r] & 31);
      if (lane < 4) {
        here[factor(r) + 4 * L::FACTORS - 4 + lane] = a.mix * (1.0f + read);
        float base = widened(reinterpret_cast<Layer*>(input(ring, r, L::GATES + 1))[lane]);
        base += here[gathered(r, 1) + slot[r] * 4 + lane];
        if constexpr (S::LEARNED) base = mad(score, widened(layer(a.worth)[own + lane]), base);
        here[factor(r) + 4 * L::FACTORS - 8 + lane] = base;
      }
    }
    if (lane < rows * 4) {  // of all rows at a time
      const int r = lane / 4, f = lane % 4;
      float from[L::GATES], to[L::FACTORS - 2];
#pragma unroll
      for (int k = 0; k < L::GATES; k++) from[k] = widened(reinterpret_cast<Layer*>(input(ring, r, k))[f]);
      prepare<S>(from, to);
#pragma unroll
      for (int k = 0; k < L::FACTORS - 2; k++) here[factor(r) + 4 * k + f] = to[k];
    }
    warp_sync();
    if (t > 0) restore(t);
  }
  // give the slot of h_t, or after a reset every slot, back to what it held before
  MEMBER void restore(int t) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (A::beyond(r)) continue;
      if constexpr (S::RESET) {
        if (is_reset[r]) {
#pragma unroll
          for (int i = 0; i < EACH; i++) {
            A::refill(t - 1, r, i);
            for (int k = 0; in(i) && k < GATHERED; k++) store4(at[i] + gathered(r, k), nothing());
            d_score[r][i] = 0.0f, share[r][i] = 0.0f;
          }
          continue;
        }
      }
      if (lane < HELD) store4(here + record(r, lane) + slot[r] * 4, load4(here + A::staged(t, r) + lane * 4));
      if (lane < GATHERED) store4(here + gathered(r, lane) + slot[r] * 4, nothing());
#pragma unroll
      for (int i = 0; i < EACH; i++)
        if (lane + 32 * i == slot[r]) d_score[r][i] = 0.0f, share[r][i] = 0.0f;
    }
    warp_sync();
  }
  // what is needed as soon as the products are there; of one row it is read before
  struct Ready {
    float4 factors[L::FACTORS], asked, records[EACH][HELD];
  };
  MEMBER void make_ready(int r, Ready& ready) {
#pragma unroll
    for (int k = 0; k < L::FACTORS; k++) ready.factors[k] = load4(here + factor(r) + 4 * k);
    ready.asked = load4(here + stash(r, G));
#pragma unroll
    for (int i = 0; i < EACH; i++) {
#pragma unroll
      for (int k = 0; k <= G; k++) ready.records[i][k] = load4(at[i] + record(r, k));
      if constexpr (L::DIRECT) ready.records[i][KINDS] = widened4(reinterpret_cast<const Layer*>(at[i] + record(r, KINDS)));
    }
  }
  // when the products are there: through the cell, and on to the scores of the step before
  MEMBER void recede_row(int t, int r, const Ready& ready) {
    float4 ds = nothing(), dh = nothing(), dz[G], g[G + 1], recurred, direct = nothing();
#pragma unroll
    for (int c = 0; c < C; c++) {  // of each feature both, side by side
      const float* from = sm + L::STATES_IN + ((c * R + r) * F + warp * 4) * 2;
      const float4 x = load4(from), y = load4(from + 4);
      ds = ds + float4{x.x, x.z, y.x, y.z}, dh = dh + float4{x.y, x.w, y.y, y.w};
    }
    if (L::DIRECT || t == a.steps - 1) ds = ds + load4(here + stash(r, G + 1));
    dh = mad(ready.factors[L::FACTORS - 1], ds, dh + ready.factors[L::FACTORS - 2]);
    recede<S>(ready.factors, dh, d_cell[r], dz, recurred, direct);
#pragma unroll
    for (int k = 0; k < G; k++) g[k] = k == G - 1 ? recurred : dz[k];
    g[G] = ready.asked;
    if constexpr (S::RESET) {
      if (is_reset[r]) {  // nothing came from before
#pragma unroll
        for (int k = 0; k <= G; k++) g[k] = nothing();
        direct = nothing(), d_cell[r] = nothing();
      }
    }
    if (t > 0) {
      score(r, g, [&](int i, int k) { return ready.records[i][k]; }, [&](int i) {
        return L::DIRECT ? direct * ready.records[i][HELD - 1] : nothing();
      });
    }
    warp_sync();  // everybody has read the stash
    if (lane == 0) {
#pragma unroll
      for (int k = 0; k <= G; k++) store4(here + stash(r, k), g[k]);
      store4(here + stash(r, G + 1), direct), store4(here + stash(r, G + 2), ds);
      float* to = a.d_projected + G * (from_here - own + r * H) + own;
#pragma unroll
      for (int k = 0; k < G; k++) store4(to + k * H, dz[k]);
      if (a.d_states) store4(a.d_states + from_here + r * H, dh);
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
    for (int n = thread_index(); n < 3 * rows * SLOTS; n += THREADS) {
      const int t = last - n / (rows * SLOTS), r = n / SLOTS % rows, x = n % SLOTS;
      if (t >= 0) ids(t, r)[x] = a.ids[row(t, r) * SLOTS + x];
    }
    barrier_sync(0, THREADS);
    A::begin_inputs(last);
    A::ask_inputs(last, 0);
    copies_group();
    ring = 2;  // as it was one step on
    A::ask(a.steps);
    ring = 0;
#pragma unroll
    for (int r = 0; r < R; r++) {
      slot[r] = 0, is_reset[r] = false, d_cell[r] = nothing();
      if (A::beyond(r)) continue;
      slot[r] = slot_before[r];
      const int64_t b = first + r;
      if (a.d_cell_state) d_cell[r] = widened4(layer(a.d_cell_state) + b * H + own);
      const float4 arrived = a.d_hidden ? widened4(layer(a.d_hidden) + b * H + own) : nothing();
      if (lane < L::STASHED) store4(here + stash(r, lane), lane == G + 1 ? arrived : nothing());
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        d_score[r][i] = 0.0f, share[r][i] = 0.0f;
        A::refill(last, r, i);
        if (!in(i)) continue;
        const int id = ids(last, r)[lane + 32 * i];
        store4(at[i] + gathered(r, 0), nothing());
        const bool arrives = a.d_slots && id >= 0;
        store4(at[i] + gathered(r, 1),
               arrives ? widened4(layer(a.d_slots) + (b * SLOTS + place(id)) * H + own) : nothing());
      }
      warp_sync();
      float4 g[G + 1];
#pragma unroll
      for (int k = 0; k <= G; k++) g[k] = nothing();
      score(r, g, [&](int, int) { return nothing(); }, [&](int i) {
        const int id = in(i) ? held(last, r, lane + 32 * i) : -1;
        return id < 0 ? nothing() : arrived * widened4(A::state_of(id, r));
      });
    }
    copies_wait<1>();
  }
  MEMBER void walk() {
    begin();
    Watch<S::PROFILE> watch;
    for (int t = a.steps - 1; t >= 0; t--) {
      barrier_sync(0, THREADS);
      watch.stamp(0);
      send_scores();
      watch.stamp(1);
      A::ask(t);
      watch.stamp(2);
      gather(t);
      watch.stamp(3);
      mbarrier_wait(scores_came, (a.steps - 1 - t) & 1);
      if (thread_index() == 0) mbarrier_expect(scores_came, C * rows * SLOTS * 4);
      watch.stamp(4);
      read(t);
      watch.stamp(5);
      copies_wait<1>();
      barrier_sync(1, THREADS);
      watch.stamp(6);
      send_products();
      watch.stamp(7);
      settle(t);
      Ready ready;
      if constexpr (R == 1) make_ready(0, ready);
      watch.stamp(8);
      mbarrier_wait(states_came, (a.steps - 1 - t) & 1);
      if (thread_index() == 0) mbarrier_expect(states_came, C * rows * F * 8);
      watch.stamp(9);
#pragma unroll
      for (int r = 0; r < R; r++) {
        if (A::beyond(r)) continue;
        if constexpr (R > 1) make_ready(r, ready);
        recede_row(t, r, ready);
      }
      watch.stamp(10);
      ring = A::next(ring), from_here -= (int64_t)a.rows * H;
#pragma unroll
      for (int r = 0; r < R; r++) slot[r] = slot_before[r];
    }
    if (cluster_index() == 0 && rank == 0 && lane == 0) watch.write(a.profile, warp);
    end();
  }
  // dL/ds_0 takes one product more; then what the initial slots have gathered, dL/dc_0, and dL/dv of the cluster
  MEMBER void end() {
    cluster_sync();  // no exchange lies between this product and the last: everybody has read that one
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (A::beyond(r)) continue;
      float product[COLUMNS], none[COLUMNS];
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) product[c] = none[c] = 0.0f;
#pragma unroll
      for (int k = 0; k <= G; k++) multiply(product, k, load4(here + stash(r, k)));
      put_product(r, 0, product), put_product(r, 1, none);
#pragma unroll
      for (int i = 0; i < EACH; i++) gain(r, i, load4(here + stash(r, G + 2)));
    }
    barrier_sync(1, THREADS);
    send_products();
    mbarrier_wait(states_came, a.steps & 1);
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (A::beyond(r)) continue;
      const int64_t b = first + r;
      float4 ds = L::DIRECT ? load4(here + stash(r, G + 1)) : nothing();
      for (int c = 0; c < C; c++) {
        const float* from = sm + L::STATES_IN + ((c * R + r) * F + warp * 4) * 2;
        ds = ds + float4{from[0], from[2], from[4], from[6]};
      }
      if (lane == 0) store4(a.d_hidden_out + b * H + own, ds);
      if (S::CELL == LSTM && lane == 0) store4(a.d_cell_state_out + b * H + own, d_cell[r]);
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int x = lane + 32 * i;
        if (!in(i)) continue;
        const bool stayed = held(0, r, x) == x;
        store4(a.d_initial_keys + (b * SLOTS + x) * H + own, stayed ? load4(at[i] + gathered(r, 0)) : nothing());
        store4(a.d_initial_states + (b * SLOTS + x) * H + own, stayed ? load4(at[i] + gathered(r, 1)) : nothing());
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
  Back<S> back(a, reinterpret_cast<float*>(memory));
  if (thread_index() == 0) {
    mbarrier_init(back.scores_came, 1), mbarrier_init(back.states_came, 1);
    mbarrier_fence();
    mbarrier_expect(back.scores_came, back.C * back.rows * back.SLOTS * 4);
    mbarrier_expect(back.states_came, back.C * back.rows * back.F * 8);
  }
  cluster_sync();  // the barriers stand before anyone sends
  back.walk();
  cluster_sync();  // nobody leaves while its memory may be written
}

}  // namespace plait
