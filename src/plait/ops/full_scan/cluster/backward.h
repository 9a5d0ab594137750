// The walk back. A step is two exchanges: the parts of dq_t, with what the position of h_t has gathered, to all; then
// the parts of ds_{t-1}. A step reads its past once, for dq_t. What it gives to the positions it read is not added there and then, which
// would be four times the reading: its weights and scores are kept until AT_ONCE steps have been walked, and then a position gets
// from all of them what they give. Among the positions that these steps wrote themselves the walk adds, in shared memory.

#pragma once

#include "past.h"

namespace plait {

constexpr int AT_ONCE = 16;  // steps between which the past is given to

template <class S>
struct PastBackwardLayout : PastShape<S> {
  using P = PastShape<S>;
  static constexpr int HELD = ceil_div(AT_ONCE, P::C);  // positions of these steps in a block
  static constexpr int GIVEN = 0, QUERY_PART = GIVEN + P::HP, STATE = QUERY_PART + P::C * P::HP, SLOPE = STATE + P::HP;
  static constexpr int GIVEN_PART = SLOPE + P::HP, D_QUERY = GIVEN_PART + P::C * P::HP, D_KEY = D_QUERY + P::HP;
  static constexpr int OUTPUTS = D_KEY + P::HP, D_GATES = OUTPUTS + round_up(P::F, 4);
  static constexpr int BESIDE = D_GATES + round_up((P::G + 1) * P::F, 4), WARP_PART = BESIDE + round_up(P::F, 4);
  static constexpr int GATHERED = WARP_PART + P::W * P::HP;  // of each held position: its state's, its key's slope
  static constexpr int WALKED = GATHERED + 2 * HELD * P::HP;  // of each of these steps: its query, what it gives
  static constexpr int NEAR = WALKED + 2 * AT_ONCE * P::HP, END = NEAR + S::NEAR * 2 * P::HP;
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
  float *const gathered, *const shares;  // of each position two sums, of each four positions and step their weights and scores
  const bool logs;
  float dc = 0.0f, dv[K::N];

  MEMBER PastBackward(const BackwardArguments& a, float* sm)
      : a(a), sm(sm), thread(thread_index()), warp(thread / 32), lane(thread % 32), rank(block_rank()),
        row(cluster_index()), width(a.initial + a.steps),
        feature(thread < K::F && rank * K::F + thread < K::H ? rank * K::F + thread : K::H),
        past(a.past + (int64_t)row * width * 2 * K::HP), barred(a.barred + (int64_t)row * a.initial),
        gathered(a.gathered + (int64_t)row * width * 2 * K::HP),
        shares(a.shares + (int64_t)row * (width / 4 + SPARE_FOURS) * AT_ONCE * 8), logs(a.logs[row]) {}

  static constexpr int SPARE_FOURS = 12;  // of up to eight blocks, whose last four may not be full

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

  // The first of this block's positions from p on.
  MEMBER int own_from(int p) { return p + (rank - p % K::C + K::C) % K::C; }

  struct Step {  // what every lane knows of step t, and its sums over positions p: score_p, score_p r_p, score_p r_p^2
    float q[K::N], given[K::N], v[K::N], half, normaliser, mean, score = 0.0f, once[K::N], twice[K::N];
  };

  MEMBER float* shares_of(int i, int t) { return shares + ((i / 4 * K::C + rank) * AT_ONCE + t % AT_ONCE) * 8; }

