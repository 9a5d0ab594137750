// What both walks of the full memory share. A cluster of C blocks walks one row, or C rows. Of one row position p, an
// initial slot or h_t, belongs to block p mod C; each block reads its own positions, and the parts are joined. Of C rows each
// block reads one. Of products with a matrix a block computes the outputs of its own H / C features, for all rows of
// the cluster, and keeps its rows of as many matrices as it has room for. A lane holds four features, or eight beyond 128 of them.

#pragma once

#include "shape.h"

namespace plait {

template <class S>
struct PastShape {
  static constexpr int H = S::HIDDEN, HP = round_up(H, 4), C = S::CLUSTER, W = S::WARPS, THREADS = 32 * W;
  static constexpr int G = gates_of(S::CELL), F = ceil_div(H, C), N = 4 * ceil_div(HP, 128);
  static constexpr int R = S::ROWS, D = R == 1 ? C : 1;  // rows of a cluster; blocks a row's positions are dealt to
  static constexpr int KEPT = S::KEPT;  // matrices whose rows lie in shared memory
  static_assert(R == 1 || R == C, "a block reads one row or its part of one");
  using Layer = typename S::Layer;
};

enum { WHOLE_BLOCK = 1 };

NUMBER least(int a, int b) { return a < b ? a : b; }
template <class K>
DEVICE void block_sync() { barrier_sync(WHOLE_BLOCK, K::THREADS); }

// A lane's features of a vector of HP numbers; `own` is where its first four are.
template <class K>
DEVICE void fetch_own(float (&x)[K::N], const float* own, int lane) {
#pragma unroll
  for (int n = 0; n < K::N; n += 4) {
    const bool there = K::HP % 128 == 0 || n * 32 + 4 * lane < K::HP;
    const float4 v = there ? load4(own + n * 32) : float4{0.0f, 0.0f, 0.0f, 0.0f};
    x[n] = v.x, x[n + 1] = v.y, x[n + 2] = v.z, x[n + 3] = v.w;
  }
}
template <class K>
DEVICE void fetch(float (&x)[K::N], const float* vector, int lane) { fetch_own<K>(x, vector + 4 * lane, lane); }
template <class K>
DEVICE void keep(float* vector, const float (&x)[K::N], int lane) {
#pragma unroll
  for (int n = 0; n < K::N; n += 4) {
    const int at = n * 32 + 4 * lane;
    if (K::HP % 128 == 0 || at < K::HP) *reinterpret_cast<float4*>(vector + at) = float4{x[n], x[n + 1], x[n + 2], x[n + 3]};
  }
}
template <class K>
DEVICE void clear(float (&x)[K::N]) {
#pragma unroll
  for (int n = 0; n < K::N; n++) x[n] = 0.0f;
}
template <class K>
DEVICE float dot(const float (&x)[K::N], const float (&y)[K::N]) {
  float sum = 0.0f;
#pragma unroll
  for (int n = 0; n < K::N; n++) sum = mad(x[n], y[n], sum);
  return sum;
}

// ---- sums over a warp, several at a time: each halving keeps one of two, so that four cost six shuffles
DEVICE float halved(float a, float b, bool second, int mask) {
  return (second ? b : a) + shuffle_xor(second ? a : b, mask);
}
DEVICE float whole_sum(float a) {
#pragma unroll
  for (int mask = 16; mask; mask /= 2) a += shuffle_xor(a, mask);
  return a;
}
// lane 8 n is left with the sum of the n-th
DEVICE float quarter_sum(const float (&x)[4], int lane) {
  const float a = halved(x[0], x[2], lane & 16, 16), b = halved(x[1], x[3], lane & 16, 16);
  return halved(a, b, lane & 8, 8);
}
DEVICE float four_sums(const float (&x)[4], int lane) {
  float sum = quarter_sum(x, lane);
  sum += shuffle_xor(sum, 4), sum += shuffle_xor(sum, 2), sum += shuffle_xor(sum, 1);
  return sum;
}
// lane 4 n is left with the sum of the n-th of eight; lane 2 n with that of the n-th of sixteen
DEVICE float eight_sums(const float (&x)[8], int lane) {
  float y[4];
#pragma unroll
  for (int u = 0; u < 4; u++) y[u] = halved(x[u], x[u + 4], lane & 16, 16);
  const float a = halved(y[0], y[2], lane & 8, 8), b = halved(y[1], y[3], lane & 8, 8);
  float sum = halved(a, b, lane & 4, 4);
  sum += shuffle_xor(sum, 2), sum += shuffle_xor(sum, 1);
  return sum;
}
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

DEVICE float infinity() { return of_bits(0x7f800000u); }
constexpr float LN2 = 0.69314718055994531f;
DEVICE float exponential(float x) { return ex2(LOG2E * x); }

// A block's own rows of the matrices it keeps, from those in global memory; features that are not there are the last one's.
template <class K>
DEVICE void keep_weights(float* kept, int block, const float* matrix, int rank, int thread) {
  for (int i = thread; i < K::F * K::HP; i += K::THREADS)
    kept[block * K::F * K::HP + i] = matrix[least(rank * K::F + i / K::HP, K::H - 1) * K::HP + i % K::HP];
}

// Outputs of the products of COUNT blocks of H rows with R vectors, those of this block's own features: a lane is given
// output o = block * F + feature of the r-th vector and its sum by take(o, r, sum). The first KEPT blocks lie in shared
// memory. A warp computes four at a time; where there are fewer it does the last one again, which costs less than asking.
template <class K, int COUNT, int KEPT, class Take>
DEVICE void own_products(const float* kept, const float* weights, const float* vectors, int rank, int warp, int lane, Take take) {
  float x[K::R][K::N];
#pragma unroll
  for (int r = 0; r < K::R; r++) fetch<K>(x[r], vectors + r * K::HP, lane);
#pragma unroll 2
  for (int first = warp; first < COUNT * K::F; first += 4 * K::W) {
    float sums[K::R][4];
#pragma unroll
    for (int u = 0; u < 4; u++) {
      const int o = least(first + u * K::W, COUNT * K::F - 1), f = least(rank * K::F + o % K::F, K::H - 1);
      float row[K::N];
      fetch<K>(row, KEPT == COUNT || (KEPT && o < KEPT * K::F) ? kept + o * K::HP : weights + (o / K::F * K::H + f) * K::HP, lane);
#pragma unroll
      for (int r = 0; r < K::R; r++) sums[r][u] = dot<K>(row, x[r]);
    }
#pragma unroll
    for (int r = 0; r < K::R; r++) {
      const float sum = four_sums(sums[r], lane);
      const int o = first + lane / 8 * K::W;
      if (lane % 8 == 0 && o < COUNT * K::F) take(o, r, sum);
    }
  }
}

// How many of a block's own positions lie before one; they are counted i = 0, 1 .. as position rank + D i, rank among D.
template <class K>
DEVICE int own_before(int position, int rank) { return position > rank ? (position - rank + K::D - 1) / K::D : 0; }

// A key is kept as 2 to the power of it, so that a pair of a query and a key costs one special function and not two. Where one
// of a row is beyond FARTHEST, its keys are kept as they are: `logs`.
constexpr float FARTHEST = 120.0f;
DEVICE bool is_far(float scaled) { return !(scaled <= FARTHEST && scaled >= -FARTHEST); }
template <class K>
DEVICE bool any_far(const float* vector, int lane) {
  float x[K::N];
  fetch<K>(x, vector, lane);
  bool found = false;
#pragma unroll
  for (int n = 0; n < K::N; n++) found = found || is_far(x[n]);
  return vote(found);
}
DEVICE float log_of(float power) {  // to rounding, where lg2 of a large or small number is not
  const uint32_t bits = bits_of(power);
  return (float)((int)(bits >> 23) - 127) + lg2(of_bits((bits & 0x7fffffu) | 0x3f800000u));
}
// r in tanh(q + k) = 1 - 2 r
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

// The positions of a block that may be read, from `low` to `high`, in eights that begin at multiples of eight: a warp is dealt
// the n-th, n-th + W .. of them. In every other step they are counted from the other end, so that what the cache holds of one step is
// what the next one asks for first.
struct Eights {
  int low, high, begin, count;
  bool reversed;

