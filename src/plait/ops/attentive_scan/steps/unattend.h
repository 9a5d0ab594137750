// Back through the read of step t: dq_t, and the gradients of every slot's state and key. No state occurs twice in a
// row's slots, so each thread owns its features of every entry.

#pragma once

#include "slots.h"

namespace plait {

template <class S>
struct Unattend {
  using K = Slots<S>;
  using Layer = typename K::Layer;

  const UnattendArguments& a;
  float* const sm;
  const int thread, warp, lane, b;
  const int64_t row;  // of (T, B)
  const bool alive;
  float share = 0.0f;
  int held = -1;

  MEMBER Unattend(const UnattendArguments& a, float* sm)
      : a(a), sm(sm), thread(thread_index()), warp(thread / 32), lane(thread % 32), b(cluster_index()),
        row((int64_t)a.t * a.rows + b), alive(!a.reset[row + a.rows]) {
    if (lane < K::WIDTH) share = a.weights[row * K::WIDTH + lane], held = a.ids[(row + a.rows) * K::WIDTH + lane];
  }

  MEMBER static const Layer* layer(const void* p) { return reinterpret_cast<const Layer*>(p); }

  MEMBER float4 given(int at) {  // dL/dc_t
    const float4 ds = plus(load4(a.d_hidden + (int64_t)b * K::H + at), load4(a.d_direct + (int64_t)b * K::H + at));
    return alive ? times(a.mix, ds) : float4{0.0f, 0.0f, 0.0f, 0.0f};
  }

  MEMBER int found() { return held >= 0 ? held : K::WIDTH + a.t; }

  MEMBER float score_of() {  // dL/de of a lane's slot
    const int part = warp % K::PARTS, group = warp / K::PARTS;
    const Layer* state[K::EACH];
    float sum[K::EACH];
#pragma unroll
    for (int n = 0; n < K::EACH; n++) {
      state[n] = entry<S>(layer(a.slots), layer(a.output), shuffle(found(), (group + K::GROUPS * n) % 32), b, a.rows);
      sum[n] = 0.0f;
    }
    for (int i = part * K::PART + lane; i < (part + 1) * K::PART && i < K::FOURS; i += 32) {
      const float4 d = given(4 * i);
#pragma unroll
      for (int n = 0; n < K::EACH; n++)
        sum[n] = dot4(d, wide4(state[n] + 4 * i), sum[n]);
    }
#pragma unroll
    for (int n = 0; n < K::EACH; n++) {
      const float whole = sum_of_warp(sum[n]);
      if (lane == 0 && group + K::GROUPS * n < K::WIDTH) sm[K::SUMS + part * 32 + group + K::GROUPS * n] = whole;
    }
    barrier_sync(1, K::THREADS);
    float d_share = 0.0f;
#pragma unroll
    for (int part = 0; part < K::PARTS; part++) d_share += lane < K::WIDTH ? sm[K::SUMS + part * 32 + lane] : 0.0f;
    return share * (d_share - sum_of_warp(share * d_share));
  }

  MEMBER float rate(float score) {  // learned relevance: the accumulated gradient of the score of h_t
    if (!a.worth) return 0.0f;
    float gathered = 0.0f;
    if (lane < K::WIDTH && held >= 0) gathered = a.d_rates[(int64_t)held * a.rows + b] + score;
    barrier_sync(1, K::THREADS);  // every warp has read it
    if (warp == 0 && lane < K::WIDTH) {
      a.d_energies[row * K::WIDTH + lane] = score;
      if (held >= 0) a.d_rates[(int64_t)held * a.rows + b] = gathered;
    }
    return sum_of_warp(held == K::WIDTH + a.t ? gathered : 0.0f);
  }

  struct Sums {
    float4 energy = {0.0f, 0.0f, 0.0f, 0.0f}, query = energy, own = energy;
  };

