// The compute warps of the forward walk: sums over slots, the cell, energies, and the product with each new state.

#pragma once

#include "cells.h"
#include "products.h"

namespace plait {

template <class K>
struct Compute {
  using Layer = typename K::Layer;
  static constexpr int C = K::C, R = K::R, NW = K::NW, F = K::F, H = K::H, G = K::G, QUARTER = K::QUARTER, SLOTS = K::SLOTS;
  static constexpr int G_TASKS = K::G_TASKS, GI = K::GI, PH = (G + 2) * H;
  static constexpr int NI = K::QW - K::FIRST, NV = NI * R;  // what the second part of the products gives a lane
  static constexpr int N = power_over(R), COPIES = 8 / N;   // rows of the first part, lanes that hold the same

  const ForwardArguments& a;
  float* const sm;
  const int warp, lane, rank, own, first_row, rows;  // own: first feature of this block; rows: of this cluster that exist
  const uint32_t mbarriers;
  Products<K> products;
  // of the gates' tasks: cell state, next input and nudge, bias, what slots and newest state hold, what is to be saved
  float c[GI], in[GI], nudge[GI], bias[GI], fresh[GI], act[GI], before[GI], made[GI];
  float4 slot[GI][QUARTER];
  float asked[K::QI > 0 ? K::QI : 1];  // of the queries' tasks: q_t or s_{t-1}

  MEMBER Compute(const ForwardArguments& a_, float* sm_, int warp_, int lane_, int rank_, int first_row_)
      : a(a_), sm(sm_), warp(warp_), lane(lane_), rank(rank_), own(rank_ * F), first_row(first_row_),
        rows(a_.rows - first_row_), mbarriers(shared_address(sm_)) {}

  // ---- who does what
  MEMBER float* record(int r, int at) const { return sm + K::RECORDS + r * (K::PADDED + 1) * K::RECORD + at; }
  MEMBER int where(int r, int parity) const { return reinterpret_cast<int*>(sm)[K::WHERE + parity * 8 + r]; }
  MEMBER bool cut(int r) const { return K::RESET && reinterpret_cast<int*>(sm)[K::CUT + r]; }
  MEMBER int batch_row(int r) const { return first_row + (r < rows ? r : rows - 1); }  // of a row that is not there: the last
  template <int I>
  MEMBER bool has_gates() const { return (I + 1) * NW <= G_TASKS || I * NW + warp < G_TASKS; }
  MEMBER int gates_row(int i) const { return (i * NW + warp) / (F / 8); }
  MEMBER int gates_feature(int i) const { return (i * NW + warp) % (F / 8) * 8 + (lane & 7); }
  template <int I>
  MEMBER bool has_query() const {
    return K::SEPARATE && (I + 1) * NW > G_TASKS && I * NW + warp >= G_TASKS && I * NW + warp < G_TASKS + K::Q_TASKS;
  }
  MEMBER int query_row(int i) const { return (i * NW + warp - G_TASKS) / (F / 16); }
  MEMBER int query_feature(int i) const { return (i * NW + warp - G_TASKS) % (F / 16) * 16 + (lane & 15); }

  // what step t reads from far away
  MEMBER void look_ahead(int t) {
    if (t >= a.steps) return;
    const int part = lane >> 3;
#pragma unroll
    for (int i = 0; i < GI; i++) {
      if (i * NW + warp >= G_TASKS) continue;
      const int64_t row = (int64_t)t * a.rows + batch_row(gates_row(i));
      const int f = own + gates_feature(i);
      in[i] = part < G ? widened(static_cast<const Layer*>(a.projected)[(row * G + part) * H + f]) : 0.0f;
      if constexpr (K::NUDGE) nudge[i] = widened(static_cast<const Layer*>(a.nudge)[row * H + f]);
    }
  }