  MEMBER Eights(int low, int high, bool reversed)
      : low(low), high(high), begin(low / EIGHT), count(high > low ? ceil_div(high, EIGHT) - begin : 0), reversed(reversed) {}
  MEMBER int position(int n) const { return EIGHT * (reversed ? begin + count - 1 - n : begin + n); }
};

// Work on `items` numbers and the sending of each to every block that reads the row, dealt to all threads: work(item, part, PARTS) sends to
// the blocks part, part + PARTS ...
template <class K, int ITEMS, class Work>
DEVICE void deal(int thread, Work work) {
  constexpr int PARTS = K::THREADS < ITEMS ? 1 : K::THREADS / ITEMS < K::D ? K::THREADS / ITEMS : K::D;
  for (int i = thread; i < PARTS * ITEMS; i += K::THREADS) work(i % ITEMS, i / ITEMS, PARTS);
}
// ---- messages. A cluster's barrier would wait for all that was stored in global memory, microseconds a step; a message is counted
// by its receiver's mbarrier of one exchange. Nobody sends what would overwrite something before it has been told, by the exchange
// between, that it was read. A block alone stores.
constexpr int EXCHANGES = 3, BARRIERS = 32;  // numbers of shared memory for their mbarriers

template <class K>
DEVICE void message(float* sm, int exchange, float* place, float v, int rank) {
  if constexpr (K::C == 1) *place = v;
  else send(shared_address(place), v, shared_address(sm) + 8 * exchange, rank);
}
// v to the same place in the blocks of a part; where a block reads a row alone, in itself
template <class K>
DEVICE void message_part(float* sm, int exchange, float* place, float v, int part, int parts) {
  if constexpr (K::D == 1) *place = v;
  else for (int r = part; r < K::D; r += parts) message<K>(sm, exchange, place, v, r);
}
template <class K>
DEVICE void open_exchanges(float* sm, int thread) {
  if (K::C == 1 || thread) return;
  for (int exchange = 0; exchange < EXCHANGES; exchange++) mbarrier_init(shared_address(sm) + 8 * exchange, 1);
  mbarrier_fence();
}
// The block meets, and so many numbers have come; `turn` counts the times.
template <class K>
DEVICE void meet(float* sm, int exchange, int numbers, int turn, int thread) {
  block_sync<K>();
  if constexpr (K::C > 1) {
    const uint32_t barrier = shared_address(sm) + 8 * exchange;
    if (thread == 0) mbarrier_expect(barrier, 4 * numbers);
    mbarrier_wait(barrier, turn % 2);
  }
}

}  // namespace plait
