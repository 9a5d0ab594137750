// The forward walk. A step is two exchanges: h_t and q_t of every block's features to all, then the parts of the
// context, each with its largest energy and its sum of exponentials, which every block combines in the same order. The
// first positions of a block lie in its shared memory, the others in global memory.

#pragma once

#include "past.h"

namespace plait {

// every lane is left with all four
DEVICE void sum_all(float (&x)[4], int lane) {
  const float sum = four_sums(x, lane);
#pragma unroll
  for (int u = 0; u < 4; u++) x[u] = shuffle(sum, 8 * u);
}
// tanh(a) / 2 of a scaled by SCALE: out of range it is 1/2 or -1/2, never a NaN
DEVICE float half_tanh(float scaled) { return 0.5f - rcp(1.0f + ex2(scaled)); }

// Four of a block's positions: records of a key and a state, `step` numbers apart, the last of them at `last`.
template <class K>
struct Four {
  float k[4][K::N], h[4][K::N];

  MEMBER void fetch_all(const float* records, int at, int step, int last, int lane) {
    const float* own = records + 4 * lane;
#pragma unroll
    for (int u = 0; u < 4; u++) {
      const float* record = own + (at + least(u, last) * step);
      fetch_own<K>(k[u], record, lane), fetch_own<K>(h[u], record + K::HP, lane);
    }
  }
};

// Visit a block's positions from `low` to `high`, first those in shared memory, then those in global memory:
// visit(four, i, there), i the first of them and `there` their number. Every other step starts at the other end, with
// the positions still in the cache.
template <class S, class K, class Visit>
DEVICE void visit_all(const float* near, const float* far, int low, int high, bool reversed, int rank, int warp, int lane, Visit visit) {
  const int middle = least(S::NEAR > low ? S::NEAR : low, high > low ? high : low);
  Four<K> four;
#pragma unroll 1
  for (int part = 0; part < 2; part++) {
    const int begin = part ? middle : low, end = part ? high : middle, apart = (part ? K::C : 1) * 2 * K::HP;
    const float* records = part ? far + rank * 2 * K::HP : near;
    const int step = reversed ? -apart : apart, origin = reversed ? end - 1 : begin;
#pragma unroll 1
    for (int i = 4 * warp; i < end - begin; i += 4 * K::W) {
      const int there = least(end - begin - i, 4);
      four.fetch_all(records, (reversed ? origin - i : origin + i) * apart, step, there - 1, lane);
      visit(four, reversed ? origin - i : origin + i, there);
    }
  }
}

template <class S>
struct PastForwardLayout : PastShape<S> {
  using P = PastShape<S>;
  static constexpr int PREV_STATE = 0, STATE = PREV_STATE + P::HP, QUERY = STATE + 2 * P::HP, KEY = QUERY + P::HP;
  static constexpr int PART = KEY + P::HP, STRIDE = P::HP + 4;  // context, mass, own energy, largest energy
  static constexpr int MASS = P::HP, OWN = P::HP + 1, MOST = P::HP + 2;
  static_assert(P::F * P::C <= P::THREADS, "a thread for each feature and block");
  static constexpr int OUTPUTS = PART + P::C * STRIDE, WARP_PART = OUTPUTS + round_up((P::G + 1) * P::F, 4);
  static constexpr int NEAR = WARP_PART + P::W * STRIDE, END = NEAR + S::NEAR * 2 * P::HP;
  static_assert(END * 4 == S::SHARED_BYTES, "Python counts shared memory otherwise");
};

template <class S>
struct PastForward {
  using K = PastForwardLayout<S>;
  using Layer = typename K::Layer;

  const ForwardArguments& a;
  float* const sm;
  const int thread, warp, lane, rank, row, width;
  const int target, feature;  // a thread computes the cell of a feature for one block, or has none: H
  float* const past;  // of this row: a record for each position, its key and its state
  const float* const barred;
  float c = 0.0f, in[K::G];
  int first = 0;

