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
// Everything from far away is asked for two steps before it is used.

#pragma once

#include "backward_cells.h"

namespace plait {

template <class S>
struct Back : BackLayout<S> {
  using L = BackLayout<S>;
  using Layer = typename S::Layer;
  using L::C, L::COLUMNS, L::EACH, L::F, L::G, L::GATHERED, L::H, L::HELD, L::INPUTS, L::KINDS, L::R, L::SLOTS, L::THREADS,
      L::WARPS, L::WIDTH;

  const BackwardArguments& a;
  float* const sm;
  const int warp, lane, rank, first, rows;  // first: row of the cluster; rows: how many of its R exist
  const int own;                            // the first of this warp's features
  const uint32_t scores_came, states_came;
  float w[L::REGISTER_KINDS * 4][COLUMNS];  // rows of M, the columns of this lane
  float product[R][COLUMNS];
  float4 gap[R][EACH], d_cell[R], d_energy, v;
  float share[R][EACH], d_score[R][EACH];
  int slot[R], slot_before[R];              // where h_t lies, and h_{t-1}
  bool is_reset[R];

  MEMBER Back(const BackwardArguments& arguments, float* memory)
      : a(arguments), sm(memory), warp(thread_index() / 32), lane(thread_index() % 32), rank(block_rank()),
        first(cluster_index() * R), rows(a.rows - first < R ? a.rows - first : R), own(rank * F + warp * 4),
        scores_came(shared_address(memory)), states_came(shared_address(memory) + 8) {}

  // ---- where things lie
  MEMBER float* record(int r, int kind, int x) { return sm + L::RECORDS + (((r * WARPS + warp) * HELD + kind) * SLOTS + x) * 4; }
  MEMBER float* gathered(int r, int kind, int x) {
    return sm + L::GATHERS + (((r * WARPS + warp) * GATHERED + kind) * SLOTS + x) * 4;
  }
  MEMBER float* staged(int t, int r, int kind) { return sm + L::STAGED + (((t & 1) * R + r) * WARPS + warp) * HELD * 4 + kind * 4; }
  MEMBER float* input(int t, int r, int chunk) {
    return sm + L::INPUT + (((t % 3 * R + r) * WARPS + warp) * INPUTS + chunk) * 4;
  }
  MEMBER float* factor(int r) { return sm + L::FACTOR + (r * WARPS + warp) * L::FACTORS * 4; }
  MEMBER float* stash(int r, int kind) { return sm + L::STASH + ((r * WARPS + warp) * L::STASHED + kind) * 4; }
  MEMBER int* ids(int t, int r) { return reinterpret_cast<int*>(sm + L::IDS) + (t % 5 * R + r) * SLOTS; }
  MEMBER int held(int t, int r, int x) { return x < SLOTS ? ids(t, r)[x] >> PLACE_BITS : -1; }
  MEMBER int64_t row(int t, int r) { return (int64_t)t * a.rows + first + r; }
  MEMBER const Layer* layer(const void* p) { return static_cast<const Layer*>(p); }

  // chunk `kind` of state `id`: P by kind, then h itself
  MEMBER const void* state(int id, int r, int kind) {
    const int64_t b = first + r;
    if (kind < KINDS) return a.products + (id * (int64_t)a.rows + b) * WIDTH + kind * H + own;
    if (id < SLOTS) return layer(a.slots) + (b * SLOTS + id) * H + own;
    return layer(a.output) + row(id - SLOTS, r) * H + own;
  }
  // the slot that h_t was written to
  MEMBER int slot_of(int t, int r) {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      const uint32_t found = vote(held(t, r, lane + 32 * i) == SLOTS + t);
      if (found) return first_bit(found) + 32 * i;
    }
    return 0;
  }

