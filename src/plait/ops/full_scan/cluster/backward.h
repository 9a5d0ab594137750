// The walk back. A step is two exchanges: the parts of dq_t, with what the position of h_t has gathered, to all; then
// the parts of ds_{t-1}. A step reads its past once, for dq_t. What a step gives to the positions it read is not added
// there and then, which would be four times the reading: before R = 4 C steps are walked, the R positions they wrote
// gather what all later steps give them, four positions a warp, the steps dealt to warps; among the R the walk adds.

#pragma once

#include "past.h"

namespace plait {

constexpr int HELD = 4;  // positions a block gathers for at a time

template <class S>
struct PastBackwardLayout : PastShape<S> {
  using P = PastShape<S>;
  static constexpr int R = HELD * P::C;
  static constexpr int GIVEN = 0, QUERY_PART = GIVEN + P::HP, STATE = QUERY_PART + P::C * P::HP, SLOPE = STATE + P::HP;
  static constexpr int GIVEN_PART = SLOPE + P::HP, D_QUERY = GIVEN_PART + P::C * P::HP, D_KEY = D_QUERY + P::HP;
  static constexpr int OUTPUTS = D_KEY + P::HP, D_GATES = OUTPUTS + round_up(P::F, 4);
  static constexpr int BESIDE = D_GATES + round_up((P::G + 1) * P::F, 4), WARP_PART = BESIDE + round_up(P::F, 4);
  static constexpr int GATHERED = WARP_PART + P::W * P::HP;  // of each held position: its state's, its key's slope
  static constexpr int COPIES = GATHERED + 2 * HELD * P::HP, NEAR = COPIES + 4 * 2 * HELD * P::HP;
  static constexpr int END = NEAR + S::NEAR * 2 * P::HP;
  static_assert(END * 4 == S::SHARED_BYTES, "Python counts shared memory otherwise");
};

template <class S>
struct PastBackward {
  using K = PastBackwardLayout<S>;
  using Layer = typename K::Layer;

  const BackwardArguments& a;
  float* const sm;
  const int thread, warp, lane, rank, row, width, feature;
  const float *const past, *const barred;
  float dc = 0.0f, dv[K::N];

  MEMBER PastBackward(const BackwardArguments& a, float* sm)
      : a(a), sm(sm), thread(thread_index()), warp(thread / 32), lane(thread % 32), rank(block_rank()),
        row(cluster_index()), width(a.initial + a.steps),
        feature(thread < K::F && rank * K::F + thread < K::H ? rank * K::F + thread : K::H),
        past(a.past + (int64_t)row * width * 2 * K::HP), barred(a.barred + (int64_t)row * a.initial) {}

  MEMBER static const Layer* layer(const void* p) { return reinterpret_cast<const Layer*>(p); }
  MEMBER int first_of(int t) { return a.first ? (int)a.first[(int64_t)t * a.rows + row] : 0; }

  MEMBER void prepare() {
    for (int i = thread; i < K::NEAR; i += K::THREADS) sm[i] = 0.0f;
    for (int i = thread; i < least(own_before<K>(width, rank), S::NEAR) * 2 * K::HP; i += K::THREADS)
      sm[K::NEAR + i] = past[(rank + K::C * (i / (2 * K::HP))) * 2 * K::HP + i % (2 * K::HP)];
    block_sync<K>();
    if (thread < K::H && a.d_hidden) sm[K::GIVEN + thread] = a.mix * widened(layer(a.d_hidden)[row * K::H + thread]);
    if (S::CELL == LSTM && feature < K::H && a.d_cell_state) dc = widened(layer(a.d_cell_state)[row * K::H + feature]);
    clear<K>(dv);
    cluster_sync();
  }

