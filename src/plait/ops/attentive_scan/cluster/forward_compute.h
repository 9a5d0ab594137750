// The compute warps of the forward walk: sums over slots, the cell, energies, and the product with each new state.

#pragma once

#include "forward_sums.h"

namespace plait {

template <class K>
struct Compute : ForwardSums<K> {
  using Layer = typename K::Layer;
  using T = ForwardSums<K>;
  static constexpr int R = K::R, NW = K::NW, F = K::F, H = K::H, G = K::G, QUARTER = K::QUARTER, SLOTS = K::SLOTS, GI = K::GI;
  using T::a, T::act, T::all_tasks, T::query_sums, T::batch_row, T::before, T::bias, T::c, T::cut, T::first_row, T::in, T::lane, T::made, T::mbarriers, T::nudge, T::own, T::products, T::rank, T::sm, T::tasks_at, T::warp, T::where, T::whole;

  MEMBER Compute(const ForwardArguments& a, float* sm, int warp, int lane, int rank, int first_row)
      : T(a, sm, warp, lane, rank, first_row) {}

  // loads of step t from global memory
  MEMBER void look_ahead(int t) {
    if (t >= a.steps) return;
    const Layer* projected = static_cast<const Layer*>(a.projected) + (int64_t)t * a.rows * (G * H);
    const Layer* nudges = static_cast<const Layer*>(a.nudge) + (K::NUDGE ? (int64_t)t * a.rows * H : 0);
#pragma unroll
    for (int i = 0; i < GI; i++) {
      if (!tasks_at.has_gates(i)) continue;
      in[i] = G == 4 || lane >> 3 < G ? widened(projected[tasks_at.input[i]]) : 0.0f;
      if constexpr (K::NUDGE) nudge[i] = widened(nudges[tasks_at.state[i]]);
    }
  }

  MEMBER void prepare() {
    products.load(a, sm, warp, lane, own);
    tasks_at.prepare(warp, lane, own, first_row, a.rows);
    const Layer* vector = static_cast<const Layer*>(K::CELL == GRU ? a.candidate_bias : a.modrelu_bias);
#pragma unroll
    for (int i = 0; i < GI; i++) {
      c[i] = 0.0f, in[i] = 0.0f, nudge[i] = 0.0f, bias[i] = 0.0f;
      if (!tasks_at.has_gates(i)) continue;
      if (K::CELL == LSTM && a.cell_state) c[i] = widened(static_cast<const Layer*>(a.cell_state)[tasks_at.state[i]]);
      if (vector) bias[i] = widened(vector[tasks_at.state[i] % H]);
    }
    for (int f = warp * 32 + lane; f < F; f += NW * 32) sm[K::V_AT + f] = -2.0f * widened(static_cast<const Layer*>(a.energy)[own + f]);
    look_ahead(0);
  }

