// Write h_t, read the memory with q_t, mix: s_t. What is kept of the memory between steps is updated in place.

#pragma once

#include "slots.h"

namespace plait {

template <class S>
struct Attend {
  using K = Slots<S>;
  using Layer = typename K::Layer;

  const AttendArguments& a;
  float* const sm;
  const int thread, warp, lane, b;
  const int64_t row;  // of (T, B)
  float credit = 0.0f;
  int birth = -1, held = -1, age, turn;

  MEMBER Attend(const AttendArguments& a, float* sm)
      : a(a), sm(sm), thread(thread_index()), warp(thread / 32), lane(thread % 32), b(cluster_index()),
        row((int64_t)a.t * a.rows + b), age((int)a.age[b]) {}

  MEMBER static const Layer* layer(const void* p) { return reinterpret_cast<const Layer*>(p); }
  MEMBER static Layer* layer(void* p) { return reinterpret_cast<Layer*>(p); }

  MEMBER void take_in() {  // the content of a lane's slot before the write
    const bool cleared = a.reset[row];
    if (lane < K::WIDTH && !cleared) {
      credit = a.relevance[b * K::WIDTH + lane], birth = (int)a.born[b * K::WIDTH + lane];
      held = a.ids[row * K::WIDTH + lane];
    }
    if (cleared) age = 0;
    turn = age % S::WINDOW;
  }

  MEMBER void write() {
    if constexpr (K::WIDTH > S::WINDOW) {
      const int left = shuffle(birth, turn), gone = shuffle(held, turn);
      const float earned = shuffle(credit, turn);
      bool admitted = left >= 0;
      int worst;
      if constexpr (S::EVERY == 0) {
        const bool kept = lane >= S::WINDOW && lane < K::WIDTH;
        const float infinity = of_bits(0x7f800000u), standing = !kept ? infinity : birth < 0 ? -infinity : credit;
        float least = standing;
#pragma unroll
        for (int mask = 16; mask; mask /= 2) {
          const float other = shuffle_xor(least, mask);
          least = other < least ? other : least;
        }
        worst = first_bit(vote(kept && standing == least));
        admitted = admitted && earned > least;
      } else {
        worst = S::WINDOW + (left < 0 ? 0 : left) / S::EVERY % (K::WIDTH - S::WINDOW);
        admitted = admitted && left % S::EVERY == 0;
      }
      if (lane == worst && admitted) credit = earned, birth = left, held = gone;
    }
    if (lane == turn) {
      birth = age, held = K::WIDTH + a.t;
      if (!a.worth) credit = 0.0f;
    }
  }

  MEMBER int found() { return held >= 0 ? held : K::WIDTH + a.t; }

  // This warp's part of the energies of every GROUPS-th slot, and of the score of h_t
  MEMBER void score() {
    const int part = warp % K::PARTS, group = warp / K::PARTS;
    const float* key[K::EACH];
    float sum[K::EACH], rated = 0.0f;
#pragma unroll
    for (int n = 0; n < K::EACH; n++) {
      key[n] = entry<S>(a.initial_keys, (const float*)a.keys, shuffle(found(), (group + K::GROUPS * n) % 32), b, a.rows);
      sum[n] = 0.0f;
    }
    const Layer* query = layer(a.product) + ((int64_t)b * (S::GATES + 1) + S::GATES) * K::H;
    for (int i = part * K::PART + lane; i < (part + 1) * K::PART && i < K::FOURS; i += 32) {
      const float4 q = wide4(query + 4 * i), mine = wide4(layer(a.key_product) + (int64_t)b * K::H + 4 * i);
      const float4 v = wide4(layer(a.energy) + 4 * i);
      float4 k[K::EACH];
#pragma unroll
      for (int n = 0; n < K::EACH; n++) k[n] = load4(key[n] + 4 * i);
#pragma unroll
      for (int n = 0; n < K::EACH; n++) {
        const float4 r = gaps(q, group + K::GROUPS * n == turn ? mine : k[n]);
        sum[n] = dot4(v, {mad(-2.0f, r.x, 1.0f), mad(-2.0f, r.y, 1.0f), mad(-2.0f, r.z, 1.0f), mad(-2.0f, r.w, 1.0f)}, sum[n]);
      }
      if (group == 0) {
        store4(a.queries + row * K::H + 4 * i, q), store4(a.keys + row * K::H + 4 * i, mine);
        if (a.worth) rated = dot4(wide4(layer(a.worth) + 4 * i), wide4(layer(a.output) + row * K::H + 4 * i), rated);
      }
    }
#pragma unroll
    for (int n = 0; n < K::EACH; n++) {
      const float whole = sum_of_warp(sum[n]);
      if (lane == 0 && group + K::GROUPS * n < K::WIDTH) sm[K::SUMS + part * 32 + group + K::GROUPS * n] = whole;
    }
    if (group == 0 && a.worth) {
      rated = sum_of_warp(rated);
      if (lane == 0) sm[K::RATED + part] = rated;
    }
    barrier_sync(1, K::THREADS);
  }

