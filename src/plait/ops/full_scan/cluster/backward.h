// The walk back. A step is two exchanges: the parts of dq_t, with the accumulated gradient of h_t's position, to all;
// then the parts of ds_{t-1}. A step reads its past once, for dq_t. The gradients of the positions it read are not
// added at once, which would take four times the traffic: its weights and scores are kept until AT_ONCE steps have been
// walked, and then the gradients from all of them are added to a position together. Positions that these steps wrote
// themselves are accumulated in shared memory.

#pragma once

#include "past.h"

namespace plait {

constexpr int AT_ONCE = 16;  // steps after which gradients are added to the past

// lane 2 n is left with the sum of the n-th of sixteen
DEVICE float sixteen_sums(const float (&x)[8], const float (&y)[8], int lane) {
  float z[8];
#pragma unroll
  for (int u = 0; u < 8; u++) z[u] = halved(x[u], y[u], lane & 16, 16);
#pragma unroll
  for (int u = 0; u < 4; u++) z[u] = halved(z[u], z[u + 4], lane & 8, 8);
  const float a = halved(z[0], z[2], lane & 4, 4), b = halved(z[1], z[3], lane & 4, 4);
  const float sum = halved(a, b, lane & 2, 2);
  return sum + shuffle_xor(sum, 1);
}

// The walk back receives 2 to the power of each query and key, so that a pair costs one special function instead of
// two; for a row whose powers could overflow it receives queries and keys themselves: `logs`. r in tanh(q + k) = 1 - 2
// r
template <bool LOGS>
DEVICE float gap(float q, float k) { return LOGS ? half_gap(q, k) : rcp(mad(q, k, 1.0f)); }

// Eight vectors of HP numbers, `apart` from each other; beyond the `last`-th it again.
constexpr int EIGHT = 8;
template <class K>
DEVICE void fetch_eight(float (&x)[EIGHT][K::N], const float* first, int apart, int last, int lane) {
  const float* own = first + 4 * lane;
  if (last >= EIGHT - 1) {
#pragma unroll
    for (int u = 0; u < EIGHT; u++) fetch_own<K>(x[u], own + u * apart, lane);
  } else {
#pragma unroll
    for (int u = 0; u < EIGHT; u++) fetch_own<K>(x[u], own + least(u, last) * apart, lane);
  }
}

// The positions of a block that may be read, from `low` to `high`, in eights that begin at multiples of eight: a warp
// handles the n-th, n-th + W .. of them. Every other step counts them from the other end, so that it starts with the
// positions still in the cache.
struct Eights {
  int low, high, begin, count;
  bool reversed;

  MEMBER Eights(int low, int high, bool reversed)
      : low(low), high(high), begin(low / EIGHT), count(high > low ? ceil_div(high, EIGHT) - begin : 0), reversed(reversed) {}
  MEMBER int position(int n) const { return EIGHT * (reversed ? begin + count - 1 - n : begin + n); }
};

template <class S>
struct PastBackwardLayout : PastShape<S> {
  using P = PastShape<S>;
  static constexpr bool ALONE = P::D == 1;
  static constexpr int HELD = ceil_div(AT_ONCE, P::D);  // positions of these steps in a block
  static constexpr int GIVEN = 0, ENERGY = GIVEN + P::HP, SLOPE = ENERGY + P::HP, STATE = SLOPE + P::HP;
  static constexpr int D_QUERY = STATE + P::R * P::HP, D_KEY = D_QUERY + P::R * P::HP, QUERY_PART = D_KEY + P::R * P::HP;
  static constexpr int GIVEN_PART = QUERY_PART + P::D * P::HP, OUTPUTS = GIVEN_PART + P::C * P::HP;
  static constexpr int D_GATES = OUTPUTS + round_up(P::R * P::F, 4), BESIDE = D_GATES + round_up(P::R * (P::G + 1) * P::F, 4);
  static constexpr int WARP_PART = BESIDE + round_up(P::R * P::F, 4);
  static constexpr int GATHERED = WARP_PART + P::R * P::W * P::HP;  // of each held position: its state's, its key's slope
  static constexpr int WALKED = GATHERED + 2 * HELD * P::HP;  // of each of these steps: its query and dL/dc
  static constexpr int WEIGHTS = WALKED + 2 * AT_ONCE * P::HP, NEAR = WEIGHTS + P::KEPT * P::F * P::HP;
  static constexpr int END = NEAR + S::NEAR * 2 * P::HP;
  static_assert(END * 4 == S::SHARED_BYTES && S::NEAR % EIGHT == 0, "Python counts shared memory otherwise");
};

template <class S>
struct PastBackward {
  using K = PastBackwardLayout<S>;
  using Layer = typename K::Layer;

