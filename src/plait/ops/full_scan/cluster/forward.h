// The forward walk. A step is two exchanges: h_t and q_t of every block's features to all, then the parts of the
// context, each with its largest energy and its mass, which every block joins in the same order. Of as many rows as blocks
// it is three: h_t to all and q_t to who reads the row, k_t to the same, and s_t to all.
// The first positions of a block lie in its shared memory, the others in global memory.

#pragma once

#include "past.h"

namespace plait {

template <class S>
struct PastForwardLayout : PastShape<S> {
  using P = PastShape<S>;
  static constexpr int ASKED = BARRIERS, STATE = ASKED + P::R * P::HP, QUERY = STATE + 2 * P::R * P::HP, KEY = QUERY + P::HP;
  static constexpr int ENERGY = KEY + P::HP, PART = ENERGY + P::HP, STRIDE = P::HP + 4;  // context, mass, own energy, largest energy
  static constexpr int MASS = P::HP, OWN = P::HP + 1, MOST = P::HP + 2;
  static_assert(P::F * P::C <= P::THREADS, "a thread for each feature and block");
  static constexpr int OUTPUTS = PART + P::D * STRIDE, WARP_PART = OUTPUTS + round_up(P::R * (P::G + 1) * P::F, 4);
  static constexpr int TILE = 128;  // positions of a warp at a time: their energies lie where later its part does
  static constexpr int OF_WARP = STRIDE > TILE ? STRIDE : TILE, WEIGHTS = WARP_PART + P::W * OF_WARP, NEAR = WEIGHTS + P::KEPT * P::F * P::HP;
  static constexpr int END = NEAR + S::NEAR * 2 * P::HP;
  static_assert(END * 4 == S::SHARED_BYTES && S::NEAR % EIGHT == 0, "Python counts shared memory otherwise");
};

template <class S>
struct PastForward {
  using K = PastForwardLayout<S>;
  using Layer = typename K::Layer;

  const ForwardArguments& a;
  float* const sm;
  const int thread, warp, lane, rank, width;
  const int row, place;  // the row this block reads, and whose positions of it
  const int target, feature;  // a thread computes the cell of a feature for one block, or of one row, or has none: H
  const int cell_row;
  float* const past;  // of this row: a record for each position, its key and its state
  const float* const barred;
  float c = 0.0f, in[K::G];
  int first = 0;
  bool logs = false;  // this block's keys are kept as they are

  MEMBER PastForward(const ForwardArguments& a, float* sm)
      : a(a), sm(sm), thread(thread_index()), warp(thread / 32), lane(thread % 32), rank(block_rank()),
        width(a.initial + a.steps), row(cluster_index() * K::R + (K::R == 1 ? 0 : rank)), place(K::R == 1 ? rank : 0),
        target(thread / K::F), feature(target < K::C && own_feature() < K::H ? own_feature() : K::H),
        cell_row(cluster_index() * K::R + (K::R == 1 ? 0 : target)),
        past(a.past + (int64_t)row * width * 2 * K::HP), barred(a.barred + (int64_t)row * a.initial) {}

  MEMBER int own_feature() const { return rank * K::F + thread % K::F; }
  MEMBER static Layer* layer(void* p) { return reinterpret_cast<Layer*>(p); }
  MEMBER bool reset_at(int t, int row) { return a.reset && t < a.steps && a.reset[(int64_t)t * a.rows + row]; }