  template <bool LOGS>
  MEMBER void add(Step& s, Four<K>& four, int t, int i, int low, int high) {
    float e[4], d[4], share[4];
#pragma unroll
    for (int u = 0; u < 4; u++) {
      e[u] = s.half, d[u] = dot<K>(four.h[u], s.given);
#pragma unroll
      for (int n = 0; n < K::N; n++) {
        four.k[u][n] = gap<LOGS>(s.q[n], four.k[u][n]);
        e[u] = mad(-s.v[n], four.k[u][n], e[u]);
      }
    }
    sum_all(e, d, lane);
    if (i < low || i + 4 > high || rank + K::C * i < a.initial) {
#pragma unroll
      for (int u = 0; u < 4; u++) {
        const int p = rank + K::C * (i + u);
        if (i + u < low || i + u >= high) e[u] = -infinity();
        else if (p < a.initial) e[u] += barred[p];
      }
    }
#pragma unroll
    for (int u = 0; u < 4; u++) share[u] = exponential(e[u] - s.normaliser), d[u] = share[u] * (d[u] - s.mean);
    if (lane == 0) {
      float* kept = shares_of(i, t);
      store4(kept, float4{share[0], share[1], share[2], share[3]}), store4(kept + 4, float4{d[0], d[1], d[2], d[3]});
    }
#pragma unroll
    for (int u = 0; u < 4; u++) add_slopes(s, d[u], four.k[u]);
  }
  MEMBER static void add_slopes(Step& s, float score, const float (&r)[K::N]) {
    s.score += score;
#pragma unroll
    for (int n = 0; n < K::N; n++) {
      const float tilt = score * r[n];
      s.once[n] += tilt, s.twice[n] = mad(tilt, r[n], s.twice[n]);
    }
  }

  template <bool LOGS>
  MEMBER void read_old(Step& s, int t, int base) {  // positions before those of these steps
    const int low = own_before<K>(first_of(t), rank), high = own_before<K>(base, rank);
    visit_all<S, K>(sm + K::NEAR, past, low, high, t % 2, rank, warp, lane,
                    [&](Four<K>& four, int i) { add<LOGS>(s, four, t, i, low, high); });
  }

  template <bool LOGS>
  MEMBER void read_held(Step& s, int t, int base) {  // the positions of these steps, a warp each
    for (int n = warp; n < K::HELD; n += K::W) {
      const int p = own_from(base) + K::C * n;
      if (p > a.initial + t || p < first_of(t)) continue;
      float k[K::N], h[K::N], x[K::N], e = s.half;
      fetch<K>(k, past + p * 2 * K::HP, lane), fetch<K>(h, past + p * 2 * K::HP + K::HP, lane);
#pragma unroll
      for (int f = 0; f < K::N; f++) k[f] = gap<LOGS>(s.q[f], k[f]), e = mad(-s.v[f], k[f], e);
      const float share = exponential(whole_sum(e) - s.normaliser), score = share * (whole_sum(dot<K>(h, s.given)) - s.mean);
      float* to_state = sm + K::GATHERED + n * K::HP;
      float* to_slope = to_state + K::HELD * K::HP;
      fetch<K>(x, to_state, lane);
#pragma unroll
      for (int f = 0; f < K::N; f++) x[f] = mad(share, s.given[f], x[f]);
      keep<K>(to_state, x, lane);
      fetch<K>(x, to_slope, lane);
#pragma unroll
      for (int f = 0; f < K::N; f++) x[f] = mad(score, mad(-k[f], k[f], k[f]), x[f]);
      keep<K>(to_slope, x, lane);
      add_slopes(s, score, k);
    }
  }

  MEMBER void read(int t, int base) {
    const int64_t at = (int64_t)t * a.rows + row;
    Step s;
    fetch<K>(s.q, a.queries + at * K::HP, lane), fetch<K>(s.given, sm + K::GIVEN, lane), fetch<K>(s.v, a.twice_energy, lane);
    clear<K>(s.once), clear<K>(s.twice);
    float context[K::N];
    fetch<K>(context, a.contexts + at * K::HP, lane);
    s.normaliser = a.normalisers[at], s.mean = whole_sum(dot<K>(context, s.given)), s.half = 0.0f;
#pragma unroll
    for (int n = 0; n < K::N; n++) {
      s.half = mad(0.5f, s.v[n], s.half);
      if (!logs) s.q[n] = ex2(s.q[n]);
    }
    if (warp == 0) {  // for what is given later
      float* walked = sm + K::WALKED + t % AT_ONCE * 2 * K::HP;
      keep<K>(walked, s.q, lane), keep<K>(walked + K::HP, s.given, lane);
    }
    if (logs) read_old<true>(s, t, base), read_held<true>(s, t, base);
    else read_old<false>(s, t, base), read_held<false>(s, t, base);
    float dq[K::N];
#pragma unroll
    for (int n = 0; n < K::N; n++) dv[n] += mad(0.5f, s.score, -s.once[n]), dq[n] = s.once[n] - s.twice[n];
    keep<K>(sm + K::WARP_PART + warp * K::HP, dq, lane);
  }