  MEMBER PastForward(const ForwardArguments& a, float* sm)
      : a(a), sm(sm), thread(thread_index()), warp(thread / 32), lane(thread % 32), rank(block_rank()),
        row(cluster_index()), width(a.initial + a.steps),
        target(thread / K::F), feature(target < K::C && own_feature() < K::H ? own_feature() : K::H),
        past(a.past + (int64_t)row * width * 2 * K::HP), barred(a.barred + (int64_t)row * a.initial) {}

  MEMBER int own_feature() const { return rank * K::F + thread % K::F; }
  MEMBER static Layer* layer(void* p) { return reinterpret_cast<Layer*>(p); }
  MEMBER bool reset_at(int t) { return a.reset && t < a.steps && a.reset[(int64_t)t * a.rows + row]; }

  MEMBER void prepare() {
    for (int i = thread; i < K::NEAR; i += K::THREADS) sm[i] = 0.0f;
    block_sync<K>();
    const bool begins = reset_at(0);
    if (begins) first = a.initial;
    if (thread < K::H && !begins) sm[K::PREV_STATE + thread] = widened(layer(a.hidden)[row * K::H + thread]);
    if (S::CELL == LSTM && feature < K::H && !begins) c = widened(layer(a.cell_state)[row * K::H + feature]);
    for (int i = thread; i < least(own_before<K>(a.initial, rank), S::NEAR) * 2 * K::HP; i += K::THREADS)
      sm[K::NEAR + i] = past[(rank + K::C * (i / (2 * K::HP))) * 2 * K::HP + i % (2 * K::HP)];
    take_in(0);
    cluster_sync();
  }

  MEMBER void take_in(int t) {  // the input of step t
    if (feature == K::H || t >= a.steps) return;
#pragma unroll
    for (int g = 0; g < K::G; g++)
      in[g] = widened(layer(a.projected)[((int64_t)t * a.rows + row) * K::G * K::H + g * K::H + feature]);
  }

  MEMBER void save(void* where, int64_t at, float v) { if (where && target == 0) layer(where)[at] = narrowed<Layer>(v); }

  MEMBER float cell(int64_t at) {  // h_t of a thread's feature, before the nudge
    const float* pre = sm + K::OUTPUTS + thread % K::F;
    const float s = sm[K::PREV_STATE + feature], bias = a.modrelu_bias ? a.modrelu_bias[feature] : 0.0f;
    const int64_t gate = (at - feature) * 4 + feature;
    if constexpr (S::CELL == ELMAN) {
      const float h = activated<S::NONLINEARITY>(in[0] + pre[0], bias);
      save(a.gates, at, h);
      return h;
    } else if constexpr (S::CELL == LSTM) {
      const float i = sigmoid(in[0] + pre[0]), f = sigmoid(in[1] + pre[K::F]);
      const float g = tanh_exact(in[2] + pre[2 * K::F]), o = sigmoid(in[3] + pre[3 * K::F]);
      save(a.cells, at, c);
      save(a.gates, gate, i), save(a.gates, gate + K::H, f), save(a.gates, gate + 2 * K::H, g), save(a.gates, gate + 3 * K::H, o);
      c = rounded<Layer>(mad(f, c, i * g));
      return o * tanh_exact(c);
    } else {
      const float inner = pre[2 * K::F] + (a.candidate_bias ? a.candidate_bias[feature] : 0.0f);
      const float r = sigmoid(in[0] + pre[0]), z = sigmoid(in[1] + pre[K::F]);
      const float n = activated<S::NONLINEARITY>(in[2] + r * inner, bias);
      save(a.gates, gate, r), save(a.gates, gate + K::H, z), save(a.gates, gate + 2 * K::H, n), save(a.gates, gate + 3 * K::H, inner);
      return mad(z, s, (1.0f - z) * n);
    }
  }

  MEMBER void write(int t) {  // h_t and q_t of the own features, each block's copy by threads of its own
    if (feature == K::H) return;
    const int64_t at = ((int64_t)t * a.rows + row) * K::H + feature;
    save(a.prev_states, at, sm[K::PREV_STATE + feature]);
    float h = cell(at);
    if (a.nudge) h += widened(layer(a.nudge)[at]);
    h = rounded<Layer>(h);
    save(a.output, at, h);
    put(shared_address(sm + K::STATE + t % 2 * K::HP + feature), h, target);
    put(shared_address(sm + K::QUERY + feature), SCALE * sm[K::OUTPUTS + K::G * K::F + thread % K::F], target);
  }