  MEMBER void prepare() {
    products.load(a, sm, warp, lane, own);
    const Layer* vector = static_cast<const Layer*>(K::CELL == GRU ? a.candidate_bias : a.modrelu_bias);
#pragma unroll
    for (int i = 0; i < GI; i++) {
      const bool mine = i * NW + warp < G_TASKS;
      const int f = own + (mine ? gates_feature(i) : 0);
      c[i] = 0.0f, in[i] = 0.0f, nudge[i] = 0.0f;
      if (K::CELL == LSTM && mine) c[i] = widened(static_cast<const Layer*>(a.cell_state)[(int64_t)batch_row(gates_row(i)) * H + f]);
      bias[i] = vector ? widened(vector[f]) : 0.0f;
    }
    look_ahead(0);
  }

  // P of s_0 and of the slots that came in, one after the other; records of empty slots stay zero.
  MEMBER void take_in() {
    uint32_t occupied = 0;
    for (int r = 0; r < R; r++) occupied |= (uint32_t)reinterpret_cast<int*>(sm)[K::OCCUPIED + r];
    float* h = sm + K::H_IN + R * H;  // nobody sends to the second buffer before all have taken their slots in
    for (int j = -1; j < SLOTS; j++) {
      if (j >= 0 && !(occupied >> j & 1)) continue;
      barrier_sync(COMPUTED, NW * 32);
      for (int n = warp * 32 + lane; n < R * H; n += NW * 32) {
        const int64_t b = batch_row(n / H);
        const bool there = j < 0 || reinterpret_cast<int*>(sm)[K::OCCUPIED + n / H] >> j & 1;
        const Layer* from = static_cast<const Layer*>(j < 0 ? a.hidden : a.slots) + (j < 0 ? b : b * SLOTS + j) * H;
        h[n] = there ? widened(from[n % H]) : 0.0f;
      }
      barrier_sync(COMPUTED, NW * 32);
      take_product(h, j);
    }
    barrier_sync(COMPUTED, NW * 32);
  }
  MEMBER void take_product(const float* h, int j) {
    const int at = (j < 0 ? K::START : j) * K::RECORD;
#pragma unroll
    for (int i = 0; i < K::QW; i++) {
      const int q = i * NW + warp;
      if (q >= K::NQ) continue;
      const int block = K::block_of(q), f = q % K::KQ * 4 + products.g;
#pragma unroll 1
      for (int r = 0; r < R; r++) {
        float v[K::COLUMNS], sum[1];
        products.state_part(h + r * H, products.ks, v);
        sum[0] = products.template part<1>(i, v);
        const float value = reduce8<1>(sum, products.ks);
        if (products.ks) continue;
        put(record(r, at), block, f, value, h[r * H + own + f]);
        const bool occupied = j >= 0 && reinterpret_cast<int*>(sm)[K::OCCUPIED + r] >> j & 1;
        if (K::SAVE && occupied && r < rows) a.products[((int64_t)j * a.rows + first_row + r) * PH + block * H + own + f] = value;
      }
    }
  }
  // One number of P into a record; with W_a h goes the state itself.
  MEMBER void put(float* to, int block, int f, float value, float h) {
    to[K::in_record(block, f)] = block == G + 1 ? SCALE * value : value;
    if (block == G) {
      to[K::state_in_record(f)] = h;
      if constexpr (K::CELL == GRU) to[4 * f + 3] = h;
    }
  }

  // ---- sums over slots
  template <int I>
  MEMBER void preload(int parity) {
    if constexpr (I < GI) {
      if (has_gates<I>()) {
        const int r = gates_row(I), f = gates_feature(I), part = lane >> 3;
        const float* from = record(r, part * QUARTER * K::RECORD + 4 * f);
#pragma unroll
        for (int j = 0; j < QUARTER; j++) slot[I][j] = load4(from + j * K::RECORD);
        fresh[I] = record(r, where(r, parity))[4 * f + part];
      }
      preload<I + 1>(parity);
    }
  }
  // alpha of a quarter of the slots
  MEMBER void shares(int r, int quarter, float (&al)[K::AQ]) const {
#pragma unroll
    for (int j = 0; j < K::AQ; j += 4) {
      const float4 x = load4(sm + K::ALPHAS + (r * 4 + quarter) * K::AQ + j);
      al[j] = x.x, al[j + 1] = x.y, al[j + 2] = x.z, al[j + 3] = x.w;
    }
  }
  MEMBER float mixed(int r, float context, float sum, float newest) const {
    const float inverse = sum > 0.0f ? rcp(sum) : 0.0f;
    return cut(r) ? 0.0f : sm[K::FACTOR + r] * mad(context, inverse, newest);
  }