  // ---- what is asked for ahead
  MEMBER void ask_input(int t) {
    for (int n = lane; n < rows * INPUTS; n += 32) {
      const int r = n / INPUTS, chunk = n % INPUTS;
      const int64_t at = row(t, r);
      float* to = input(t, r, chunk);
      if (chunk == L::GATES) {
        copy_async<16>(to, a.queries + at * H + own, true);
      } else if (chunk == L::GATES + 1) {
        copy_async<4 * sizeof(Layer)>(to, layer(a.d_output ? a.d_output : a.output) + at * H + own, a.d_output != nullptr);
      } else if (chunk < 4 && (S::CELL != ELMAN || a.gates)) {
        copy_async<4 * sizeof(Layer)>(to, layer(a.gates) + at * (S::CELL == ELMAN ? 1 : 4) * H + chunk * H + own, true);
      } else {
        const void* from = S::CELL == ELMAN ? a.output : S::CELL == LSTM ? a.cells : a.asked;
        copy_async<4 * sizeof(Layer)>(to, layer(from) + at * H + own, true);
      }
    }
    for (int r = warp; r < rows; r += WARPS)
      for (int x = lane; x < SLOTS; x += 32)
        copy_async<4>(sm + L::SHARE + (t % 3 * R + r) * SLOTS + x, a.weights + row(t, r) * SLOTS + x, true);
  }
  // for a step two steps on, and for the one before it the state that comes back where h_{t-1} lies
  MEMBER void ask(int t) {
    if (t >= 2) ask_input(t - 2);
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (r >= rows || t < 1) continue;
      slot_before[r] = slot_of(t - 1, r);
      if (t < 2 || lane >= HELD) continue;
      const int id = held(t - 2, r, slot_before[r]);
      const void* from = state(id < 0 ? 0 : id, r, lane);
      if (L::DIRECT && lane == KINDS) copy_async<4 * sizeof(Layer)>(staged(t - 1, r, lane), from, id >= 0);
      else copy_async<16>(staged(t - 1, r, lane), from, id >= 0);
    }
    if (t >= 4)
      for (int r = warp; r < rows; r += WARPS)
        for (int x = lane; x < SLOTS; x += 32) copy_async<4>(ids(t - 4, r) + x, a.ids + row(t - 4, r) * SLOTS + x, true);
    copies_group();
  }
  // slot x with what it held at step t
  MEMBER void refill(int t, int r, int x) {
    const int id = held(t, r, x);
#pragma unroll
    for (int kind = 0; kind < HELD; kind++) {
      if (kind < KINDS) store4(record(r, kind, x), id < 0 ? nothing() : load4(static_cast<const float*>(state(id, r, kind))));
      else
#pragma unroll
        for (int f = 0; f < 4; f++)
          reinterpret_cast<Layer*>(record(r, kind, x))[f] = id < 0 ? Layer{} : static_cast<const Layer*>(state(id, r, kind))[f];
    }
  }

  // ---- the stages of a step
  // this warp's part of dL/da_j, for the step that read the slots as they are now
  template <class Direct>
  MEMBER void score(int r, const float4 (&g)[G + 1], Direct direct) {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      const int x = lane + 32 * i;
      if (x >= SLOTS) continue;
      float sum = direct(x);
#pragma unroll
      for (int k = 0; k <= G; k++) sum = dot(g[k], load4(record(r, k, x)), sum);
      sm[L::SCORE + (warp * R + r) * SLOTS + x] = a.mix * sum;
    }
  }
  // add up the warps' parts and send them to everybody
  MEMBER void send_scores() {
    for (int task = warp; task < rows * C; task += WARPS) {
      const int r = task / C, to = task % C;
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int x = lane + 32 * i;
        if (x >= SLOTS) continue;
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < WARPS; n++) sum += sm[L::SCORE + (n * R + r) * SLOTS + x];
        send(shared_address(sm + L::SCORES_IN + (rank * R + r) * SLOTS + x), sum, scores_came, to);
      }
    }
  }
  // while the scores fly: what needs no score
  MEMBER void gather(int t) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (r >= rows) continue;
      is_reset[r] = a.reset && a.reset[row(t, r)];
      const bool direct = L::DIRECT || t == a.steps - 1;
      const float4 q = load4(input(t, r, L::GATES));
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int x = lane + 32 * i, id = held(t, r, x);
        share[r][i] = id < 0 ? 0.0f : sm[L::SHARE + (t % 3 * R + r) * SLOTS + (ids(t, r)[x] & ((1 << PLACE_BITS) - 1))];
        gap[r][i] = nothing();
        if (id < 0) continue;
        const float part = a.mix * (share[r][i] + (x == slot[r] ? 1.0f : 0.0f));