  const BackwardArguments& a;
  float* const sm;
  const int thread, warp, lane, rank, width;
  const int row, place;  // the row this block reads, and its positions of that row
  const int which, feature, cell_row;  // the feature whose cell a thread handles; H for none
  const float *const past, *const barred;
  float *const gathered, *const shares;  // of each position two sums, of each four positions and step their weights and scores
  const bool logs;
  float dc = 0.0f, dv[K::N];

  MEMBER PastBackward(const BackwardArguments& a, float* sm)
      : a(a), sm(sm), thread(thread_index()), warp(thread / 32), lane(thread % 32), rank(block_rank()),
        width(a.initial + a.steps), row(cluster_index() * K::R + (K::R == 1 ? 0 : rank)), place(K::R == 1 ? rank : 0), which(thread / K::F),
        feature(which < K::R && rank * K::F + thread % K::F < K::H ? rank * K::F + thread % K::F : K::H),
        cell_row(cluster_index() * K::R + which),
        past(a.past + (int64_t)row * width * 2 * K::HP), barred(a.barred + (int64_t)row * a.initial),
        gathered(a.gathered + (int64_t)row * width * 2 * K::HP),
        shares(a.shares + (int64_t)row * (width / EIGHT + SPARE) * AT_ONCE * 2 * EIGHT), logs(a.logs[row]) {}

  static constexpr int SPARE = 12;  // eights of up to eight blocks, whose last one may not be full

  MEMBER static const Layer* layer(const void* p) { return reinterpret_cast<const Layer*>(p); }
  MEMBER int first_of(int t) { return a.first ? (int)a.first[(int64_t)t * a.rows + row] : 0; }

  MEMBER void prepare() {
    for (int i = thread; i < K::WEIGHTS; i += K::THREADS) sm[i] = 0.0f;
    for (int block = 0; block < K::KEPT; block++)
      keep_weights<K>(sm + K::WEIGHTS, block, block <= K::G ? a.weights + block * K::H * K::HP : a.transposed_key, rank, thread);
    for (int i = thread; i < least(own_before<K>(width, place), S::NEAR) * 2 * K::HP; i += K::THREADS)
      sm[K::NEAR + i] = past[(place + K::D * (i / (2 * K::HP))) * 2 * K::HP + i % (2 * K::HP)];
    block_sync<K>();
    if (thread < K::HP) sm[K::ENERGY + thread] = a.twice_energy[thread];
    if (thread < K::H && a.d_hidden) sm[K::GIVEN + thread] = a.mix * widened(layer(a.d_hidden)[row * K::H + thread]);
    if (S::CELL == LSTM && feature < K::H && a.d_cell_state) dc = widened(layer(a.d_cell_state)[cell_row * K::H + feature]);
    clear<K>(dv);
    cluster_sync();
  }

  // The first of this block's positions from p on.
  MEMBER int own_from(int p) { return p + (place - p % K::D + K::D) % K::D; }

  struct Step {  // values of step t in every lane, and its sums over positions p: score_p, score_p r_p, score_p r_p^2
    float q[K::N], given[K::N], v[K::N], half, normaliser, mean, score = 0.0f, once[K::N], twice[K::N];
  };