  template <int I>
  MEMBER void gates_task(int t) {
    const int r = gates_row(I), fl = lane & 7, part = lane >> 3, f = gates_feature(I);
    float al[K::AQ], sum = 0.0f;
    shares(r, part, al);
    float4 x = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int j = 0; j < QUARTER; j++) {
      x.x = mad(al[j], slot[I][j].x, x.x), x.y = mad(al[j], slot[I][j].y, x.y);
      x.z = mad(al[j], slot[I][j].z, x.z), x.w = mad(al[j], slot[I][j].w, x.w);
      sum += al[j];
    }
    // over the quarters; lane group g keeps the g-th of the four
    const bool hi = lane & 16, lo = lane & 8;
    const float k0 = (hi ? x.z : x.x) + shuffle_xor(hi ? x.x : x.z, 16), k1 = (hi ? x.w : x.y) + shuffle_xor(hi ? x.y : x.w, 16);
    sum += shuffle_xor(sum, 16);
    const float context = (lo ? k1 : k0) + shuffle_xor(lo ? k0 : k1, 8);
    sum += shuffle_xor(sum, 8);
    const float given = mixed(r, context, sum, fresh[I]);

    before[I] = cut(r) ? 0.0f : c[I];
    CellStep step;
    if constexpr (K::CELL == LSTM) step = lstm_step<Layer>(given, in[I], before[I], part, fl);
    else if constexpr (K::CELL == GRU) step = gru_step<Layer>(given, in[I], bias[I], part, fl);
    else step = elman_step<K::NONLINEARITY>(given, in[I], bias[I], fl);
    const float h = rounded<Layer>(K::NUDGE ? step.h + nudge[I] : step.h);
    c[I] = step.c, made[I] = h, act[I] = step.act;
    send_state(r, f & ~7, t, h);
    if constexpr (K::CELL == ELMAN) {
      before[I] = given;  // q and s_{t-1}, to be saved by their lanes
      if (part == 1) sm[K::Q_AT + r * F + f] = SCALE * given;
    }
    if constexpr (K::LEARNED) {
      float rated = h * widened(static_cast<const Layer*>(a.worth)[own + f]);
#pragma unroll
      for (int m = 4; m; m >>= 1) rated += shuffle_xor(rated, m);
      if (lane == 0) sm[K::SCORE + r * K::SCORES + f / 8] = rated;
    }
  }
  // 8 features of h_t, which every group of 8 lanes holds, to all blocks: lane = block * 2 + half
  MEMBER void send_state(int r, int f, int t, float h) {
    const int half = lane & 1, to = lane >> 1;
    float4 v;
    v.x = shuffle(h, half * 4), v.y = shuffle(h, half * 4 + 1), v.z = shuffle(h, half * 4 + 2), v.w = shuffle(h, half * 4 + 3);
    if (to < C) send4(shared_address(sm + K::H_IN + ((t & 1) * R + r) * H + own + f + half * 4), v, mbarriers, to);
  }
  // 16 features: lane = half of the slots (then query or state) * 16 + feature
  template <int I>
  MEMBER void query_task(int parity) {
    const int r = query_row(I), part = lane >> 4, f = query_feature(I);
    float x = 0.0f, y = 0.0f, sum = 0.0f;
#pragma unroll
    for (int quarter = 0; quarter < 2; quarter++) {
      float al[K::AQ];
      shares(r, part * 2 + quarter, al);
      const float* from = record(r, (part * 2 + quarter) * QUARTER * K::RECORD + K::PAIRS + 2 * f);
#pragma unroll
      for (int j = 0; j < QUARTER; j++) {
        const float2 v = load2(from + j * K::RECORD);
        x = mad(al[j], v.x, x), y = mad(al[j], v.y, y), sum += al[j];
      }
    }
    const float mine = (part ? y : x) + shuffle_xor(part ? x : y, 16);
    sum += shuffle_xor(sum, 16);
    const float value = mixed(r, mine, sum, record(r, where(r, parity))[K::PAIRS + 2 * f + part]);
    if (lane < 16) sm[K::Q_AT + r * F + f] = SCALE * value;
    asked[I - K::QFIRST] = value;
  }
  template <int I>
  MEMBER void tasks(int t) {
    if constexpr (I < K::TASKS) {
      if (has_gates<I>()) {
        if constexpr (I < GI) gates_task<I>(t);
      } else if (has_query<I>()) {
        if constexpr (K::SEPARATE && I >= K::QFIRST) query_task<I>((t + 1) & 1);
      }
      tasks<I + 1>(t);
    }
  }