  MEMBER void prepare() {
    open_exchanges<K>(sm, thread);
    for (int i = BARRIERS + thread; i < K::WEIGHTS; i += K::THREADS) sm[i] = 0.0f;
    for (int block = 0; block < K::KEPT; block++)
      keep_weights<K>(sm + K::WEIGHTS, block, a.weights + block * K::H * K::HP, rank, thread);
    block_sync<K>();
    if (reset_at(0, row)) first = a.initial;
    if (thread < K::HP) sm[K::ENERGY + thread] = a.twice_energy[thread];
    for (int i = thread; i < K::R * K::H; i += K::THREADS) {
      const int r = i / K::H, other = cluster_index() * K::R + r;
      if (!reset_at(0, other)) sm[K::ASKED + r * K::HP + i % K::H] = widened(layer(a.hidden)[other * K::H + i % K::H]);
    }
    if (S::CELL == LSTM && feature < K::H && !reset_at(0, cell_row)) c = widened(layer(a.cell_state)[cell_row * K::H + feature]);
    for (int i = thread; i < least(own_before<K>(a.initial, place), S::NEAR) * 2 * K::HP; i += K::THREADS)
      sm[K::NEAR + i] = past[(place + K::D * (i / (2 * K::HP))) * 2 * K::HP + i % (2 * K::HP)];
    block_sync<K>();
    for (int i = thread; i < own_before<K>(a.initial, place) * K::HP; i += K::THREADS)
      if (is_far(record(i / K::HP)[i % K::HP])) sm[K::OUTPUTS] = 1.0f;
    take_in(0);
    block_sync<K>();
    logs = sm[K::OUTPUTS] != 0.0f;
    if (!logs) change_keys(a.initial, [](float k) { return ex2(k); });
    cluster_sync();
  }

  MEMBER float* record(int i) {  // of this block's i-th position
    return i < S::NEAR ? sm + K::NEAR + i * 2 * K::HP : past + (place + K::D * i) * 2 * K::HP;
  }
  template <class Change>
  MEMBER void change_keys(int before, Change change) {
    for (int i = thread; i < own_before<K>(before, place) * K::HP; i += K::THREADS) {
      float* k = record(i / K::HP) + i % K::HP;
      *k = change(*k);
    }
  }
  // The first query or key that is too far, as every warp sees: the powers become keys again
  MEMBER void settle(const float* vector, int before) {
    if (logs || !any_far<K>(vector, lane)) return;
    block_sync<K>();
    change_keys(before, [](float k) { return log_of(k); });
    logs = true;
    block_sync<K>();
  }

  MEMBER void take_in(int t) {  // the input of step t
    if (feature == K::H || t >= a.steps) return;
#pragma unroll
    for (int g = 0; g < K::G; g++)
      in[g] = widened(layer(a.projected)[((int64_t)t * a.rows + cell_row) * K::G * K::H + g * K::H + feature]);
  }

  MEMBER void save(void* where, int64_t at, float v) { if (where && (K::R > 1 || target == 0)) layer(where)[at] = narrowed<Layer>(v); }

  MEMBER const float* outputs() { return sm + K::OUTPUTS + (K::R == 1 ? 0 : target) * (K::G + 1) * K::F + thread % K::F; }
  MEMBER float asked() { return sm[K::ASKED + (K::R == 1 ? 0 : target) * K::HP + feature]; }