  // What the steps from `begin` to `end` give to the positions before theirs: four positions a warp, in registers.
  template <bool LOGS>
  MEMBER void give(int begin, int end, int base) {
    const int low = own_before<K>(first_of(begin), rank), high = own_before<K>(base, rank);
    for (int i = (low / 4 + warp) * 4; i < high; i += 4 * K::W) {
      float k[4][K::N], state[4][K::N], slope[4][K::N];
#pragma unroll
      for (int u = 0; u < 4; u++) {
        const int own = least(i + u, high - 1), p = rank + K::C * own;
        fetch<K>(k[u], own < S::NEAR ? sm + K::NEAR + own * 2 * K::HP : past + p * 2 * K::HP, lane);
        fetch<K>(state[u], gathered + p * 2 * K::HP, lane), fetch<K>(slope[u], gathered + p * 2 * K::HP + K::HP, lane);
      }
#pragma unroll 1
      for (int t = begin; t < end; t++) {
        if (a.first && own_before<K>(first_of(t), rank) >= least(i + 4, high)) break;  // a reset: from this step on nobody read them
        float q[K::N], given[K::N];
        const float* walked = sm + K::WALKED + t % AT_ONCE * 2 * K::HP;
        fetch<K>(q, walked, lane), fetch<K>(given, walked + K::HP, lane);
        const float4 x = load4(shares_of(i, t)), y = load4(shares_of(i, t) + 4);
        const float share[4] = {x.x, x.y, x.z, x.w}, score[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
        for (int u = 0; u < 4; u++) {
#pragma unroll
          for (int n = 0; n < K::N; n++) {
            const float r = gap<LOGS>(q[n], k[u][n]);
            state[u][n] = mad(share[u], given[n], state[u][n]), slope[u][n] = mad(score[u], mad(-r, r, r), slope[u][n]);
          }
        }
      }
#pragma unroll
      for (int u = 0; u < 4; u++) {
        float* sums = gathered + (rank + K::C * (i + u)) * 2 * K::HP;
        if (i + u < high) keep<K>(sums, state[u], lane), keep<K>(sums + K::HP, slope[u], lane);
      }
    }
    block_sync<K>();
  }

  MEMBER void take_up(int base, int end) {  // what the positions of the next steps have been given by all later ones
    for (int i = thread; i < 2 * K::HELD * K::HP; i += K::THREADS) {
      const int u = i / K::HP, p = own_from(base) + K::C * (u % K::HELD);
      sm[K::GATHERED + i] = p < end ? gathered[(2 * p + u / K::HELD) * K::HP + i % K::HP] : 0.0f;
    }
    block_sync<K>();
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
      put_part<K>(sm + K::STATE + j, held[0], part, parts), put_part<K>(sm + K::SLOPE + j, held[K::HELD * K::HP], part, parts);
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

  MEMBER void finish() {  // dv from all warps and blocks
    keep<K>(sm + K::WARP_PART + warp * K::HP, dv, lane);
    block_sync<K>();
    if (thread < K::HP) put(shared_address(sm + K::QUERY_PART + rank * K::HP + thread), over_warps(thread), 0);
    cluster_sync();  // after it nobody's memory is written
    if (rank == 0 && thread < K::H) a.d_energy[row * K::H + thread] = 2.0f * over_blocks(K::QUERY_PART, thread);
  }

  MEMBER void walk() {
    prepare();
    for (int begin = (a.steps - 1) / AT_ONCE * AT_ONCE; begin >= 0; begin -= AT_ONCE) {
      const int end = least(begin + AT_ONCE, a.steps), base = a.initial + begin;
      take_up(base, a.initial + end);
      for (int t = end - 1; t >= begin; t--) step(t, base);
      if (logs) give<true>(begin, end, base);
      else give<false>(begin, end, base);
    }
    finish();
  }
};

template <class S>
DEVICE void scan_backward(const BackwardArguments& a, unsigned char* memory) {
  PastBackward<S>(a, reinterpret_cast<float*>(memory)).walk();
}

}  // namespace plait