  // k_t of the own features to the block that owns the position; what they add to its energy
  MEMBER float own_energy(int t) {
    float energy = 0.0f;
    const float* weights = a.weights + (int64_t)(K::G + 1) * K::H * K::HP;
    own_products<K, 1, 0>(sm, weights, sm + K::STATE + t % 2 * K::HP, rank, warp, lane, [&](int o, int, float sum) {
      const int f = rank * K::F + o;
      if (f >= K::H) return;
      const float k = SCALE * sum;
      energy = mad(a.twice_energy[f], half_tanh(sm[K::QUERY + f] + k), energy);
      put(shared_address(sm + K::KEY + f), k, (a.initial + t) % K::C);
    });
    return whole_sum(energy);
  }

  struct Read {  // a warp's part of the softmax
    float q[K::N], v[K::N], context[K::N], most, mass, half;
  };

  MEMBER void add(Read& r, const Four<K>& four, int t, int i, int there) {
    float e[4], larger = r.most;
#pragma unroll
    for (int u = 0; u < 4; u++) {
      e[u] = r.half;  // v (1/2 - x) summed over a lane's features
#pragma unroll
      for (int n = 0; n < K::N; n++) e[u] = mad(-r.v[n], rcp(1.0f + ex2(r.q[n] + four.k[u][n])), e[u]);
    }
    sum_all(e, lane);
    const bool plain = there == 4 && !a.energies && rank + K::C * (t % 2 ? i - 3 : i) >= a.initial;
    if (!plain) unusual(e, t, i, there);
#pragma unroll
    for (int u = 0; u < 4; u++) larger = larger_of(e[u], larger);
    if (larger == -infinity()) return;
    const float fade = exponential(r.most - larger);
    r.mass *= fade, r.most = larger;
#pragma unroll
    for (int n = 0; n < K::N; n++) r.context[n] *= fade;
#pragma unroll
    for (int u = 0; u < 4; u++) {
      const float share = exponential(e[u] - larger);
      r.mass += share;
#pragma unroll
      for (int n = 0; n < K::N; n++) r.context[n] = mad(share, four.h[u][n], r.context[n]);
    }
  }

  MEMBER void unusual(float (&e)[4], int t, int i, int there) {  // initial slots, fewer than four, a trace
#pragma unroll
    for (int u = 0; u < 4; u++) {
      const int p = rank + K::C * (t % 2 ? i - u : i + u);
      if (p < a.initial && u < there) e[u] += barred[p];  // minus infinity where a slot is empty
      if (u >= there) e[u] = -infinity();
      if (a.energies && u < there && lane == 0) a.energies[((int64_t)t * a.rows + row) * width + p] = e[u];
    }
  }

  MEMBER void read(Read& r, int t) {
    fetch<K>(r.q, sm + K::QUERY, lane), fetch<K>(r.v, a.twice_energy, lane), clear<K>(r.context);
    r.most = -infinity(), r.mass = r.half = 0.0f;
#pragma unroll
    for (int n = 0; n < K::N; n++) r.half = mad(0.5f, r.v[n], r.half);
    visit_all<S, K>(sm + K::NEAR, past, own_before<K>(first, rank), own_before<K>(a.initial + t, rank), t % 2, rank, warp, lane,
                    [&](const Four<K>& four, int i, int there) { add(r, four, t, i, there); });
  }