#pragma unroll
        for (int k = 0; k <= G; k++) store4(gathered(r, k, x), mad(part, load4(stash(r, k)), load4(gathered(r, k, x))));
        if (direct) store4(gathered(r, KINDS, x), mad(part, load4(stash(r, G + 1)), load4(gathered(r, KINDS, x))));
        const float4 k = load4(record(r, G + 1, x));
        gap[r][i] = {half_gap(SCALE * q.x, SCALE * k.x), half_gap(SCALE * q.y, SCALE * k.y),
                     half_gap(SCALE * q.z, SCALE * k.z), half_gap(SCALE * q.w, SCALE * k.w)};
      }
      warp_sync();
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) product[r][c] = 0.0f;
#pragma unroll
      for (int k = 0; k <= G; k++) multiply(r, k, load4(gathered(r, k, slot[r])));
    }
  }
  // add four rows of M, of one kind, times d
  MEMBER void multiply(int r, int kind, float4 d) {
    const float each[4] = {d.x, d.y, d.z, d.w};
#pragma unroll
    for (int f = 0; f < 4; f++) {
      if (kind < L::REGISTER_KINDS) {
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) product[r][c] = mad(w[kind < L::REGISTER_KINDS ? kind * 4 + f : 0][c], each[f], product[r][c]);
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
    return sm + L::WEIGHTS + (((((kind - L::REGISTER_KINDS) * WARPS + warp) * 4 + f) * COLUMNS + c) * 32 + lane * 4);
  }
  // when they are there: through the softmax and tanh to keys, query and v; the product is complete
  MEMBER void read(int t) {
    mbarrier_wait(scores_came, (a.steps - 1 - t) & 1);
    if (thread_index() == 0) mbarrier_expect(scores_came, C * rows * SLOTS * 4);
    const float4 slope = 4.0f * v;
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (r >= rows) continue;
      float d[EACH], mean = 0.0f;
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        d[i] = 0.0f;
        if (share[r][i] > 0.0f)
#pragma unroll
          for (int c = 0; c < C; c++) d[i] += sm[L::SCORES_IN + (c * R + r) * SLOTS + lane + 32 * i];
        mean = mad(share[r][i], d[i], mean);
      }
#pragma unroll
      for (int m = 16; m; m >>= 1) mean += shuffle_xor(mean, m);
      float4 newest = nothing();
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int x = lane + 32 * i;
        const float de = share[r][i] * (d[i] - mean);
        const float4 ratio = gap[r][i];
        d_score[r][i] += de;
        d_energy = mad(de, {1.0f - 2.0f * ratio.x, 1.0f - 2.0f * ratio.y, 1.0f - 2.0f * ratio.z, 1.0f - 2.0f * ratio.w}, d_energy);
        const float4 bent = {ratio.x - ratio.x * ratio.x, ratio.y - ratio.y * ratio.y, ratio.z - ratio.z * ratio.z,
                             ratio.w - ratio.w * ratio.w};
        gap[r][i] = de * (slope * bent);
        if (x >= SLOTS) continue;
        const float4 key = load4(gathered(r, G + 1, x)) + gap[r][i];
        store4(gathered(r, G + 1, x), key);
        if (x == slot[r]) newest = key;
      }
      const int from = slot[r] & 31;
      newest = {shuffle(newest.x, from), shuffle(newest.y, from), shuffle(newest.z, from), shuffle(newest.w, from)};
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
      if (lane == 0) store4(a.d_keys + row(t, r) * H + own, newest);
    }
  }
  // add up the warps' parts and send each column to its owner
  MEMBER void send_products() {
    for (int task = warp; task < rows * COLUMNS; task += WARPS) {
      const int r = task / COLUMNS, column = task % COLUMNS * 32 + lane;
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < WARPS; n++) sum += sm[L::PRODUCT + (n * R + r) * H + column];
      send(shared_address(sm + L::STATES_IN + (rank * R + r) * F + column % F), sum, states_came, column / F);
    }
  }
  // while the product flies: dL/dq, what the cell will multiply by, and the slots as the step before read them
  MEMBER void settle(int t) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (r >= rows) continue;
      float4 sum = gap[r][0];
#pragma unroll
      for (int i = 1; i < EACH; i++) sum = sum + gap[r][i];
      const bool upper = lane & 16, odd = lane & 8;  // a lane is left with feature lane / 8
      const float x = (upper ? sum.z : sum.x) + shuffle_xor(upper ? sum.x : sum.z, 16);
      const float y = (upper ? sum.w : sum.y) + shuffle_xor(upper ? sum.y : sum.w, 16);
      float dq = (odd ? y : x) + shuffle_xor(odd ? x : y, 8);