  // What the steps from `begin` on give to HELD positions of this block, base + C n, into GATHERED.
  MEMBER void gather(int base, int end, int begin) {
    Four<K> four;
    float to_state[HELD][K::N], to_slope[HELD][K::N], v[K::N], bar[HELD];
    fetch<K>(v, a.twice_energy, lane);
    four.fetch_all(past, least(base, width - 1) * 2 * K::HP, K::C * 2 * K::HP, base < end ? (end - 1 - base) / K::C : 0, lane);
#pragma unroll
    for (int u = 0; u < HELD; u++) {
      const int p = base + K::C * u;
      bar[u] = p >= end ? -infinity() : p < a.initial ? barred[p] : 0.0f;
      clear<K>(to_state[u]), clear<K>(to_slope[u]);
    }
    for (int t = begin + warp; t < a.steps; t += K::W) {
      const int64_t at = (int64_t)t * a.rows + row;
      const int first = first_of(t);
      if (first > base + K::C * (HELD - 1)) continue;
      float q[K::N], given[K::N], half[HELD][K::N], e[4], d[4];
      fetch<K>(q, a.queries + at * K::HP, lane);
#pragma unroll
      for (int n = 0; n < K::N; n += 4) {
        const int j = n * 32 + 4 * lane;
        const bool in = K::HP % 128 == 0 || j < K::HP;
        const float4 x = in ? load4_fresh(a.given + at * K::HP + j) : float4{0.0f, 0.0f, 0.0f, 0.0f};
        given[n] = x.x, given[n + 1] = x.y, given[n + 2] = x.z, given[n + 3] = x.w;
      }
      const float normaliser = a.normalisers[at], mean = load_fresh(a.means + at);
#pragma unroll
      for (int u = 0; u < HELD; u++) {
        e[u] = 0.0f, d[u] = dot<K>(four.h[u], given);
#pragma unroll
        for (int n = 0; n < K::N; n++) half[u][n] = half_tanh(q[n] + four.k[u][n]), e[u] = mad(v[n], half[u][n], e[u]);
      }
      sum_all(e, d, lane);
#pragma unroll
      for (int u = 0; u < HELD; u++) {
        const float share = base + K::C * u >= first ? exponential(e[u] + bar[u] - normaliser) : 0.0f, score = share * (d[u] - mean);
#pragma unroll
        for (int n = 0; n < K::N; n++) {
          to_state[u][n] = mad(share, given[n], to_state[u][n]);
          to_slope[u][n] = mad(score, mad(-half[u][n], half[u][n], 0.25f), to_slope[u][n]);
        }
      }
    }
    join_copies(to_state, to_slope, base, end);
  }

  // The sums of all warps, in the same order every time: four copies, then one.
  MEMBER void join_copies(const float (&to_state)[HELD][K::N], const float (&to_slope)[HELD][K::N], int base, int end) {
    float* mine = sm + K::COPIES + warp % 4 * 2 * HELD * K::HP;
    for (int turn = 0; turn < K::W / 4; turn++) {
      if (warp / 4 == turn) {
#pragma unroll
        for (int u = 0; u < HELD; u++) {
          float x[K::N], y[K::N];
          clear<K>(x), clear<K>(y);
          if (turn) fetch<K>(x, mine + u * K::HP, lane), fetch<K>(y, mine + (HELD + u) * K::HP, lane);
#pragma unroll
          for (int n = 0; n < K::N; n++) x[n] += to_state[u][n], y[n] += to_slope[u][n];
          keep<K>(mine + u * K::HP, x, lane), keep<K>(mine + (HELD + u) * K::HP, y, lane);
        }
      }
      block_sync<K>();
    }
    for (int i = thread; i < 2 * HELD * K::HP; i += K::THREADS) {
      float sum = 0.0f;
      for (int copy = 0; copy < 4; copy++) sum += sm[K::COPIES + copy * 2 * HELD * K::HP + i];
      const int u = i / K::HP, j = i % K::HP, p = base + K::C * u;  // what arrives at the final slots is a state's
      if (u < HELD && a.d_slots && j < K::H && p < end) sum += a.d_slots[((int64_t)row * width + p) * K::H + j];
      sm[K::GATHERED + i] = sum;
    }
    block_sync<K>();
  }

  // The first of this block's positions from p on.
  MEMBER int own_from(int p) { return p + (rank - p % K::C + K::C) % K::C; }

