// The walk back through time. With P_j = [V; W_a] h_j taken once per state, and g = dL/d[V s_t; W_a s_t] (which step t + 1
// left), what a step does to the slots it read is
//
//     dL/da_j = mix g . P_j              scores, summed over all features: exchanged
//     dL/dP_j += mix (a_j + [j = t]) g   dL/de_j = a_j (dL/da_j - mean), then dL/dk_j, dL/dq_t, dL/dv
//     dL/dh_t = dL/doutput + [V; W_a; U_a]' dL/d[P_t; k_t]      a product over all rows of M: exchanged
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
  using L::C, L::COLUMNS, L::EACH, L::F, L::G, L::GATHERED, L::H, L::HELD, L::KINDS, L::R, L::SLOTS, L::THREADS, L::WARPS,
      L::WIDTH;
  using A::a, A::at, A::first, A::here, A::lane, A::own, A::rank, A::ring, A::rows, A::slot, A::slot_before, A::sm, A::warp;
  using A::factor, A::gathered, A::held, A::ids, A::in, A::input, A::layer, A::place, A::record, A::row, A::stash;

  const uint32_t scores_came, states_came;
  float w[L::REGISTER_KINDS * 4][COLUMNS];  // rows of M, the columns of this lane
  float product[R][COLUMNS];
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
    const bool direct = L::DIRECT || t == a.steps - 1;
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (A::beyond(r)) continue;
      if constexpr (S::RESET) is_reset[r] = a.reset[row(t, r)];
      const float4 q = SCALE * load4(input(ring, r, L::GATES));
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int id = in(i) ? ids(t, r)[lane + 32 * i] : -1;
        share[r][i] = id < 0 ? 0.0f : A::shares(t, r)[place(id)];
        const float part = a.mix * (share[r][i] + (lane + 32 * i == slot[r] ? 1.0f : 0.0f));
        const float4 x = mad(SCALE, load4(at[i] + record(r, G + 1)), q);
        float4 sums[G + 1];  // read all, then write: the compiler does not know that they lie apart