#pragma unroll
      for (int m = 4; m; m >>= 1) dq += shuffle_xor(dq, m);
      if ((lane & 7) == 0) stash(r, G)[lane >> 3] = dq, a.d_queries[row(t, r) * H + own + (lane >> 3)] = dq;
      float score = 0.0f;
      if (a.worth) {
        score = shuffle(slot[r] < 32 ? d_score[r][0] : d_score[r][EACH - 1], slot[r] & 31);
        if (warp == 0 && rank == 0 && lane == 0) a.d_scores[row(t, r)] = score;
      }
      if (lane < 4) {
        float base = widened(reinterpret_cast<Layer*>(input(t, r, L::GATES + 1))[lane]) + gathered(r, KINDS, slot[r])[lane];
        if (a.worth) base = mad(score, widened(layer(a.worth)[own + lane]), base);
        factor(r)[4 * (L::FACTORS - 1) + lane] = base;
      }
    }
    if (lane < rows * 4) {  // of all rows at a time
      const int r = lane / 4, f = lane % 4;
      float in[L::GATES], out[L::FACTORS - 1];
#pragma unroll
      for (int k = 0; k < L::GATES; k++) in[k] = widened(reinterpret_cast<Layer*>(input(t, r, k))[f]);
      prepare<S>(in, out);
#pragma unroll
      for (int k = 0; k < L::FACTORS - 1; k++) factor(r)[4 * k + f] = out[k];
    }
    warp_sync();
    if (t > 0) restore(t);
  }
  // give the slot of h_t, or after a reset every slot, back to what it held before
  MEMBER void restore(int t) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (r >= rows) continue;
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int x = lane + 32 * i;
        const bool changes = x != slot[r] && held(t, r, x) != held(t - 1, r, x);
        if (changes || x == slot[r]) d_score[r][i] = 0.0f;
        if (changes) {
          refill(t - 1, r, x);
#pragma unroll
          for (int k = 0; k < GATHERED; k++) store4(gathered(r, k, x), nothing());
        }
      }
      if (lane < HELD) store4(record(r, lane, slot[r]), load4(staged(t, r, lane)));
      if (lane < GATHERED) store4(gathered(r, lane, slot[r]), nothing());
    }
    warp_sync();
  }
  // the one that has this lane's number
  template <int N>
  MEMBER float4 picked(const float4 (&of)[N]) {
    float4 one = of[0];
#pragma unroll
    for (int k = 1; k < N; k++) {
      const float4 v = {in_register(of[k].x), in_register(of[k].y), in_register(of[k].z), in_register(of[k].w)};
      if (lane == k) one = v;
    }
    return one;
  }
  // when the product is there: through the cell, and on to the scores of the step before
  MEMBER void recede_all(int t) {
    mbarrier_wait(states_came, (a.steps - 1 - t) & 1);
    if (thread_index() == 0) mbarrier_expect(states_came, C * rows * F * 4);
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (r >= rows) continue;
      float4 dh = nothing(), dz[G], g[G + 1], recurred, direct = nothing();
#pragma unroll
      for (int c = 0; c < C; c++) dh = dh + load4(sm + L::STATES_IN + (c * R + r) * F + warp * 4);
      dh = dh + load4(factor(r) + 4 * (L::FACTORS - 1));
      recede<S>(factor(r), dh, d_cell[r], dz, recurred, direct);
      if (a.d_states && lane == G) store4(a.d_states + row(t, r) * H + own, dh);
      if (lane < G) store4(a.d_projected + row(t, r) * G * H + lane * H + own, picked(dz));
#pragma unroll
      for (int k = 0; k < G; k++) g[k] = k == G - 1 ? recurred : dz[k];
      g[G] = load4(stash(r, G));
      if (is_reset[r]) {  // nothing came from before
#pragma unroll
        for (int k = 0; k <= G; k++) g[k] = nothing();
        direct = nothing(), d_cell[r] = nothing();
      }
      if (t > 0) {
        score(r, g, [&](int x) {
          if constexpr (L::DIRECT) return dot(direct, widened4(reinterpret_cast<const Layer*>(record(r, KINDS, x))), 0.0f);
          return 0.0f;
        });
      }
      warp_sync();
      if (lane <= G) store4(stash(r, lane), picked(g));
      if (lane == G + 1) store4(stash(r, G + 1), direct);
    }
    warp_sync();
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
    v = widened4(layer(a.energy) + own), d_energy = nothing();
    for (int n = thread_index(); n < 4 * rows * SLOTS; n += THREADS) {
      const int t = last - n / (rows * SLOTS), r = n / SLOTS % rows, x = n % SLOTS;
      if (t >= 0) ids(t, r)[x] = a.ids[row(t, r) * SLOTS + x];
    }
    barrier_sync(0, THREADS);
    ask_input(last);
    copies_group();
    ask(a.steps);