  struct Step {  // what every lane knows of step t
    float q[K::N], given[K::N], v[K::N], dq[K::N], normaliser, mean;
  };

  MEMBER void add(Step& s, Four<K>& four, int t, int i, int there) {
    float e[4], d[4];
#pragma unroll
    for (int u = 0; u < 4; u++) {
      e[u] = 0.0f, d[u] = dot<K>(four.h[u], s.given);
#pragma unroll
      for (int n = 0; n < K::N; n++) {
        four.k[u][n] = half_tanh(s.q[n] + four.k[u][n]);
        e[u] = mad(s.v[n], four.k[u][n], e[u]);
      }
    }
    sum_all(e, d, lane);
    if (there < 4 || rank + K::C * (t % 2 ? i - 3 : i) < a.initial) {
#pragma unroll
      for (int u = 0; u < 4; u++) {
        const int p = rank + K::C * (t % 2 ? i - u : i + u);
        if (u >= there || p < a.initial) e[u] += u >= there ? -infinity() : barred[p];
      }
    }
#pragma unroll
    for (int u = 0; u < 4; u++) {
      const float score = exponential(e[u] - s.normaliser) * (d[u] - s.mean);
#pragma unroll
      for (int n = 0; n < K::N; n++) {
        const float tilt = score * four.k[u][n];
        dv[n] += tilt;
        s.dq[n] += mad(-tilt, four.k[u][n], 0.25f * score);
      }
    }
  }

  MEMBER void read_old(Step& s, int t, int base) {  // positions before those of this block of steps
    visit_all<S, K>(sm + K::NEAR, past, own_before<K>(first_of(t), rank), own_before<K>(base, rank), t % 2, rank, warp, lane,
                    [&](Four<K>& four, int i, int there) { add(s, four, t, i, there); });
  }

  MEMBER void read_held(Step& s, int t, int base) {  // the positions of this block of steps, a warp each
    const int p = own_from(base) + K::C * warp;
    if (warp >= HELD || p > a.initial + t || p < first_of(t)) return;
    float k[K::N], h[K::N], x[K::N], e = 0.0f;
    fetch<K>(k, past + p * 2 * K::HP, lane), fetch<K>(h, past + p * 2 * K::HP + K::HP, lane);
#pragma unroll
    for (int n = 0; n < K::N; n++) k[n] = half_tanh(s.q[n] + k[n]), e = mad(s.v[n], k[n], e);
    const float share = exponential(whole_sum(e) - s.normaliser), score = share * (whole_sum(dot<K>(h, s.given)) - s.mean);
    float* to_state = sm + K::GATHERED + warp * K::HP;
    float* to_slope = to_state + HELD * K::HP;
    fetch<K>(x, to_state, lane);
#pragma unroll
    for (int n = 0; n < K::N; n++) x[n] = mad(share, s.given[n], x[n]);
    keep<K>(to_state, x, lane);
    fetch<K>(x, to_slope, lane);
#pragma unroll
    for (int n = 0; n < K::N; n++) {
      const float tilt = score * k[n], slope = mad(-tilt, k[n], 0.25f * score);
      dv[n] += tilt, s.dq[n] += slope, x[n] += slope;
    }
    keep<K>(to_slope, x, lane);
  }

  MEMBER void read(int t, int base) {
    const int64_t at = (int64_t)t * a.rows + row;
    Step s;
    fetch<K>(s.q, a.queries + at * K::HP, lane), fetch<K>(s.given, sm + K::GIVEN, lane), fetch<K>(s.v, a.twice_energy, lane);
    clear<K>(s.dq);
    float context[K::N];
    fetch<K>(context, a.contexts + at * K::HP, lane);
    s.normaliser = a.normalisers[at], s.mean = whole_sum(dot<K>(context, s.given));
    if (rank == t % K::C && warp == 0) {  // for those who gather later
      keep<K>(a.given + at * K::HP, s.given, lane);
      if (lane == 0) a.means[at] = s.mean;
    }
    read_old(s, t, base);
    read_held(s, t, base);
    keep<K>(sm + K::WARP_PART + warp * K::HP, s.dq, lane);
  }