  // Gradients of the states and keys of BATCH slots, and their terms of dv_a, dq_t and dL/dh_t: all are read before one
  // is written
  static constexpr int BATCH = 5;
  MEMBER void give(Sums& sums, int first, int half, float score, float4 q, float4 v, float4 d, int at) {
    float4 k[BATCH], slope[BATCH], state[BATCH];
    int id[BATCH];
#pragma unroll
    for (int n = 0; n < BATCH; n++) {
      id[n] = shuffle(found(), (2 * (first + n) + half) % 32);
      const int64_t there = ((int64_t)id[n] * a.rows + b) * K::H + at;
      k[n] = load4(entry<S>(a.initial_keys, a.keys, id[n], b, a.rows) + at);
      slope[n] = load4(a.d_keys + there), state[n] = load4(a.d_states + there);
    }
#pragma unroll
    for (int n = 0; n < BATCH; n++) {
      const int x = 2 * (first + n) + half;
      const float weight = shuffle(share, x % 32), of_energy = shuffle(score, x % 32), four = 4.0f * of_energy;
      const bool there_is = shuffle(held, x % 32) >= 0 && x < 32 && half < 2;
      const float4 r = gaps(q, k[n]);
      const float4 gain = {four * v.x * mad(-r.x, r.x, r.x), four * v.y * mad(-r.y, r.y, r.y),
                           four * v.z * mad(-r.z, r.z, r.z), four * v.w * mad(-r.w, r.w, r.w)};
      const int64_t there = ((int64_t)id[n] * a.rows + b) * K::H + at;
      state[n] = mad4(weight, d, state[n]);
      if (!there_is) continue;
      store4(a.d_keys + there, plus(slope[n], gain)), store4(a.d_states + there, state[n]);
      sums.energy = mad4(of_energy, {mad(-2.0f, r.x, 1.0f), mad(-2.0f, r.y, 1.0f), mad(-2.0f, r.z, 1.0f), mad(-2.0f, r.w, 1.0f)}, sums.energy);
      sums.query = plus(sums.query, gain);
      if (id[n] == K::WIDTH + a.t) sums.own = state[n];
    }
  }

  MEMBER void give_all(float score) {
    for (int i = thread; i < round_up(2 * K::FOURS, 32); i += K::THREADS) {  // whole warps
      const int half = i / K::FOURS, at = i % K::FOURS * 4;
      const float4 q = load4(a.queries + row * K::H + at), v = wide4(layer(a.energy) + at), d = given(at);
      Sums sums;
#pragma unroll
      for (int first = 0; first < ceil_div(K::WIDTH, 2); first += BATCH) give(sums, first, half, score, q, v, d, at);
      if (half > 1) continue;
      float* mine = sm + K::HALVES + half * 3 * K::H + at;
      store4(mine, sums.energy), store4(mine + K::H, sums.query), store4(mine + 2 * K::H, sums.own);
    }
    barrier_sync(1, K::THREADS);
  }

  MEMBER void step() {
    const float score = score_of(), rated = rate(score);
    give_all(score);
    for (int i = 4 * thread; i < K::H; i += 4 * K::THREADS) {
      const float* halves = sm + K::HALVES + i;
      const auto both = [&](int n) { return plus(load4(halves + n * K::H), load4(halves + (3 + n) * K::H)); };
      const int64_t at = (int64_t)b * K::H + i;
      store4(a.d_energy + at, plus(load4(a.d_energy + at), both(0)));
      store4(a.d_queries + row * K::H + i, both(1));
      float4 mine = plus(given(i), both(2));
      if (a.worth) mine = mad4(rated, wide4(layer(a.worth) + i), mine);
      store4(a.d_h + at, mine);
    }
  }
};

template <class S>
DEVICE void scan_unattend(const UnattendArguments& a, unsigned char* memory) {
  static_assert((Slots<S>::HALVES + 6 * Slots<S>::H) * 4 == S::SHARED_BYTES, "Python counts shared memory otherwise");
  Unattend<S>(a, reinterpret_cast<float*>(memory)).step();
}

}  // namespace plait