  MEMBER float share_of() {  // weight of a lane's slot; its relevance is updated
    const bool occupied = birth >= 0 && lane < K::WIDTH;
    const float infinity = of_bits(0x7f800000u);
    float score = 0.0f, rated = 0.0f;
#pragma unroll
    for (int part = 0; part < K::PARTS; part++) score += occupied ? sm[K::SUMS + part * 32 + lane] : 0.0f;
    if (a.worth) {
#pragma unroll
      for (int part = 0; part < K::PARTS; part++) rated += sm[K::RATED + part];
      const bool known = lane < K::WIDTH && held >= 0 && held < K::WIDTH + a.t;
      score += lane == turn ? rated : known ? a.rates[(int64_t)held * a.rows + b] : 0.0f;
      if (thread == 0) a.rates[((int64_t)K::WIDTH + a.t) * a.rows + b] = rated;
      if (a.noise) rated += a.noise[row];
      if (lane == turn) credit = rated;
    }
    score = occupied ? score : -infinity;
    float most = score;
#pragma unroll
    for (int mask = 16; mask; mask /= 2) {
      const float other = shuffle_xor(most, mask);
      most = other > most || other != other ? other : most;
    }
    const float power = occupied ? ex2(LOG2E * (score - most)) : 0.0f, share = divide(power, sum_of_warp(power));
    if (!a.worth && lane < S::WINDOW) credit += share;
    return share;
  }

  MEMBER void mix(float share) {
    for (int i = thread; i < round_up(2 * K::FOURS, 32); i += K::THREADS) {  // whole warps
      const int half = i / K::FOURS, at = i % K::FOURS * 4;
      float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
      for (int n = 0; n < ceil_div(K::WIDTH, 2); n++) {
        const int x = (2 * n + half) % 32, id = shuffle(found(), x);  // a lane beyond the slots has no state and no weight
        sum = mad4(shuffle(share, x), wide4(entry<S>(layer(a.slots), layer(a.output), id, b, a.rows) + at), sum);
      }
      if (half < 2) store4(sm + K::HALVES + half * K::H + at, sum);
    }
    barrier_sync(1, K::THREADS);
    const bool cleared = a.reset[row + a.rows];
    for (int i = thread; i < K::FOURS; i += K::THREADS) {
      const float4 c = plus(load4(sm + K::HALVES + 4 * i), load4(sm + K::HALVES + K::H + 4 * i));
      const float4 h = wide4(layer(a.output) + row * K::H + 4 * i);
      const float4 s = times(a.mix, plus(h, {rounded<Layer>(c.x), rounded<Layer>(c.y), rounded<Layer>(c.z), rounded<Layer>(c.w)}));
      narrow4(layer(a.hidden_out) + (int64_t)b * K::H + 4 * i, s);
      narrow4(layer(a.prev_states) + (row + a.rows) * K::H + 4 * i, cleared ? float4{0.0f, 0.0f, 0.0f, 0.0f} : s);
    }
  }

  MEMBER void save(float share) {
    if (thread == 0) a.age[b] = age + 1;
    if (warp || lane >= K::WIDTH) return;
    const int64_t at = row * K::WIDTH + lane;
    a.relevance[b * K::WIDTH + lane] = credit, a.born[b * K::WIDTH + lane] = birth;
    a.weights[at] = share, a.ids[at + (int64_t)a.rows * K::WIDTH] = held;
    if (a.trace_born) a.trace_born[at] = birth, a.trace_relevance[at] = credit;
  }

  MEMBER void step() {
    take_in();
    write();
    score();  // after this barrier every warp has read the values that are updated
    const float share = share_of();
    mix(share);
    save(share);
  }
};

template <class S>
DEVICE void scan_attend(const AttendArguments& a, unsigned char* memory) {
  static_assert((Slots<S>::HALVES + 2 * Slots<S>::H) * 4 == S::SHARED_BYTES, "Python counts shared memory otherwise");
  Attend<S>(a, reinterpret_cast<float*>(memory)).step();
}

}  // namespace plait