#pragma unroll
        for (int k = 0; k <= G; k++) sums[k] = mad(part, load4(here + stash(r, k)), load4(at[i] + gathered(r, k)));
        if (in(i)) {
#pragma unroll
          for (int k = 0; k <= G; k++) store4(at[i] + gathered(r, k), sums[k]);
          if (direct)
            store4(at[i] + gathered(r, KINDS), mad(part, load4(here + stash(r, G + 1)), load4(at[i] + gathered(r, KINDS))));
        }
        bend[r][i] = {0.5f - rcp(1.0f + ex2(x.x)), 0.5f - rcp(1.0f + ex2(x.y)), 0.5f - rcp(1.0f + ex2(x.z)),
                      0.5f - rcp(1.0f + ex2(x.w))};
      }
      warp_sync();
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) product[r][c] = 0.0f;
#pragma unroll
      for (int k = 0; k <= G; k++) multiply(r, k, load4(here + gathered(r, k) + slot[r] * 4));
    }
  }
  // add four rows of M, of one kind, times d
  MEMBER void multiply(int r, int kind, float4 d) {
    const float each[4] = {d.x, d.y, d.z, d.w};
#pragma unroll
    for (int f = 0; f < 4; f++) {
      if (kind < L::REGISTER_KINDS) {
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
          product[r][c] = mad(w[kind < L::REGISTER_KINDS ? kind * 4 + f : 0][c], each[f], product[r][c]);
      } else {
#pragma unroll
        for (int c = 0; c < COLUMNS; c += 4) {
          const float4 m = load4(shared_weight(kind, f, c));
          product[r][c] = mad(m.x, each[f], product[r][c]), product[r][c + 1] = mad(m.y, each[f], product[r][c + 1]);
          product[r][c + 2] = mad(m.z, each[f], product[r][c + 2]), product[r][c + 3] = mad(m.w, each[f], product[r][c + 3]);
        }
      }
    }
  }
  MEMBER float* shared_weight(int kind, int f, int c) {
    return here + L::WEIGHTS + ((kind - L::REGISTER_KINDS) * 4 + f) * COLUMNS * 32 + c * 32 + lane * 4;
  }
  // when they are there: through the softmax and tanh to keys, query and v; the product is complete
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
        const float4 key = load4(at[i] + gathered(r, G + 1)) + bend[r][i];
        if (in(i)) store4(at[i] + gathered(r, G + 1), key);
        if (i == 0 || slot[r] >= 32) newest = key;
      }
      newest = shuffle(newest, slot[r] & 31);
      multiply(r, G + 1, newest);
      float* to = sm + L::PRODUCT + (warp * R + r) * H;
      if constexpr (L::IN_FOURS) {
#pragma unroll
        for (int c = 0; c < COLUMNS; c += 4)
          store4(to + 32 * c + 4 * lane, {product[r][c], product[r][c + 1], product[r][c + 2], product[r][c + 3]});
      } else {
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) to[32 * c + lane] = product[r][c];
      }
      if (lane == 0) store4(a.d_keys + from_here + r * H, newest);
    }
  }
  // add up the warps' parts and send each column to its owner
  MEMBER void send_products() {
#pragma unroll
    for (int round = 0; round < L::PRODUCT_ROUNDS; round++) {
      const int task = round * WARPS + warp, r = task / COLUMNS, column = task % COLUMNS * 32 + lane;
      if (r >= rows) continue;
      const float* from = sm + L::PRODUCT + r * H + column;
      const float sum = total<WARPS>(from, R * H);
      send(shared_address(sm + L::STATES_IN + (rank * R + r) * F + column % F), sum, states_came, column / F);
    }
  }
  // while the product flies: dL/dq, what the cell will multiply by, and the slots as the step before read them
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
      if (lane < 4) {
        float base = widened(reinterpret_cast<Layer*>(input(ring, r, L::GATES + 1))[lane]);
        base += here[gathered(r, KINDS) + slot[r] * 4 + lane];
        if constexpr (S::LEARNED) base = mad(score, widened(layer(a.worth)[own + lane]), base);
        here[factor(r) + 4 * (L::FACTORS - 1) + lane] = base;
      }
    }
    if (lane < rows * 4) {  // of all rows at a time
      const int r = lane / 4, f = lane % 4;
      float from[L::GATES], to[L::FACTORS - 1];
#pragma unroll
      for (int k = 0; k < L::GATES; k++) from[k] = widened(reinterpret_cast<Layer*>(input(ring, r, k))[f]);
      prepare<S>(from, to);
#pragma unroll
      for (int k = 0; k < L::FACTORS - 1; k++) here[factor(r) + 4 * k + f] = to[k];
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
            d_score[r][i] = 0.0f;
          }
          continue;
        }
      }
      if (lane < HELD) store4(here + record(r, lane) + slot[r] * 4, load4(here + A::staged(t, r) + lane * 4));
      if (lane < GATHERED) store4(here + gathered(r, lane) + slot[r] * 4, nothing());
      if constexpr (S::LEARNED) {
#pragma unroll
        for (int i = 0; i < EACH; i++) d_score[r][i] = lane + 32 * i == slot[r] ? 0.0f : d_score[r][i];
      }
    }
    warp_sync();
  }
  // what is needed as soon as the product is there; of one row it is read before
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
  // when the product is there: through the cell, and on to the scores of the step before
  MEMBER void recede_row(int t, int r, const Ready& ready) {
    float4 dh = load4(sm + L::STATES_IN + r * F + warp * 4), dz[G], g[G + 1], recurred, direct = nothing();
#pragma unroll
    for (int c = 1; c < C; c++) dh = dh + load4(sm + L::STATES_IN + (c * R + r) * F + warp * 4);
    dh = dh + ready.factors[L::FACTORS - 1];
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
      store4(here + stash(r, G + 1), direct);
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
        d_score[r][i] = 0.0f;
        A::refill(last, r, i);
        if (!in(i)) continue;
        const int id = ids(last, r)[lane + 32 * i];
        for (int k = 0; k < KINDS; k++) store4(at[i] + gathered(r, k), nothing());
        const bool arrives = a.d_slots && id >= 0;
        store4(at[i] + gathered(r, KINDS),
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
      if (thread_index() == 0) mbarrier_expect(states_came, C * rows * F * 4);
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
  // what the initial slots have gathered, and s_0 (a slot more), as dL/d[P; k] and beside it; dL/dc_0, dL/dv of the cluster
  MEMBER void end() {
    warp_sync();
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (A::beyond(r)) continue;
      const int64_t b = first + r, of_row = b * (SLOTS + 1);
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int x = lane + 32 * i;
        if (!in(i)) continue;
        const bool stayed = held(0, r, x) == x;
        for (int k = 0; k < KINDS; k++)
          store4(a.d_initial + (of_row + x) * WIDTH + k * H + own, stayed ? load4(at[i] + gathered(r, k)) : nothing());
        store4(a.d_direct + (of_row + x) * H + own, stayed ? load4(at[i] + gathered(r, KINDS)) : nothing());
        if (S::LEARNED && warp == 0 && rank == 0) a.d_initial_scores[b * SLOTS + x] = stayed ? d_score[r][i] : 0.0f;
      }
      if (lane < KINDS)
        store4(a.d_initial + (of_row + SLOTS) * WIDTH + lane * H + own, lane <= G ? load4(here + stash(r, lane)) : nothing());
      if (lane == 0) store4(a.d_direct + (of_row + SLOTS) * H + own, L::DIRECT ? load4(here + stash(r, G + 1)) : nothing());
      if (S::CELL == LSTM && lane == 0) store4(a.d_cell_state_out + b * H + own, d_cell[r]);
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
    mbarrier_expect(back.states_came, back.C * back.rows * back.F * 4);
  }
  cluster_sync();  // the barriers stand before anyone sends
  back.walk();
  cluster_sync();  // nobody leaves while its memory may be written
}

}  // namespace plait