  // ---- what a step leaves behind, off its path
  MEMBER void save(int t) {
    const int part = lane >> 3;
#pragma unroll
    for (int i = 0; i < GI; i++) {
      const int r = gates_row(i), f = own + gates_feature(i);
      if (i * NW + warp >= G_TASKS || r >= rows) continue;
      const int64_t row = (int64_t)t * a.rows + first_row + r;
      if (part == 3) static_cast<Layer*>(a.output)[row * H + f] = narrowed<Layer>(made[i]);
      if constexpr (K::SAVE) {
        if constexpr (K::SEPARATE) static_cast<Layer*>(a.gates)[(row * 4 + part) * H + f] = narrowed<Layer>(act[i]);
        else if (K::NUDGE && part == 0) static_cast<Layer*>(a.gates)[row * H + f] = narrowed<Layer>(act[i]);
        if (K::CELL == LSTM && part == 2) static_cast<Layer*>(a.cells)[row * H + f] = narrowed<Layer>(before[i]);
        if (K::CELL == ELMAN && part == 1) a.queries[row * H + f] = before[i];
        if (K::CELL == ELMAN && part == 2) static_cast<Layer*>(a.asked)[row * H + f] = narrowed<Layer>(before[i]);
      }
    }
    if constexpr (K::SAVE && K::SEPARATE) save_queries<K::QFIRST>(t);
    look_ahead(t + 1);
  }
  template <int I>
  MEMBER void save_queries(int t) {
    if constexpr (I < K::TASKS) {
      if (has_query<I>() && query_row(I) < rows) {
        const int64_t at = ((int64_t)t * a.rows + first_row + query_row(I)) * H + own + query_feature(I);
        if (lane < 16) a.queries[at] = asked[I - K::QFIRST];
        else static_cast<Layer*>(a.asked)[at] = narrowed<Layer>(asked[I - K::QFIRST]);
      }
      save_queries<I + 1>(t);
    }
  }
  // A row that was reset forgets its records: what they held must not come back, not even as NaN times zero.
  MEMBER void forget() {
    for (int r = 0; r < R; r++)
      if (cut(r))
        for (int n = warp * 32 + lane; n < K::PADDED * K::RECORD; n += NW * 32) record(r, 0)[n] = 0.0f;
  }