  MEMBER float cell(int64_t at) {  // h_t of a thread's feature, before the nudge
    const float* pre = outputs();
    const float s = asked(), bias = a.modrelu_bias ? a.modrelu_bias[feature] : 0.0f;
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

  // h_t and q_t of the own features to whoever reads the row, h_t to all: each block's copy, or each row, by threads of its own
  MEMBER void write(int t) {
    if (feature == K::H) return;
    const int64_t at = ((int64_t)t * a.rows + cell_row) * K::H + feature;
    save(a.asked, at, asked());
    float h = cell(at);
    if (a.nudge) h += widened(layer(a.nudge)[at]);
    h = rounded<Layer>(h);
    save(a.output, at, h);
    float* state = state_of(t, K::R == 1 ? 0 : target) + feature;
    if constexpr (K::R == 1) message<K>(sm, 0, state, h, target);
    else for (int r = 0; r < K::C; r++) message<K>(sm, 0, state, h, r);
    message<K>(sm, 0, sm + K::QUERY + feature, SCALE * outputs()[K::G * K::F], target);
  }
  MEMBER float* state_of(int t, int r) { return sm + K::STATE + (t % 2 * K::R + r) * K::HP; }

  // k_t of the own features to the block that owns the position; what they add to its energy, where this block can tell
  MEMBER float own_energy(int t) {
    float energy = 0.0f;
    constexpr int KEPT = K::KEPT > K::G + 1 ? 1 : 0;
    own_products<K, 1, KEPT>(sm + K::WEIGHTS + (K::G + 1) * K::F * K::HP, a.weights + (K::G + 1) * K::H * K::HP, state_of(t, 0), rank, warp, lane,
                             [&](int o, int r, float sum) {
      const int f = rank * K::F + o, owner = K::R == 1 ? (a.initial + t) % K::C : r;
      if (f >= K::H) return;
      const float k = SCALE * sum;
      if (K::R == 1) energy = mad(sm[K::ENERGY + f], 0.5f - half_gap(sm[K::QUERY + f], k), energy);
      message<K>(sm, 1, sm + K::KEY + f, k, owner);
    });
    return K::R == 1 ? whole_sum(energy) : 0.0f;
  }
  MEMBER float whole_energy() {  // of h_t, once all of k_t is here
    float q[K::N], k[K::N], v[K::N], energy = 0.0f;
    fetch<K>(q, sm + K::QUERY, lane), fetch<K>(k, sm + K::KEY, lane), fetch<K>(v, sm + K::ENERGY, lane);
#pragma unroll
    for (int n = 0; n < K::N; n++) energy = mad(v[n], 0.5f - half_gap(q[n], k[n]), energy);
    return whole_sum(energy);
  }

  struct Read {  // a warp's part of the softmax
    float q[K::N], v[K::N], context[K::N], most, mass, half;
  };
  struct Eight {  // where eight records are
    const float* first;
    int apart;
  };
  MEMBER Eight eight(int i) {
    if (i < S::NEAR) return {sm + K::NEAR + i * 2 * K::HP, 2 * K::HP};
    return {past + (place + K::D * i) * 2 * K::HP, K::D * 2 * K::HP};
  }

  MEMBER void fetch_part(float (&x)[EIGHT][K::N], const Eights& all, int n, int part) {  // keys (0) or states (1) of the n-th eight
    if (n >= all.count) return;
    const int i = all.position(n);
    const Eight at = eight(i);
    fetch_eight<K>(x, at.first + part * K::HP, at.apart, all.high - 1 - i, lane);
  }

  // The energies of the positions i .. i + 7, whose keys are k: lane 4 u that of the u-th
  template <bool LOGS>
  MEMBER float energy_of(const Read& r, const float (&k)[EIGHT][K::N], const Eights& all, int t, int i) {
    float e[EIGHT];
#pragma unroll
    for (int u = 0; u < EIGHT; u++) {
      e[u] = r.half;  // v (1/2 - r) summed over a lane's features
#pragma unroll
      for (int n = 0; n < K::N; n++) e[u] = mad(-r.v[n], gap<LOGS>(r.q[n], k[u][n]), e[u]);
    }
    float energy = eight_sums(e, lane);
    const int own = i + lane / 4, p = place + K::D * own;
    const bool there = own >= all.low && own < all.high;
    if (there && p < a.initial) energy += barred[p];  // minus infinity where a slot is empty
    if (a.energies && there && lane % 4 == 0) a.energies[((int64_t)t * a.rows + row) * width + p] = energy;
    return there ? energy : -infinity();
  }

  // The energies of a tile of a warp's positions become their shares, the sums so far fade: whether there are any
  MEMBER bool shares_of(Read& r, float* energies, int count) {
    float larger = r.most, x[K::TILE / 32];
#pragma unroll
    for (int m = 0; m < K::TILE / 32; m++) {
      x[m] = 32 * m + lane < count ? energies[32 * m + lane] : -infinity();
      larger = larger_of(x[m], larger);
    }
#pragma unroll
    for (int mask = 16; mask; mask /= 2) larger = larger_of(shuffle_xor(larger, mask), larger);
    if (larger == -infinity()) return false;
    const float fade = exponential(r.most - larger);
    r.mass *= fade, r.most = larger;
#pragma unroll
    for (int n = 0; n < K::N; n++) r.context[n] *= fade;
#pragma unroll
    for (int m = 0; m < K::TILE / 32; m++) {
      const float share = exponential(x[m] - larger);
      r.mass += share;  // a lane's part of it
      if (32 * m + lane < count) energies[32 * m + lane] = share;
    }
    return true;
  }

  // A warp's keys, of which the first eight have been asked for, then its states, of which the first are while weights are taken
  template <bool LOGS>
  MEMBER void read_past(Read& r, const Eights& all, float (&x)[EIGHT][K::N], int t) {
    float* energies = sm + K::WARP_PART + warp * K::OF_WARP;
#pragma unroll 1
    for (int begin = warp; begin < all.count; begin += K::TILE / EIGHT * K::W) {
      const int count = least(K::TILE / EIGHT, ceil_div(all.count - begin, K::W));
#pragma unroll 1
      for (int n = 0; n < count; n++) {
        const int m = begin + n * K::W;
        if (m != warp) fetch_part(x, all, m, 0);
        const float energy = energy_of<LOGS>(r, x, all, t, all.position(m));
        if (lane % 4 == 0) energies[n * EIGHT + lane / 4] = energy;
      }
      fetch_part(x, all, begin, 1);
      warp_sync();
      const bool any = shares_of(r, energies, count * EIGHT);
      warp_sync();
#pragma unroll 1
      for (int n = 0; any && n < count; n++) {
        if (n) fetch_part(x, all, begin + n * K::W, 1);
        add(r, x, energies + n * EIGHT);
      }
      warp_sync();
    }
    r.mass = whole_sum(r.mass);
  }
  MEMBER void add(Read& r, const float (&h)[EIGHT][K::N], const float* shares) {
    const float4 x = load4(shares), y = load4(shares + 4);
    const float share[EIGHT] = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
#pragma unroll
    for (int u = 0; u < EIGHT; u++)
#pragma unroll
      for (int m = 0; m < K::N; m++) r.context[m] = mad(share[u], h[u][m], r.context[m]);
  }

  MEMBER Eights before(int t) { return Eights(own_before<K>(first, place), own_before<K>(a.initial + t, place), t % 2); }

  MEMBER void read(Read& r, float (&k)[EIGHT][K::N], int t) {
    fetch<K>(r.q, sm + K::QUERY, lane), fetch<K>(r.v, sm + K::ENERGY, lane), clear<K>(r.context);
    r.most = -infinity(), r.mass = r.half = 0.0f;
#pragma unroll
    for (int n = 0; n < K::N; n++) r.half = mad(0.5f, r.v[n], r.half);
    if (logs) return read_past<true>(r, before(t), k, t);
#pragma unroll
    for (int n = 0; n < K::N; n++) r.q[n] = ex2(r.q[n]);
    read_past<false>(r, before(t), k, t);
  }

  MEMBER void tell(const Read& r, float energy) {  // this block's part, to all that read the row
    float* part = sm + K::WARP_PART + warp * K::OF_WARP;
    keep<K>(part, r.context, lane);
    if (lane == 0) part[K::MASS] = r.mass, part[K::OWN] = energy, part[K::MOST] = r.most;
    block_sync<K>();
    deal<K, K::STRIDE>(thread, [&](int j, int of, int parts) {
      const float* number = sm + K::WARP_PART;
      float larger = -infinity(), sum = 0.0f;
#pragma unroll
      for (int w = 0; w < K::W; w++) larger = larger_of(number[w * K::OF_WARP + K::MOST], larger);
      const bool any = larger != -infinity();
#pragma unroll
      for (int w = 0; w < K::W; w++) {
        const float share = j == K::OWN ? 1.0f : any ? exponential(number[w * K::OF_WARP + K::MOST] - larger) : 0.0f;
        sum = mad(share, number[w * K::OF_WARP + j], sum);
      }
      message_part<K>(sm, 1, sm + K::PART + place * K::STRIDE + j, j == K::MOST ? larger : sum, of, parts);
    });
  }
  MEMBER static float larger_of(float x, float y) { return x > y || x != x ? x : y; }  // a NaN wins

  MEMBER void join(int t) {  // s_t from all parts, the same in every block that reads the row
    const bool clears = reset_at(t + 1, row);
    const int64_t at = (int64_t)t * a.rows + row;
    const int here = a.initial + t;
    float own = K::R > 1 && warp < ceil_div(K::HP, 32) ? whole_energy() : 0.0f;
    if (thread < K::HP) {
      float larger, mass = 0.0f, sum = 0.0f;
#pragma unroll
      for (int r = 0; r < K::D; r++) own += sm[K::PART + r * K::STRIDE + K::OWN];
      larger = own;
#pragma unroll
      for (int r = 0; r < K::D; r++) larger = larger_of(sm[K::PART + r * K::STRIDE + K::MOST], larger);
      const float h = state_of(t, K::R == 1 ? 0 : rank)[thread], share = exponential(own - larger);
      mass = share, sum = share * h;
#pragma unroll
      for (int r = 0; r < K::D; r++) {
        const float* part = sm + K::PART + r * K::STRIDE;
        const float weight = exponential(part[K::MOST] - larger);
        mass = mad(weight, part[K::MASS], mass), sum = mad(weight, part[thread], sum);
      }
      const float context = divide(sum, mass), s = rounded<Layer>(a.mix * (h + rounded<Layer>(context)));
      const bool mine = thread < K::H && (K::R > 1 || thread / K::F == rank);
      if (mine && a.contexts) a.contexts[at * K::H + thread] = context;
      if (mine && t == a.steps - 1) layer(a.hidden_out)[row * K::H + thread] = narrowed<Layer>(s);
      if (thread == 0 && place == 0) {
        if (a.normalisers) a.normalisers[at] = larger + lg2(mass) * LN2;
        if (a.energies) a.energies[at * width + here] = own;
      }
      tell_asked(clears ? 0.0f : s);
      if (here % K::D == place) {
        const float k = sm[K::KEY + thread];
        float* of_h = record(here / K::D);
        of_h[thread] = logs ? k : ex2(k), of_h[K::HP + thread] = h;
        if (thread < K::H) layer(a.slots)[((int64_t)row * width + here) * K::H + thread] = narrowed<Layer>(h);
      }
    }
    if (S::CELL == LSTM && feature < K::H && t == a.steps - 1) save(a.cell_state_out, cell_row * K::H + feature, c);
    if (clears) first = here + 1;
    if (reset_at(t + 1, cell_row)) c = 0.0f;
  }
  MEMBER void tell_asked(float s) {
    if constexpr (K::R == 1) sm[K::ASKED + thread] = s;
    else for (int r = 0; r < K::C; r++) message<K>(sm, 2, sm + K::ASKED + rank * K::HP + thread, s, r);
  }

  MEMBER void walk() {
    prepare();
    for (int t = 0; t < a.steps; t++) {
      own_products<K, K::G + 1, least(K::KEPT, K::G + 1)>(
          sm + K::WEIGHTS, a.weights, sm + K::ASKED, rank, warp, lane,
          [&](int o, int r, float sum) { sm[K::OUTPUTS + r * (K::G + 1) * K::F + o] = sum; });
      block_sync<K>();
      write(t);
      take_in(t + 1);
      meet<K>(sm, 0, K::R == 1 ? 2 * K::H : (K::R + 1) * K::H, t, thread);
      settle(sm + K::QUERY, a.initial + t);
      float k[EIGHT][K::N];
      fetch_part(k, before(t), warp, 0);  // while the own key is made
      const float energy = own_energy(t);
      Read r;
      read(r, k, t);
      tell(r, energy);
      const bool mine = (a.initial + t) % K::D == place;
      meet<K>(sm, 1, K::R == 1 ? K::D * K::STRIDE + (mine ? K::H : 0) : K::H, t, thread);
      if (mine) settle(sm + K::KEY, a.initial + t);
      join(t);
      if constexpr (K::R == 1) block_sync<K>();
      else meet<K>(sm, 2, K::R * K::HP, t, thread);
    }
    cluster_sync();  // nobody leaves while its memory may be written
  }
};

template <class S>
DEVICE void scan_forward(const ForwardArguments& a, unsigned char* memory) {
  PastForward<S>(a, reinterpret_cast<float*>(memory)).walk();
}

}  // namespace plait