#pragma unroll
    for (int r = 0; r < R; r++) {
      slot[r] = 0, is_reset[r] = false, d_cell[r] = nothing();
      if (r >= rows) continue;
      slot[r] = slot_before[r];
      const int64_t b = first + r;
      if (a.d_cell_state) d_cell[r] = widened4(layer(a.d_cell_state) + b * H + own);
      const float4 arrived = a.d_hidden ? widened4(layer(a.d_hidden) + b * H + own) : nothing();
      for (int k = lane; k < L::STASHED; k += 32) store4(stash(r, k), k == G + 1 ? arrived : nothing());
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int x = lane + 32 * i, id = held(last, r, x);
        d_score[r][i] = 0.0f;
        if (x >= SLOTS) continue;
        refill(last, r, x);
#pragma unroll
        for (int k = 0; k < KINDS; k++) store4(gathered(r, k, x), nothing());
        const int place = ids(last, r)[x] & ((1 << PLACE_BITS) - 1);
        const bool arrives = a.d_slots && id >= 0;
        store4(gathered(r, KINDS, x), arrives ? widened4(layer(a.d_slots) + (b * SLOTS + place) * H + own) : nothing());
      }
      warp_sync();
      float4 g[G + 1];
#pragma unroll
      for (int k = 0; k <= G; k++) g[k] = nothing();
      score(r, g, [&](int x) {
        const int id = held(last, r, x);
        return id < 0 ? 0.0f : dot(arrived, widened4(static_cast<const Layer*>(state(id, r, KINDS))), 0.0f);
      });
    }
    copies_wait<1>();
  }
  MEMBER void walk() {
    begin();
    for (int t = a.steps - 1; t >= 0; t--) {
      barrier_sync(0, THREADS);
      send_scores();
      ask(t);
      gather(t);
      read(t);
      copies_wait<1>();
      barrier_sync(1, THREADS);
      send_products();
      settle(t);
      recede_all(t);
#pragma unroll
      for (int r = 0; r < R; r++) slot[r] = slot_before[r];
    }
    end();
  }
  // what the initial slots have gathered, and s_0 (a slot more), as dL/d[P; k] and beside it; dL/dc_0, dL/dv of the cluster
  MEMBER void end() {
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (r >= rows) continue;
      const int64_t b = first + r, at = b * (SLOTS + 1);
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int x = lane + 32 * i;
        if (x >= SLOTS) continue;
        const bool stayed = held(0, r, x) == x;
#pragma unroll
        for (int k = 0; k < KINDS; k++)
          store4(a.d_initial + (at + x) * WIDTH + k * H + own, stayed ? load4(gathered(r, k, x)) : nothing());
        store4(a.d_direct + (at + x) * H + own, stayed ? load4(gathered(r, KINDS, x)) : nothing());
        if (a.worth && warp == 0 && rank == 0) a.d_initial_scores[b * SLOTS + x] = stayed ? d_score[r][i] : 0.0f;
      }
      if (lane < KINDS) store4(a.d_initial + (at + SLOTS) * WIDTH + lane * H + own, lane <= G ? load4(stash(r, lane)) : nothing());
      if (lane == 0) store4(a.d_direct + (at + SLOTS) * H + own, L::DIRECT ? load4(stash(r, G + 1)) : nothing());
      if (S::CELL == LSTM && lane == 0) store4(a.d_cell_state_out + b * H + own, d_cell[r]);
    }
#pragma unroll
    for (int m = 16; m; m >>= 1) {
      const float4 other = {shuffle_xor(d_energy.x, m), shuffle_xor(d_energy.y, m), shuffle_xor(d_energy.z, m),
                            shuffle_xor(d_energy.w, m)};
      d_energy = d_energy + other;
    }
    if (lane == 0) store4(a.d_energy + (int64_t)cluster_index() * H + own, d_energy);
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