  // ---- energies: 8 lanes a slot, 4 slots a round; the last warps first, the first have gates
  MEMBER void old_energies(const float (&v2)[F / 8], float vs) {
    constexpr int ITEMS = R * QUARTER, ROUNDS = ceil_div(ITEMS, NW), E = F / 8;
    const int lp = lane & 7;
#pragma unroll
    for (int j = 0; j < ROUNDS; j++) {
      const int n = j * NW + NW - 1 - warp;
      if ((j + 1) * NW > ITEMS && n >= ITEMS) continue;
      const int r = n / QUARTER, x = n % QUARTER * 4 + (lane >> 3);
      const float* k = record(r, x * K::RECORD + K::KEYS + lp * E);
      const float* q = sm + K::Q_AT + r * F + lp * E;
      float e = vs;
#pragma unroll
      for (int i = 0; i < E; i += 2) {
        const float2 kk = load2(k + i), qq = load2(q + i);
        e = mad(v2[i], half_gap(qq.x, kk.x), e), e = mad(v2[i + 1], half_gap(qq.y, kk.y), e);
      }
#pragma unroll
      for (int m = 4; m; m >>= 1) e += shuffle_xor(e, m);
      if (lp == 0 && x < SLOTS) sm[K::E_OLD + r * K::EROW + x] = e;
    }
  }

  MEMBER void walk() {
    const int ks = products.ks, g = products.g;
    const Layer* energy = static_cast<const Layer*>(a.energy) + own;
    float v2[F / 8], vs = 0.0f, vk[K::IK];
#pragma unroll
    for (int i = 0; i < F / 8; i++) {
      const float v = widened(energy[(lane & 7) * (F / 8) + i]);
      v2[i] = -2.0f * v, vs += v;
    }
#pragma unroll
    for (int i = 0; i < K::IK; i++) vk[i] = i * NW + warp < K::KQ ? widened(energy[(i * NW + warp) * 4 + g]) : 0.0f;

    for (int t = 0; t < a.steps; t++) {
      preload<0>((t + 1) & 1);
      barrier_sync(ALPHA, K::MEET);
      tasks<0>(t);
      if constexpr (K::RESET) forget();
      barrier_sync(PLACED, K::MEET);
      save(t);
      old_energies(v2, vs);
      mbarrier_wait(mbarriers, t & 1);
      if (warp == 0 && lane == 0) mbarrier_expect(mbarriers, K::H_BYTES);
      const float* h = sm + K::H_IN + (t & 1) * R * H;
      new_keys(t, h, vk, ks, g);
      other_products(t, h, ks, g);
      barrier_sync(COMPUTED, NW * 32);
    }
    finish();
  }