  MEMBER void tell(const Read& r, float energy) {  // this block's part, to all
    float* part = sm + K::WARP_PART + warp * K::STRIDE;
    keep<K>(part, r.context, lane);
    if (lane == 0) part[K::MASS] = r.mass, part[K::OWN] = energy, part[K::MOST] = r.most;
    block_sync<K>();
    deal<K, K::STRIDE>(thread, [&](int j, int of, int parts) {
      const float* number = sm + K::WARP_PART;
      float larger = -infinity(), sum = 0.0f;
#pragma unroll
      for (int w = 0; w < K::W; w++) larger = larger_of(number[w * K::STRIDE + K::MOST], larger);
      const bool any = larger != -infinity();
#pragma unroll
      for (int w = 0; w < K::W; w++) {
        const float share = j == K::OWN ? 1.0f : any ? exponential(number[w * K::STRIDE + K::MOST] - larger) : 0.0f;
        sum = mad(share, number[w * K::STRIDE + j], sum);
      }
      put_part<K>(sm + K::PART + rank * K::STRIDE + j, j == K::MOST ? larger : sum, of, parts);
    });
  }
  MEMBER static float larger_of(float x, float y) { return x > y || x != x ? x : y; }  // a NaN wins

  MEMBER void join(int t) {  // s_t from all parts, the same in every block
    const bool clears = reset_at(t + 1);
    const int64_t at = (int64_t)t * a.rows + row;
    const int here = a.initial + t;
    if (thread < K::HP) {
      float own = 0.0f, larger, mass = 0.0f, sum = 0.0f;
#pragma unroll
      for (int r = 0; r < K::C; r++) own += sm[K::PART + r * K::STRIDE + K::OWN];
      larger = own;
#pragma unroll
      for (int r = 0; r < K::C; r++) larger = larger_of(sm[K::PART + r * K::STRIDE + K::MOST], larger);
      const float h = sm[K::STATE + t % 2 * K::HP + thread], share = exponential(own - larger);
      mass = share, sum = share * h;
#pragma unroll
      for (int r = 0; r < K::C; r++) {
        const float* part = sm + K::PART + r * K::STRIDE;
        const float weight = exponential(part[K::MOST] - larger);
        mass = mad(weight, part[K::MASS], mass), sum = mad(weight, part[thread], sum);
      }
      const float context = divide(sum, mass), s = rounded<Layer>(a.mix * (h + rounded<Layer>(context)));
      const bool mine = thread / K::F == rank && thread < K::H;
      if (mine && a.contexts) a.contexts[at * K::H + thread] = context;
      if (mine && t == a.steps - 1) layer(a.hidden_out)[row * K::H + thread] = narrowed<Layer>(s);
      if (thread == 0 && rank == 0) {
        if (a.normalisers) a.normalisers[at] = larger + lg2(mass) * LN2;
        if (a.energies) a.energies[at * width + here] = own;
      }
      sm[K::PREV_STATE + thread] = clears ? 0.0f : s;
      if (here % K::C == rank) {
        const int n = here / K::C;
        float* record = n < S::NEAR ? sm + K::NEAR + n * 2 * K::HP : past + here * 2 * K::HP;
        record[thread] = sm[K::KEY + thread], record[K::HP + thread] = h;
        if (thread < K::H) layer(a.slots)[((int64_t)row * width + here) * K::H + thread] = narrowed<Layer>(h);
      }
    }
    if (S::CELL == LSTM && feature < K::H && t == a.steps - 1) save(a.cell_state_out, row * K::H + feature, c);
    if (clears) c = 0.0f, first = here + 1;
  }

  MEMBER void walk() {
    prepare();
    for (int t = 0; t < a.steps; t++) {
      own_products<K, K::G + 1, 0>(sm, a.weights, sm + K::PREV_STATE, rank, warp, lane, [&](int o, int, float sum) { sm[K::OUTPUTS + o] = sum; });
      block_sync<K>();
      write(t);
      take_in(t + 1);
      cluster_sync();
      const float energy = own_energy(t);
      Read r;
      read(r, t);
      tell(r, energy);
      cluster_sync();
      join(t);
      block_sync<K>();
    }
    cluster_sync();  // no block exits while its shared memory may be written
  }
};

template <class S>
DEVICE void scan_forward(const ForwardArguments& a, unsigned char* memory) {
  PastForward<S>(a, reinterpret_cast<float*>(memory)).walk();
}

}  // namespace plait