  struct Ahead {  // first inputs of step t, prefetched while the step after it ends
    float q[K::N], context[K::N], normaliser;
  };
  MEMBER void ask(Ahead& next, int t) {
    if (t < 0) return;
    const int64_t at = (int64_t)t * a.rows + row;
    fetch<K>(next.q, a.queries + at * K::HP, lane), fetch<K>(next.context, a.contexts + at * K::HP, lane);
    next.normaliser = a.normalisers[at];
  }

  MEMBER float* shares_of(int i, int t) {  // eight weights, then eight scores
    return shares + ((i / EIGHT * K::D + place) * AT_ONCE + t % AT_ONCE) * 2 * EIGHT + i % EIGHT;
  }

  template <bool LOGS>
  MEMBER void add(Step& s, const Eights& all, int t, int i) {
    const float* first = i < S::NEAR ? sm + K::NEAR + i * 2 * K::HP : past + (place + K::D * i) * 2 * K::HP;
    const int apart = i < S::NEAR ? 2 * K::HP : K::D * 2 * K::HP;
    float r[EIGHT][K::N], e[EIGHT], d[EIGHT];
    fetch_eight<K>(r, first, apart, all.high - 1 - i, lane);
    {
      float h[EIGHT][K::N];
      fetch_eight<K>(h, first + K::HP, apart, all.high - 1 - i, lane);
#pragma unroll
      for (int u = 0; u < EIGHT; u++) d[u] = dot<K>(h[u], s.given);
    }
#pragma unroll
    for (int u = 0; u < EIGHT; u++) {
      e[u] = s.half;
#pragma unroll
      for (int n = 0; n < K::N; n++) r[u][n] = gap<LOGS>(s.q[n], r[u][n]), e[u] = mad(-s.v[n], r[u][n], e[u]);
    }
    // lane 2 u has the energy of the u-th, and lane 16 + 2 u its other sum
    const float sum = sixteen_sums(e, d, lane), other = shuffle_xor(sum, 16);
    const int own = i + lane % 16 / 2, p = place + K::D * own;
    float energy = lane < 16 ? sum : other;
    if (own < all.low || own >= all.high) energy = -infinity();
    else if (p < a.initial) energy += barred[p];
    const float share = exponential(energy - s.normaliser), score = share * ((lane < 16 ? other : sum) - s.mean);
    if (lane % 2 == 0) shares_of(i, t)[lane / 2] = lane < 16 ? share : score;
#pragma unroll
    for (int u = 0; u < EIGHT; u++) add_slopes(s, shuffle(score, 2 * u), r[u]);
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
    const Eights all(own_before<K>(first_of(t), place), own_before<K>(base, place), t % 2);
#pragma unroll 1
    for (int n = warp; n < all.count; n += K::W) add<LOGS>(s, all, t, all.position(n));
  }