  // The key of h_t and its energy, in time for the exchange; then the other products.
  MEMBER void new_keys(int t, const float* h, const float (&vk)[K::IK], int ks, int g) {
    const int kr = ks >> (3 - log2_of(N)), r = kr < R ? kr : 0;
    const bool mine = kr < R && (ks & (COPIES - 1)) == 0;
    float k[K::IK], part = 0.0f;
    if (K::KW == NW || warp < K::KW) {
#pragma unroll
      for (int i = 0; i < K::IK; i++) {
        if ((i + 1) * NW > K::KQ && i * NW + warp >= K::KQ) continue;
        const float q = sm[K::Q_AT + r * F + (i * NW + warp) * 4 + g];
        float v[N];
#pragma unroll
        for (int n = 0; n < N; n++) {
          v[n] = 0.0f;
          if (n >= R) continue;
          float hv[K::COLUMNS];
          products.state_part(h + n * H, ks, hv);
          v[n] = products.template part<R == 1 ? 4 : 1>(i, hv);
        }
        k[i] = reduce8<N>(v, ks);
        part += mad(-2.0f * vk[i], half_gap(q, SCALE * k[i]), vk[i]);
      }
      part += shuffle_xor(part, 8);
      part += shuffle_xor(part, 16);
      if (mine && lane < 8) sm[K::E_NEW + r * K::PK_ROW + warp] = part;
    }
    barrier_arrive(ENERGIES, K::MEET);
    float* to = record(r, where(r, t & 1));
#pragma unroll
    for (int i = 0; i < K::IK; i++) {
      if (((i + 1) * NW > K::KQ && i * NW + warp >= K::KQ) || !mine) continue;
      const int f = (i * NW + warp) * 4 + g;
      to[K::KEYS + f] = SCALE * k[i];
      if (K::SAVE && r < rows) a.products[((int64_t)(SLOTS + t) * a.rows + first_row + r) * PH + (G + 1) * H + own + f] = k[i];
    }
  }
  // h is read anew, lest the compiler takes these products before the barrier.
  MEMBER void other_products(int t, const float* h, int ks, int g) {
    float v[NV];  // by quad, then row
#pragma unroll
    for (int r = 0; r < R; r++) {
      float hv[K::COLUMNS];
      products.state_part(h + r * H, ks, hv);
#pragma unroll
      for (int i = 0; i < NI; i++) v[i * R + r] = products.template part<1>(i + K::FIRST, hv);
    }
    store_products<0>(t, v, h, ks, g);
  }
  // Values BASE.. : up to 8 summed together, then each lane stores one.
  template <int BASE>
  MEMBER void store_products(int t, const float (&v)[NV], const float* h, int ks, int g) {
    if constexpr (BASE < NV) {
      constexpr int COUNT = power_under(NV - BASE), SHIFT = 3 - log2_of(COUNT);
      float part[COUNT];
#pragma unroll
      for (int n = 0; n < COUNT; n++) part[n] = v[BASE + n];
      const float value = reduce8<COUNT>(part, ks);
      const int n = BASE + (ks >> SHIFT), r = n % R, q = (n / R + K::FIRST) * NW + warp;
      const bool not_key = K::FIRST * NW == K::KQ || q >= K::KQ, there = K::NQ % NW == 0 || q < K::NQ;
      if (not_key && there && (ks & ((1 << SHIFT) - 1)) == 0) {
        const int block = K::block_of(q), f = q % K::KQ * 4 + g;
        put(record(r, where(r, t & 1)), block, f, value, h[r * H + own + f]);
        if (K::SAVE && r < rows) a.products[((int64_t)(SLOTS + t) * a.rows + first_row + r) * PH + block * H + own + f] = value;
      }
      store_products<BASE + COUNT>(t, v, h, ks, g);
    }
  }

  // The end: s_T, the cell's state, and slots in the order of their places
  MEMBER void finish() {
    barrier_sync(ALPHA, K::MEET);
    barrier_sync(PLACED, K::MEET);
    const int parity = (a.steps - 1) & 1;
    for (int n = warp * 32 + lane; n < R * F; n += NW * 32) {
      const int r = n / F, f = n % F;
      float context = 0.0f, sum = 0.0f;
      for (int j = 0; j < SLOTS; j++) {
        const float al = sm[K::ALPHAS + (r * 4 + j / QUARTER) * K::AQ + j % QUARTER];
        context = mad(al, record(r, j * K::RECORD)[K::state_in_record(f)], context), sum += al;
      }
      const float s = a.mix * mad(context, rcp(sum), record(r, where(r, parity))[K::state_in_record(f)]);
      if (r < rows) static_cast<Layer*>(a.hidden_out)[(int64_t)(first_row + r) * H + own + f] = narrowed<Layer>(s);
    }
    if constexpr (K::CELL == LSTM) {
#pragma unroll
      for (int i = 0; i < GI; i++)
        if (i * NW + warp < G_TASKS && gates_row(i) < rows && lane < 8)
          static_cast<Layer*>(a.cell_state_out)[(int64_t)(first_row + gates_row(i)) * H + own + gates_feature(i)] = narrowed<Layer>(c[i]);
    }
    for (int n = warp * 32 + lane; n < R * SLOTS * F; n += NW * 32) {
      const int r = n / F / SLOTS, x = n / F % SLOTS, f = n % F;
      const int place = reinterpret_cast<int*>(sm)[K::PLACES + r * K::PADDED + x];
      if (r < rows)
        static_cast<Layer*>(a.slots_out)[((int64_t)(first_row + r) * SLOTS + place) * H + own + f] =
            narrowed<Layer>(record(r, x * K::RECORD)[K::state_in_record(f)]);
    }
  }
};

}  // namespace plait