  MEMBER float over_warps(int j) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < K::W; w++) sum += sm[K::WARP_PART + w * K::HP + j];
    return sum;
  }
  MEMBER float over_blocks(int part, int j) {
    float sum = 0.0f;
#pragma unroll
    for (int r = 0; r < K::C; r++) sum += sm[part + r * K::HP + j];
    return sum;
  }

  MEMBER void tell(int t, int base) {  // this block's part of dq_t; what h_t has gathered, from the block that holds it
    const int here = a.initial + t;
    deal<K, K::HP>(thread, [&](int j, int part, int parts) {
      put_part<K>(sm + K::QUERY_PART + rank * K::HP + j, over_warps(j), part, parts);
      if (here % K::C != rank) return;
      const float* held = sm + K::GATHERED + (here - own_from(base)) / K::C * K::HP + j;
      put_part<K>(sm + K::STATE + j, held[0], part, parts), put_part<K>(sm + K::SLOPE + j, held[HELD * K::HP], part, parts);
    });
  }

  // dz_t of the own features, as V s_{t-1} gets it, beside dq_t of the same, and dL/dc_{t-1}
  MEMBER void cell(int t) {
    const int64_t at = ((int64_t)t * a.rows + row) * K::H + feature, gate = (at - feature) * 4 + feature;
    float dh = sm[K::GIVEN + feature] + sm[K::STATE + feature] + sm[K::OUTPUTS + thread];
    if (a.d_output) dh += widened(layer(a.d_output)[at]);
    if (a.d_states) a.d_states[at] = dh;
    a.d_queries[at] = sm[K::D_QUERY + feature], a.d_keys[at] = sm[K::D_KEY + feature];
    float dz[4], back, beside = 0.0f;
    if constexpr (S::CELL == ELMAN) {
      back = dz[0] = sloped(dh, widened(a.gates ? layer(a.gates)[at] : layer(a.output)[at]));
    } else {
      const float g0 = widened(layer(a.gates)[gate]), g1 = widened(layer(a.gates)[gate + K::H]);
      const float g2 = widened(layer(a.gates)[gate + 2 * K::H]), g3 = widened(layer(a.gates)[gate + 3 * K::H]);
      if constexpr (S::CELL == LSTM) {
        const float before = widened(layer(a.cells)[at]), curved = tanh_exact(rounded<Layer>(mad(g1, before, g0 * g2)));
        dc += dh * g3 * (1.0f - curved * curved);
        dz[0] = dc * g2 * g0 * (1.0f - g0), dz[1] = dc * before * g1 * (1.0f - g1);
        back = dz[2] = dc * g0 * (1.0f - g2 * g2), dz[3] = dh * curved * g3 * (1.0f - g3);
        dc *= g1;
      } else {
        dz[2] = sloped(dh * (1.0f - g1), g2), dz[1] = dh * (widened(layer(a.asked)[at]) - g2) * g1 * (1.0f - g1);
        dz[0] = dz[2] * g3 * g0 * (1.0f - g0), back = dz[2] * g0, beside = dh * g1;
      }
    }
#pragma unroll
    for (int g = 0; g < K::G; g++) {
      a.d_projected[(at - feature) * K::G + g * K::H + feature] = dz[g];
      sm[K::D_GATES + g * K::F + thread] = S::CELL == GRU && g == 2 ? back : dz[g];
    }
    sm[K::D_GATES + K::G * K::F + thread] = sm[K::D_QUERY + feature];
    sm[K::BESIDE + thread] = beside;
  }
  MEMBER static float sloped(float arriving, float y) {
    if constexpr (S::NONLINEARITY == TANH) return arriving * (1.0f - y * y);
    if constexpr (S::NONLINEARITY == IDENTITY) return arriving;
    return y == 0.0f ? 0.0f : arriving;
  }

  MEMBER void push() {  // what the own features of dz_t and dq_t give to ds_{t-1}: rows of [V; W_a], dealt to warps
    float sum[K::N];
    clear<K>(sum);
    for (int o = warp; o < (K::G + 1) * K::F; o += K::W) {
      const int f = rank * K::F + o % K::F;
      if (f >= K::H) continue;
      float x[K::N];
      fetch<K>(x, a.weights + ((int64_t)(o / K::F) * K::H + f) * K::HP, lane);
      const float d = sm[K::D_GATES + o];
#pragma unroll
      for (int n = 0; n < K::N; n++) sum[n] = mad(d, x[n], sum[n]);
    }
    keep<K>(sm + K::WARP_PART + warp * K::HP, sum, lane);
    block_sync<K>();
    deal<K, K::HP>(thread, [&](int j, int part, int parts) {
      float total = over_warps(j);
      if (j / K::F == rank && j < K::H) total += sm[K::BESIDE + j % K::F];
      put_part<K>(sm + K::GIVEN_PART + rank * K::HP + j, total, part, parts);
    });
  }

  MEMBER void step(int t, int base) {
    const bool cut = a.reset && a.reset[(int64_t)t * a.rows + row];
    read(t, base);
    block_sync<K>();
    tell(t, base);
    cluster_sync();
    if (thread < K::HP) {
      const float four = 2.0f * a.twice_energy[thread];
      sm[K::D_QUERY + thread] = four * over_blocks(K::QUERY_PART, thread), sm[K::D_KEY + thread] = four * sm[K::SLOPE + thread];
    }
    block_sync<K>();
    own_products<K, 1>(a.transposed_key, sm + K::D_KEY, rank, warp, lane, [&](int o, float sum) { sm[K::OUTPUTS + o] = sum; });
    block_sync<K>();
    if (feature < K::H) cell(t);
    block_sync<K>();
    push();
    cluster_sync();
    if (thread < K::HP) {
      const float ds = cut ? 0.0f : over_blocks(K::GIVEN_PART, thread);
      sm[K::GIVEN + thread] = a.mix * ds;
      if (t == 0 && thread < K::H && thread / K::F == rank) a.d_hidden_out[row * K::H + thread] = ds;
    }
    if (cut) dc = 0.0f;
    if (S::CELL == LSTM && t == 0 && feature < K::H) a.d_cell_state_out[row * K::H + feature] = dc;
    block_sync<K>();
  }

  MEMBER void finish() {  // the initial slots gather from all steps; dv from all warps and blocks
    for (int base = 0; base < a.initial; base += K::R) {
      gather(own_from(base), a.initial, 0);
      for (int i = thread; i < HELD * K::HP; i += K::THREADS) {
        const int p = own_from(base) + K::C * (i / K::HP), j = i % K::HP;
        if (p >= a.initial || j >= K::H) continue;
        const int64_t at = ((int64_t)row * a.initial + p) * K::H + j;
        a.d_initial_states[at] = sm[K::GATHERED + i];
        a.d_initial_keys[at] = 2.0f * a.twice_energy[j] * sm[K::GATHERED + HELD * K::HP + i];
      }
      block_sync<K>();
    }
    keep<K>(sm + K::WARP_PART + warp * K::HP, dv, lane);
    block_sync<K>();
    if (thread < K::HP) put(shared_address(sm + K::QUERY_PART + rank * K::HP + thread), over_warps(thread), 0);
    cluster_sync();  // after it nobody's memory is written
    if (rank == 0 && thread < K::H) a.d_energy[row * K::H + thread] = 2.0f * over_blocks(K::QUERY_PART, thread);
  }

  MEMBER void walk() {
    prepare();
    for (int begin = (a.steps - 1) / K::R * K::R; begin >= 0; begin -= K::R) {
      const int end = begin + K::R < a.steps ? begin + K::R : a.steps, base = a.initial + begin;
      gather(own_from(base), a.initial + end, end);
      for (int t = end - 1; t >= begin; t--) step(t, base);
    }
    finish();
  }
};

template <class S>
DEVICE void scan_backward(const BackwardArguments& a, unsigned char* memory) {
  PastBackward<S>(a, reinterpret_cast<float*>(memory)).walk();
}

}  // namespace plait