  template <bool LOGS>
  MEMBER void read_held(Step& s, int t, int base) {  // the positions of these steps, a warp each
    for (int n = warp; n < K::HELD; n += K::W) {
      const int p = own_from(base) + K::D * n;
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

  MEMBER void read(const Ahead& ahead, int t, int base) {
    Step s;
    fetch<K>(s.given, sm + K::GIVEN, lane), fetch<K>(s.v, sm + K::ENERGY, lane);
    clear<K>(s.once), clear<K>(s.twice);
    s.normaliser = ahead.normaliser, s.mean = whole_sum(dot<K>(ahead.context, s.given)), s.half = 0.0f;
#pragma unroll
    for (int n = 0; n < K::N; n++) s.half = mad(0.5f, s.v[n], s.half), s.q[n] = logs ? ahead.q[n] : ex2(ahead.q[n]);
    if (warp == 0) {  // saved for the later additions
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

  // Gradients from the steps `begin` to `end` of the positions before theirs: four positions per warp, in registers.
  template <bool LOGS>
  MEMBER void give(int begin, int end, int base) {
    const int low = own_before<K>(first_of(begin), place), high = own_before<K>(base, place);
    for (int i = (low / 4 + warp) * 4; i < high; i += 4 * K::W) {
      float k[4][K::N], state[4][K::N], slope[4][K::N];
#pragma unroll
      for (int u = 0; u < 4; u++) {
        const int own = least(i + u, high - 1), p = place + K::D * own;
        fetch<K>(k[u], own < S::NEAR ? sm + K::NEAR + own * 2 * K::HP : past + p * 2 * K::HP, lane);
        fetch<K>(state[u], gathered + p * 2 * K::HP, lane), fetch<K>(slope[u], gathered + p * 2 * K::HP + K::HP, lane);
      }
#pragma unroll 1
      for (int t = begin; t < end; t++) {
        if (a.first && own_before<K>(first_of(t), place) >= least(i / EIGHT * EIGHT + EIGHT, high)) break;  // a reset: no later step read them
        float q[K::N], given[K::N];
        const float* walked = sm + K::WALKED + t % AT_ONCE * 2 * K::HP;
        fetch<K>(q, walked, lane), fetch<K>(given, walked + K::HP, lane);
        const float4 x = load4(shares_of(i, t)), y = load4(shares_of(i, t) + EIGHT);
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
        float* sums = gathered + (place + K::D * (i + u)) * 2 * K::HP;
        if (i + u < high) keep<K>(sums, state[u], lane), keep<K>(sums + K::HP, slope[u], lane);
      }
    }
    block_sync<K>();
  }

  MEMBER void take_up(int base, int end) {  // gradients of the next steps' positions from all later steps
    for (int i = thread; i < 2 * K::HELD * K::HP; i += K::THREADS) {
      const int u = i / K::HP, p = own_from(base) + K::D * (u % K::HELD);
      sm[K::GATHERED + i] = p < end ? gathered[(2 * p + u / K::HELD) * K::HP + i % K::HP] : 0.0f;
    }
    block_sync<K>();
  }

  MEMBER float over_warps(int j, int r = 0) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < K::W; w++) sum += sm[K::WARP_PART + (r * K::W + w) * K::HP + j];
    return sum;
  }
  template <int PARTS>
  MEMBER float over_parts(int part, int j) {
    float sum = 0.0f;
#pragma unroll
    for (int r = 0; r < PARTS; r++) sum += sm[part + r * K::HP + j];
    return sum;
  }

  // For one row: this block's part of dq_t to all, and the gradient of h_t from the block that owns it. For several
  // rows: everything to all.
  MEMBER void tell(int t, int base) {
    const int here = a.initial + t;
    const float* held = sm + K::GATHERED + (here - own_from(base)) / K::D * K::HP;
    if constexpr (K::R == 1) {
      deal<K, K::HP>(thread, [&](int j, int part, int parts) {
        put_part<K>(sm + K::QUERY_PART + rank * K::HP + j, over_warps(j), part, parts);
        if (here % K::D != place) return;
        put_part<K>(sm + K::STATE + j, held[j], part, parts), put_part<K>(sm + K::SLOPE + j, held[K::HELD * K::HP + j], part, parts);
      });
    } else if (thread < K::HP) {
      const int j = rank * K::HP + thread;
      const float four = 2.0f * sm[K::ENERGY + thread], dq = four * over_warps(thread), dk = four * held[K::HELD * K::HP + thread];
      const float dh = sm[K::GIVEN + thread] + held[thread];
      for (int r = 0; r < K::C; r++)
        put(shared_address(sm + K::D_QUERY + j), dq, r), put(shared_address(sm + K::D_KEY + j), dk, r), put(shared_address(sm + K::STATE + j), dh, r);
    }
  }
  MEMBER void heard() {  // for one row: dq_t and dk_t from the parts of all blocks
    if constexpr (K::R > 1) return;
    if (thread < K::HP) {
      const float four = 2.0f * sm[K::ENERGY + thread];
      sm[K::D_QUERY + thread] = four * over_parts<K::D>(K::QUERY_PART, thread), sm[K::D_KEY + thread] = four * sm[K::SLOPE + thread];
      sm[K::STATE + thread] += sm[K::GIVEN + thread];
    }
    block_sync<K>();
  }

  struct Saved {  // inputs of the cell of step t
    float arriving = 0.0f, gate[4], before = 0.0f;
  };
  MEMBER Saved recall(int t) {
    Saved s;
    if (feature == K::H) return s;
    const int64_t at = ((int64_t)t * a.rows + cell_row) * K::H + feature, gate = (at - feature) * 4 + feature;
    if (a.d_output) s.arriving = widened(layer(a.d_output)[at]);
    if constexpr (S::CELL == ELMAN) {
      s.gate[0] = widened(a.gates ? layer(a.gates)[at] : layer(a.output)[at]);
    } else {
#pragma unroll
      for (int g = 0; g < 4; g++) s.gate[g] = widened(layer(a.gates)[gate + g * K::H]);
      s.before = widened(layer(S::CELL == LSTM ? a.cells : a.prev_states)[at]);
    }
    return s;
  }

  // dz_t of the own features for V s_{t-1}, dq_t of the same features, and dL/dc_{t-1}
  MEMBER void cell(int t, const Saved& saved) {
    const int64_t at = ((int64_t)t * a.rows + cell_row) * K::H + feature;
    const int there = which * K::HP + feature, own = which * K::F + thread % K::F;
    const float dh = sm[K::STATE + there] + sm[K::OUTPUTS + own] + saved.arriving;
    if (a.d_states) a.d_states[at] = dh;
    a.d_queries[at] = sm[K::D_QUERY + there], a.d_keys[at] = sm[K::D_KEY + there];
    float dz[4], back, beside = 0.0f;
    const float(&g)[4] = saved.gate;
    if constexpr (S::CELL == ELMAN) {
      back = dz[0] = sloped(dh, g[0]);
    } else if constexpr (S::CELL == LSTM) {
      const float before = saved.before, curved = tanh_exact(rounded<Layer>(mad(g[1], before, g[0] * g[2])));
      dc += dh * g[3] * (1.0f - curved * curved);
      dz[0] = dc * g[2] * g[0] * (1.0f - g[0]), dz[1] = dc * before * g[1] * (1.0f - g[1]);
      back = dz[2] = dc * g[0] * (1.0f - g[2] * g[2]), dz[3] = dh * curved * g[3] * (1.0f - g[3]);
      dc *= g[1];
    } else {
      dz[2] = sloped(dh * (1.0f - g[1]), g[2]), dz[1] = dh * (saved.before - g[2]) * g[1] * (1.0f - g[1]);
      dz[0] = dz[2] * g[3] * g[0] * (1.0f - g[0]), back = dz[2] * g[0], beside = dh * g[1];
    }
    float* d_gates = sm + K::D_GATES + which * (K::G + 1) * K::F + thread % K::F;
#pragma unroll
    for (int i = 0; i < K::G; i++) {
      a.d_projected[(at - feature) * K::G + i * K::H + feature] = dz[i];
      d_gates[i * K::F] = S::CELL == GRU && i == 2 ? back : dz[i];
    }
    d_gates[K::G * K::F] = sm[K::D_QUERY + there];
    sm[K::BESIDE + own] = beside;
  }
  MEMBER static float sloped(float arriving, float y) {
    if constexpr (S::NONLINEARITY == TANH) return arriving * (1.0f - y * y);
    if constexpr (S::NONLINEARITY == IDENTITY) return arriving;
    return y == 0.0f ? 0.0f : arriving;
  }

  MEMBER void push() {  // contribution of the own features of dz_t and dq_t to ds_{t-1}: rows of [V; W_a], divided among warps
    float sum[K::R][K::N];
#pragma unroll
    for (int r = 0; r < K::R; r++) clear<K>(sum[r]);
    for (int o = warp; o < (K::G + 1) * K::F; o += K::W) {
      const int f = rank * K::F + o % K::F;
      if (f >= K::H) continue;
      float x[K::N];
      const bool kept = K::KEPT > K::G || (K::KEPT && o < K::KEPT * K::F);
      fetch<K>(x, kept ? sm + K::WEIGHTS + o * K::HP : a.weights + (o / K::F * K::H + f) * K::HP, lane);
#pragma unroll
      for (int r = 0; r < K::R; r++) {
        const float d = sm[K::D_GATES + r * (K::G + 1) * K::F + o];
#pragma unroll
        for (int n = 0; n < K::N; n++) sum[r][n] = mad(d, x[n], sum[r][n]);
      }
    }
#pragma unroll
    for (int r = 0; r < K::R; r++) keep<K>(sm + K::WARP_PART + (r * K::W + warp) * K::HP, sum[r], lane);
    block_sync<K>();
    const auto total = [&](int j, int r) {
      return over_warps(j, r) + (j / K::F == rank && j < K::H ? sm[K::BESIDE + r * K::F + j % K::F] : 0.0f);
    };
    float* part = sm + K::GIVEN_PART + rank * K::HP;
    if constexpr (K::R == 1) {
      deal<K, K::HP>(thread, [&](int j, int of, int parts) { put_part<K>(part + j, total(j, 0), of, parts); });
    } else {
      for (int i = thread; i < K::R * K::HP; i += K::THREADS)
        put(shared_address(part + i % K::HP), total(i % K::HP, i / K::HP), i / K::HP);
    }
  }

  MEMBER bool reset_at(int t, int row) { return a.reset && a.reset[(int64_t)t * a.rows + row]; }

  MEMBER void step(Ahead& ahead, int t, int base) {
    const bool cut = reset_at(t, row), cell_cut = feature < K::H && reset_at(t, cell_row);
    read(ahead, t, base);
    const Saved saved = recall(t);
    ask(ahead, t - 1);
    block_sync<K>();
    tell(t, base);
    cluster_sync();
    heard();
    constexpr int KEPT = K::KEPT > K::G + 1 ? 1 : 0;
    own_products<K, 1, KEPT>(sm + K::WEIGHTS + (K::G + 1) * K::F * K::HP, a.transposed_key, sm + K::D_KEY, rank, warp, lane,
                             [&](int o, int r, float sum) { sm[K::OUTPUTS + r * K::F + o] = sum; });
    block_sync<K>();
    if (feature < K::H) cell(t, saved);
    block_sync<K>();
    push();
    cluster_sync();
    if (thread < K::HP) {
      const float ds = cut ? 0.0f : over_parts<K::C>(K::GIVEN_PART, thread);
      sm[K::GIVEN + thread] = a.mix * ds;
      if (t == 0 && thread < K::H && (K::R > 1 || thread / K::F == rank)) a.d_hidden_out[row * K::H + thread] = ds;
    }
    if (cell_cut) dc = 0.0f;
    if (S::CELL == LSTM && t == 0 && feature < K::H) a.d_cell_state_out[cell_row * K::H + feature] = dc;
    block_sync<K>();
  }

  MEMBER void finish() {  // dv from all warps, and blocks that read the row
    keep<K>(sm + K::WARP_PART + warp * K::HP, dv, lane);
    block_sync<K>();
    if (thread < K::HP && K::R == 1) put(shared_address(sm + K::QUERY_PART + rank * K::HP + thread), over_warps(thread), 0);
    cluster_sync();  // after this barrier no shared memory is written
    if (place == 0 && thread < K::H)
      a.d_energy[row * K::H + thread] = 2.0f * (K::R == 1 ? over_parts<K::D>(K::QUERY_PART, thread) : over_warps(thread));
  }

  MEMBER void walk() {
    prepare();
    Ahead ahead;
    ask(ahead, a.steps - 1);
    for (int begin = (a.steps - 1) / AT_ONCE * AT_ONCE; begin >= 0; begin -= AT_ONCE) {
      const int end = least(begin + AT_ONCE, a.steps), base = a.initial + begin;
      take_up(base, a.initial + end);
      for (int t = end - 1; t >= begin; t--) step(ahead, t, base);
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