  // P of s_0 and of the initial slots, one after the other; records of empty slots stay zero.
  MEMBER void take_in() {
    uint32_t occupied = 0;
    for (int r = 0; r < R; r++) occupied |= (uint32_t)whole(K::OCCUPIED + r);
    float* h = sm + K::H_IN + R * H;  // no block sends to the second buffer before all have loaded their slots
    for (int j = -1; j < SLOTS; j++) {
      if (j >= 0 && !(occupied >> j & 1)) continue;
      barrier_sync(COMPUTED, NW * 32);
      for (int n = warp * 32 + lane; n < R * H; n += NW * 32) {
        const int64_t b = batch_row(n / H);
        const bool there = j < 0 ? a.hidden != nullptr : whole(K::OCCUPIED + n / H) >> j & 1;
        const Layer* from = static_cast<const Layer*>(j < 0 ? a.hidden : a.slots) + (j < 0 ? b : b * SLOTS + j) * H;
        h[n] = there ? widened(from[n % H]) : 0.0f;
      }
      barrier_sync(COMPUTED, NW * 32);
      take_product(h, j);
    }
    barrier_sync(COMPUTED, NW * 32);
  }
  MEMBER void take_product(const float* h, int j) {
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
        const float value = reduce8<1>(sum, products.ks), scaled = block == G + 1 ? SCALE * value : value;
        if (products.ks) continue;
        float* record = sm + K::record(r, j < 0 ? K::START : j);
        record[K::in_record(block, f)] = scaled;
        if (block == G) put_state(record, f, h[r * H + own + f]);
        const bool occupied = j >= 0 && whole(K::OCCUPIED + r) >> j & 1;
        if (K::SAVE && occupied) a.products[((int64_t)j * a.rows + batch_row(r)) * K::PH + block * H + own + f] = value;
      }
    }
  }
  MEMBER void put_state(float* record, int f, float h) {
    record[K::state_in_record(f)] = h;
    if constexpr (K::CELL == GRU) record[4 * f + 3] = h;
  }

  // ---- results of a step, written off its critical path
  MEMBER void save(int t) {
    const int part = lane >> 3;
    const int64_t states = (int64_t)t * a.rows * H;
    Layer *output = static_cast<Layer*>(a.output) + states, *gates = static_cast<Layer*>(a.gates) + states * (K::SEPARATE ? 4 : 1);
    Layer *s = static_cast<Layer*>(a.prev_states) + states, *cells = static_cast<Layer*>(a.cells) + states;
    float* q = a.queries + states;
#pragma unroll
    for (int i = 0; i < GI; i++) {
      if (!tasks_at.has_gates(i)) continue;
      const int at = tasks_at.state[i];
      if (part == 3) {
        output[at] = narrowed<Layer>(made[i]);
        put_state(sm + where(tasks_at.gates_row(i), t & 1), tasks_at.gates_in[i] / 4, made[i]);
      }
      if constexpr (K::SAVE) {
        if constexpr (K::SEPARATE) gates[tasks_at.gate[i]] = narrowed<Layer>(act[i]);
        else if (K::NUDGE && part == 0) gates[at] = narrowed<Layer>(act[i]);
        if (K::CELL == LSTM && part == 2) cells[at] = narrowed<Layer>(before[i]);
        if (K::CELL == ELMAN && part == 1) q[at] = before[i];
        if (K::CELL == ELMAN && part == 2) s[at] = narrowed<Layer>(before[i]);
      }
    }
    if constexpr (K::SAVE && K::SEPARATE) {
#pragma unroll
      for (int i = 0; i < K::QI; i++) {
        if (!tasks_at.has_query(i + K::QFIRST)) continue;
        if (lane < 16) q[tasks_at.query[i]] = query_sums[i];
        else s[tasks_at.query[i]] = narrowed<Layer>(query_sums[i]);
      }
    }
    look_ahead(t + 1);
  }
  // The records of a reset row are cleared, so that not even a NaN times zero remains.
  MEMBER void forget() {
    for (int r = 0; r < R; r++)
      if (cut(r))
        for (int n = warp * 32 + lane; n < K::PADDED * K::RECORD; n += NW * 32) sm[K::record(r, 0) + n] = 0.0f;
  }

  // ---- energies: 8 lanes a slot, 4 slots a round
  MEMBER void old_energies(float vs) {
    constexpr int E = F / 8;
    float all[K::ROUNDS];
#pragma unroll
    for (int j = 0; j < K::ROUNDS; j++) {
      if (K::ROUNDS == 1 && !tasks_at.has_energies(j)) continue;  // all rounds are computed, and some are discarded
      const float *k = sm + tasks_at.energy_key[j], *q = sm + tasks_at.energy_query[j], *v = sm + K::V_AT + (lane & 7) * E;
      float e = vs;
#pragma unroll
      for (int i = 0; i < E; i += 2) {
        float2 kk, qq, vv;
        if constexpr (E % 4 == 0) {
          const float4 k4 = load4(k + i / 4 * 4), q4 = load4(q + i / 4 * 4), v4 = load4(v + i / 4 * 4);
          if (i % 4) kk = {k4.z, k4.w}, qq = {q4.z, q4.w}, vv = {v4.z, v4.w};
          else kk = {k4.x, k4.y}, qq = {q4.x, q4.y}, vv = {v4.x, v4.y};
        } else {
          kk = load2(k + i), qq = load2(q + i), vv = load2(v + i);
        }
        e = mad(vv.x, half_gap(qq.x, kk.x), e), e = mad(vv.y, half_gap(qq.y, kk.y), e);
      }
#pragma unroll
      for (int m = 4; m; m >>= 1) e += shuffle_xor(e, m);
      all[j] = e;
    }
#pragma unroll
    for (int j = 0; j < K::ROUNDS; j++)
      if (tasks_at.energy_to[j] >= 0) sm[tasks_at.energy_to[j]] = all[j];
  }

  MEMBER void walk() {
    float vs = 0.0f;  // of this lane's features; e = sum v - 2 sum v r
    for (int i = 0; i < F / 8; i++) vs += -0.5f * sm[K::V_AT + (lane & 7) * (F / 8) + i];
    for (int t = 0; t < a.steps; t++) {
      barrier_sync(ALPHA, K::MEET);
      all_tasks(t);
      if constexpr (K::RESET) forget();
      barrier_sync(PLACED, K::MEET);
      save(t);
      old_energies(vs);
      mbarrier_wait(mbarriers, t & 1);
      if (warp == 0 && lane == 0) mbarrier_expect(mbarriers, K::H_BYTES);
      const float* h = sm + K::H_IN + (t & 1) * R * H;
      float* saved = a.products + (K::SAVE ? (int64_t)(SLOTS + t) * a.rows * K::PH : 0);
      new_keys(t, h, saved);
      other_products(t, h, saved);
    }
    finish();
  }

  // The key of h_t and its energy, in time for the exchange
  MEMBER void new_keys(int t, const float* h, float* saved) {
    const int ks = products.ks, r = K::key_row(ks) < R ? K::key_row(ks) : 0;
    float k[K::IK], part = 0.0f;
    if (K::KW == NW || warp < K::KW) {
#pragma unroll
      for (int i = 0; i < K::IK; i++) {
        if ((i + 1) * NW > K::KQ && i * NW + warp >= K::KQ) continue;
        const int f = (i * NW + warp) * 4 + products.g;
        const float q = sm[K::Q_AT + r * F + f], v2 = sm[K::V_AT + f];
        float v[K::KN];
#pragma unroll
        for (int n = 0; n < K::KN; n++) {
          v[n] = 0.0f;
          if (n >= R) continue;
          float hv[K::COLUMNS];
          products.state_part(h + n * H, ks, hv);
          v[n] = products.template part<R == 1 ? 4 : 1>(i, hv);
        }
        k[i] = reduce8<K::KN>(v, ks);
        part += mad(v2, half_gap(q, SCALE * k[i]), -0.5f * v2);
      }
      part += shuffle_xor(part, 8);
      part += shuffle_xor(part, 16);
      if (lane < 8 && tasks_at.owns_key) sm[K::E_NEW + r * K::PK_ROW + warp] = part;
    }
    barrier_arrive(ENERGIES, K::MEET);
    if (!tasks_at.owns_key) return;
    float* to = sm + where(r, t & 1) + K::KEYS + warp * 4 + products.g;
#pragma unroll
    for (int i = 0; i < K::IK; i++) {
      if ((i + 1) * NW > K::KQ && i * NW + warp >= K::KQ) continue;
      to[i * NW * 4] = SCALE * k[i];
      if constexpr (K::SAVE) saved[tasks_at.key + i * NW * 4] = k[i];
    }
  }
  // The other products; h is read again so that the compiler does not move these before the barrier.
  MEMBER void other_products(int t, const float* h, float* saved) {
    float v[K::NV];  // by quad, then row
#pragma unroll
    for (int r = 0; r < R; r++) {
      float hv[K::COLUMNS];
      products.state_part(h + r * H, products.ks, hv);
#pragma unroll
      for (int i = 0; i < K::NI; i++) v[i * R + r] = products.template part<1>(i + K::FIRST, hv);
    }
    store_products<0, 0>(t, v, saved);
  }
  // Values BASE.. : up to 8 summed together, then each lane stores one.
  template <int BASE, int GROUP>
  MEMBER void store_products(int t, const float (&v)[K::NV], float* saved) {
    if constexpr (BASE < K::NV) {
      constexpr int COUNT = power_under(K::NV - BASE);
      float part[COUNT];
#pragma unroll
      for (int n = 0; n < COUNT; n++) part[n] = v[BASE + n];
      const float value = reduce8<COUNT>(part, products.ks);
      const int r = (BASE + (products.ks >> (3 - log2_of(COUNT)))) % R, in_record = tasks_at.product_in[GROUP];
      if (in_record >= 0) {
        sm[where(r, t & 1) + in_record] = value;
        if constexpr (K::SAVE) saved[tasks_at.product[GROUP]] = value;
      }
      store_products<BASE + COUNT, GROUP + 1>(t, v, saved);
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
        context = mad(al, sm[K::record(r, j) + K::state_in_record(f)], context), sum += al;
      }
      const float s = a.mix * mad(context, rcp(sum), sm[where(r, parity) + K::state_in_record(f)]);
      static_cast<Layer*>(a.hidden_out)[(int64_t)batch_row(r) * H + own + f] = narrowed<Layer>(s);
    }
    if constexpr (K::CELL == LSTM) {
#pragma unroll
      for (int i = 0; i < GI; i++)
        if (tasks_at.has_gates(i) && lane < 8) static_cast<Layer*>(a.cell_state_out)[tasks_at.state[i]] = narrowed<Layer>(c[i]);
    }
    for (int n = warp * 32 + lane; n < R * SLOTS * F; n += NW * 32) {
      const int r = n / F / SLOTS, x = n / F % SLOTS, f = n % F;
      const int64_t to = ((int64_t)batch_row(r) * SLOTS + whole(K::PLACES + r * K::PADDED + x)) * H + own + f;
      static_cast<Layer*>(a.slots_out)[to] = narrowed<Layer>(sm[K::record(r, x) + K::state_in_record(f)]);
    }
  }
};

}  // namespace plait
