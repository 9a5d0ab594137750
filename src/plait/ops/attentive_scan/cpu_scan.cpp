// The fused scan on a CPU: a cell and its slot memory walked through time, forward and in reverse.
//
// A task is a block of batch rows and walks all steps, so threads never wait for each other. Rows are
// padded to whole vectors (size -> lane); the padding holds zeros throughout. What every name means, and
// the derivation of the reverse walk, stands in docs/kernels.md.
//
// tanh(q + k) = 1 - 2 / (1 + e^{2q} e^{2k}): both exponentials are taken once per query and once per key,
// so a score costs one multiplication and one division per feature. Out of the range where neither
// exponential overflows ("plain" below), tanh is taken itself.

#include <ATen/Parallel.h>
#include <ATen/cpu/vec/vec.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace {

enum Cell : int64_t { ELMAN, LSTM, GRU };
enum Nonlinearity : int64_t { TANH, RELU, MODRELU, IDENTITY };
enum Rounding : int64_t { NONE, BFLOAT16, FLOAT16 };

struct Sizes {
  int64_t steps, rows, size, window, width, every, cell, nonlinearity, rounding;
  double mix;
  int64_t gates() const { return cell == LSTM ? 4 : cell == GRU ? 3 : 1; }
};

// The layout of both structs is that of cpu_library.py: 8 bytes a field, null where a tensor is absent.
struct ForwardTensors {
  const void *projected, *recurrent, *query, *key, *energy, *cell_bias, *hidden, *cell_state, *slots,
      *relevance;
  const int64_t *born, *age;
  const bool* reset;
  const void* nudge;
  void *output, *hidden_out, *cell_state_out, *slots_out, *relevance_out;
  int64_t *born_out, *age_out;
  void* weights;
  int64_t* trace_born;
  void *trace_relevance, *asked, *cells, *gates, *queries, *keys;
  int32_t* ids;
};

struct BackwardTensors {
  const void *recurrent, *query, *key, *energy;
  const void *states, *keys, *initial_states, *initial_keys;
  const void *queries, *asked, *cells, *gates, *weights;
  const int32_t* ids;
  const bool* reset;
  const void *d_hidden, *d_cell_state, *d_slots;
  void *d_states, *d_keys, *d_initial_states, *d_initial_keys;
  void *d_projected, *d_queries, *d_energy, *d_hidden_out, *d_cell_state_out;
};

template <class T>
using Vec = at::vec::Vectorized<T>;
template <class T>
constexpr int64_t LANES = Vec<T>::size();
// A tile of 6 rows by 4 vectors (2 where there are 16 registers) keeps its sums in registers.
constexpr int64_t TILE_ROWS = 6;
constexpr int64_t TILE_VECTORS = sizeof(Vec<float>) == 64 ? 4 : 2;
template <class T>
constexpr int64_t PANEL = LANES<T> * TILE_VECTORS;

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// --- products ---------------------------------------------------------------------------------------

// A depth x columns matrix cut into panels of PANEL columns, each stored row after row, zero-padded.
template <class T>
struct Packed {
  int64_t depth, columns;
  std::vector<T> data;

  Packed(int64_t depth, int64_t columns)
      : depth(depth), columns(round_up(columns, PANEL<T>)), data(depth * this->columns, T(0)) {}

  T* at(int64_t k, int64_t column) {
    return data.data() + (column / PANEL<T> * depth + k) * PANEL<T> + column % PANEL<T>;
  }
  // entry (k, column) is source[k * row_stride + column * column_stride]
  void fill(const T* source, int64_t k0, int64_t column0, int64_t n, int64_t row_stride, int64_t column_stride) {
    for (int64_t column = 0; column < n; ++column)
      for (int64_t k = 0; k < n; ++k)
        *at(k0 + k, column0 + column) = source[k * row_stride + column * column_stride];
  }
};

template <class T, int ROWS>
void tile(const T* x, int64_t x_stride, int64_t depth, const T* panel, T* out, int64_t out_stride) {
  Vec<T> sum[ROWS][TILE_VECTORS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < TILE_VECTORS; ++c) sum[r][c] = Vec<T>(T(0));
  for (int64_t k = 0; k < depth; ++k, panel += PANEL<T>) {
    Vec<T> w[TILE_VECTORS];
#pragma GCC unroll 4
    for (int c = 0; c < TILE_VECTORS; ++c) w[c] = Vec<T>::loadu(panel + c * LANES<T>);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const Vec<T> factor(x[r * x_stride + k]);
#pragma GCC unroll 4
      for (int c = 0; c < TILE_VECTORS; ++c) sum[r][c] = at::vec::fmadd(factor, w[c], sum[r][c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < TILE_VECTORS; ++c) sum[r][c].store(out + r * out_stride + c * LANES<T>);
}

// out[r, :] = x[r, :] times the packed matrix, for `rows` rows
template <class T>
void product(const T* x, int64_t x_stride, int64_t rows, const Packed<T>& w, T* out, int64_t out_stride) {
  for (int64_t column = 0; column < w.columns; column += PANEL<T>) {
    const T* panel = w.data.data() + column * w.depth;
    for (int64_t r = 0, tiles = (rows + TILE_ROWS - 1) / TILE_ROWS; r < rows; --tiles) {
      const int64_t count = (rows - r + tiles - 1) / tiles;
      const T* from = x + r * x_stride;
      T* to = out + r * out_stride + column;
      switch (count) {
        case 1: tile<T, 1>(from, x_stride, w.depth, panel, to, out_stride); break;
        case 2: tile<T, 2>(from, x_stride, w.depth, panel, to, out_stride); break;
        case 3: tile<T, 3>(from, x_stride, w.depth, panel, to, out_stride); break;
        case 4: tile<T, 4>(from, x_stride, w.depth, panel, to, out_stride); break;
        case 5: tile<T, 5>(from, x_stride, w.depth, panel, to, out_stride); break;
        default: tile<T, 6>(from, x_stride, w.depth, panel, to, out_stride); break;
      }
      r += count;
    }
  }
}

// --- small vector functions ---------------------------------------------------------------------------

template <class T, class F>
void each(int64_t lane, const F& f) {
  for (int64_t i = 0; i < lane; i += LANES<T>) f(i);
}

template <class T>
Vec<T> load(const T* x) {
  return Vec<T>::loadu(x);
}

template <class T>
T total(const Vec<T>& x) {
  if constexpr (requires { x.reduce_add(); }) return x.reduce_add();
  T lanes[LANES<T>], sum = 0;
  x.store(lanes);
  for (const T lane : lanes) sum += lane;
  return sum;
}

template <class T, class F>
bool every(const Vec<T>& x, const F& holds) {
  T lanes[LANES<T>];
  x.store(lanes);
  return std::all_of(lanes, lanes + LANES<T>, holds);
}

template <class T>
Vec<T> sigmoid(const Vec<T>& x) {
  return Vec<T>(T(1)) / (Vec<T>(T(1)) + x.neg().exp());
}

// e^{2x} for the vectors of a row; whether no value of the row is out of the range of the identity
template <class T>
bool grow(const T* x, T* grown, int64_t lane) {
  const T limit = std::log(std::numeric_limits<T>::max()) * T(0.49);
  Vec<T> largest(T(0));
  each<T>(lane, [&](int64_t i) {
    const auto value = load(x + i);
    largest = at::vec::maximum(largest, value.abs());  // a NaN stays
    (value + value).exp().store(grown + i);
  });
  return every(largest, [&](T value) { return value <= limit; });
}

// 1 / (1 + e^{2(q + k)}), from which tanh = 1 - 2r and tanh' = 4r(1 - r)
template <class T>
Vec<T> fading(const Vec<T>& grown_query, const Vec<T>& grown_key) {
  return Vec<T>(T(1)) / at::vec::fmadd(grown_query, grown_key, Vec<T>(T(1)));
}

#ifdef CPU_CAPABILITY_AVX512
// Half the time of a division: 14 bits and one Newton step, exact to 1 or 2 units in the last place. The
// minimum keeps infinity out of the step (and lets a NaN through).
inline Vec<float> fading(const Vec<float>& grown_query, const Vec<float>& grown_key) {
  const __m512 one = _mm512_set1_ps(1.0f), most = _mm512_set1_ps(1e30f);
  const __m512 x = _mm512_min_ps(most, _mm512_fmadd_ps(grown_query, grown_key, one));
  const __m512 guess = _mm512_rcp14_ps(x);
  return _mm512_fmadd_ps(_mm512_fnmadd_ps(x, guess, one), guess, guess);
}
#endif

// the same, where an exponential could overflow
template <class T>
Vec<T> fading_far(const Vec<T>& query, const Vec<T>& key) {
  return (Vec<T>(T(1)) - (query + key).tanh()) * Vec<T>(T(0.5));
}

// A state is kept in the layer's type: what is carried over, saved and read is the same number.
template <class T>
void keep_rounded(T* x, int64_t n, int64_t rounding) {
  if (rounding == BFLOAT16)
    for (int64_t i = 0; i < n; ++i) x[i] = static_cast<T>(static_cast<c10::BFloat16>(static_cast<float>(x[i])));
  if (rounding == FLOAT16)
    for (int64_t i = 0; i < n; ++i) x[i] = static_cast<T>(static_cast<c10::Half>(static_cast<float>(x[i])));
}

// --- cells --------------------------------------------------------------------------------------------

// z (gates x lane) holds projected + V s, for a GRU's candidate V s alone; leaves the gates in z, h in h.
template <class T>
void cell_forward(const Sizes& n, int64_t lane, T* z, const T* candidate, const T* s, T* c, const T* bias, T* h) {
  if (n.cell == ELMAN) {
    if (n.nonlinearity == TANH) each<T>(lane, [&](int64_t i) { load(z + i).tanh().store(h + i); });
    if (n.nonlinearity == IDENTITY) std::copy(z, z + lane, h);
    if (n.nonlinearity == RELU)
      for (int64_t i = 0; i < lane; ++i) h[i] = z[i] < 0 ? T(0) : z[i];
    if (n.nonlinearity == MODRELU)
      for (int64_t i = 0; i < lane; ++i) {
        const T size = std::abs(z[i]) + (bias ? bias[i] : T(0));
        const T sign = z[i] != z[i] ? z[i] : T((z[i] > 0) - (z[i] < 0));
        h[i] = sign * (size < 0 ? T(0) : size);
      }
  } else if (n.cell == LSTM) {
    each<T>(lane, [&](int64_t x) {
      const auto i = sigmoid(load(z + x)), f = sigmoid(load(z + lane + x)), g = load(z + 2 * lane + x).tanh(),
                 o = sigmoid(load(z + 3 * lane + x));
      const auto kept = at::vec::fmadd(i, g, f * load(c + x));
      i.store(z + x), f.store(z + lane + x), g.store(z + 2 * lane + x), o.store(z + 3 * lane + x);
      kept.store(c + x);
      (o * kept.tanh()).store(h + x);
    });
  } else {
    each<T>(lane, [&](int64_t x) {
      const auto r = sigmoid(load(z + x)), u = sigmoid(load(z + lane + x));
      auto v = load(z + 2 * lane + x);
      if (bias) v = v + load(bias + x);
      const auto m = at::vec::fmadd(r, v, load(candidate + x)).tanh();
      r.store(z + x), u.store(z + lane + x), m.store(z + 2 * lane + x), v.store(z + 3 * lane + x);
      at::vec::fmadd(u, load(s + x) - m, m).store(h + x);
    });
  }
}

// d_h and the gates to dz = dL/d(projected) and, in d_back, dL/d(V s); d_c is read and replaced, d_direct
// is what reaches s beside the product.
template <class T>
void cell_backward(const Sizes& n, int64_t lane, const T* d_h, const T* gates, const T* s, const T* c, T* d_c,
                   T* d_z, T* d_back, T* d_direct) {
  const Vec<T> one(T(1));
  if (n.cell == ELMAN) {
    for (int64_t i = 0; i < lane; ++i) {
      const T slope = n.nonlinearity == TANH ? 1 - gates[i] * gates[i] : T(1);
      const bool flat = (n.nonlinearity == RELU || n.nonlinearity == MODRELU) && gates[i] == 0;
      d_z[i] = d_back[i] = flat ? T(0) : d_h[i] * slope;
    }
  } else if (n.cell == LSTM) {
    each<T>(lane, [&](int64_t x) {
      const auto i = load(gates + x), f = load(gates + lane + x), g = load(gates + 2 * lane + x),
                 o = load(gates + 3 * lane + x), before = load(c + x), arriving = load(d_h + x);
      const auto squashed = at::vec::fmadd(i, g, f * before).tanh();
      const auto d_kept = at::vec::fmadd(arriving * o, one - squashed * squashed, load(d_c + x));
      const Vec<T> d[4] = {d_kept * g * i * (one - i), d_kept * before * f * (one - f), d_kept * i * (one - g * g),
                           arriving * squashed * o * (one - o)};
      for (int gate = 0; gate < 4; ++gate) d[gate].store(d_z + gate * lane + x), d[gate].store(d_back + gate * lane + x);
      (d_kept * f).store(d_c + x);
    });
  } else {
    each<T>(lane, [&](int64_t x) {
      const auto r = load(gates + x), u = load(gates + lane + x), m = load(gates + 2 * lane + x),
                 v = load(gates + 3 * lane + x), arriving = load(d_h + x);
      const auto d_m = arriving * (one - u) * (one - m * m), d_u = arriving * (load(s + x) - m) * u * (one - u),
                 d_r = d_m * v * r * (one - r);
      d_r.store(d_z + x), d_u.store(d_z + lane + x), d_m.store(d_z + 2 * lane + x);
      d_r.store(d_back + x), d_u.store(d_back + lane + x), (d_m * r).store(d_back + 2 * lane + x);
      (arriving * u).store(d_direct + x);
    });
  }
}

// --- the slot memory of one row -----------------------------------------------------------------------

template <class T>
struct Slots {
  int64_t width, lane, age = 0;
  std::vector<T> state, key, grown, relevance;  // the first three by buffer, relevance by slot
  std::vector<int64_t> born, buffer;            // by slot; a move exchanges buffers, nothing is copied
  std::vector<int32_t> id;
  std::vector<char> plain;  // by buffer: e^{2k} is in range

  Slots(int64_t width, int64_t lane)
      : width(width), lane(lane), state(width * lane), key(width * lane), grown(width * lane), relevance(width),
        born(width), buffer(width), id(width), plain(width) {
    for (int64_t j = 0; j < width; ++j) buffer[j] = j;
  }

  void clear() {
    std::fill(state.begin(), state.end(), T(0));
    std::fill(relevance.begin(), relevance.end(), T(0));
    std::fill(born.begin(), born.end(), int64_t(-1));
    std::fill(id.begin(), id.end(), -1);
    age = 0;
  }

  // Which slot the state leaving the ring moves to, -1 if it is lost; the rules of plait.ops.slots.
  int64_t destination(const Sizes& n, int64_t leaving) const {
    if (width == n.window || born[leaving] < 0) return -1;
    if (n.every > 0)
      return born[leaving] % n.every ? -1 : n.window + born[leaving] / n.every % (width - n.window);
    T least = 0;
    int64_t place = -1;
    for (int64_t j = n.window; j < width; ++j) {
      const T standing = born[j] < 0 ? -std::numeric_limits<T>::infinity() : relevance[j];
      if (place >= 0 && standing >= least) continue;
      least = standing, place = j;
      if (standing != standing) break;  // a NaN is the least, as it is to torch
    }
    return relevance[leaving] > least ? place : -1;
  }

  // Make room for the next state in the ring and return the buffer to write it to.
  int64_t admit(const Sizes& n, int32_t new_id) {
    const int64_t leaving = age % n.window, place = destination(n, leaving);
    if (place >= 0) {
      std::swap(buffer[place], buffer[leaving]);
      relevance[place] = relevance[leaving], born[place] = born[leaving], id[place] = id[leaving];
    }
    relevance[leaving] = 0, born[leaving] = age++, id[leaving] = new_id;
    return buffer[leaving];
  }
};

// An occupied slot, as a read sees it.
template <class T>
struct Seen {
  int64_t slot;
  const T *state, *key, *grown;
  T weight;
};

// energies of COUNT slots, taken together to share the query
template <class T, int COUNT>
void energies(int64_t lane, bool plain, const T* query, const T* grown, const T* energy, Seen<T>* seen) {
  const Vec<T> half(T(0.5));
  Vec<T> sum[COUNT];
#pragma GCC unroll 4
  for (int j = 0; j < COUNT; ++j) sum[j] = Vec<T>(T(0));
  each<T>(lane, [&](int64_t i) {
#pragma GCC unroll 4
    for (int j = 0; j < COUNT; ++j) {
      const auto fade = plain ? fading(load(grown + i), load(seen[j].grown + i))
                              : fading_far(load(query + i), load(seen[j].key + i));
      sum[j] = at::vec::fmadd(load(energy + i), half - fade, sum[j]);
    }
  });
  for (int j = 0; j < COUNT; ++j) seen[j].weight = 2 * total(sum[j]);
}

// context += weights of COUNT slots times their states
template <class T, int COUNT>
void mix_in(int64_t lane, const Seen<T>* seen, T* context) {
  each<T>(lane, [&](int64_t i) {
    Vec<T> sum = load(context + i);
#pragma GCC unroll 4
    for (int j = 0; j < COUNT; ++j) sum = at::vec::fmadd(Vec<T>(seen[j].weight), load(seen[j].state + i), sum);
    sum.store(context + i);
  });
}

// The softmax of `count` energies, in place; a NaN makes all of them NaN.
template <class T>
void softmax(Seen<T>* seen, int64_t count) {
  T top = -std::numeric_limits<T>::infinity(), sum = 0;
  for (int64_t j = 0; j < count; ++j) top = std::max(top, seen[j].weight);
  for (int64_t j = 0; j < count; ++j) sum += seen[j].weight = std::exp(seen[j].weight - top);
  for (int64_t j = 0; j < count; ++j) seen[j].weight /= sum;
}

// Read with a query: weights over the occupied slots, context; the ring earns its weights.
template <class T>
void attend(const Sizes& n, Slots<T>& memory, const T* query, const T* energy, T* grown, Seen<T>* seen, T* weights,
            T* context) {
  const int64_t lane = memory.lane;
  bool plain = grow(query, grown, lane);
  int64_t count = 0, j = 0;
  for (int64_t slot = 0; slot < memory.width; ++slot) {
    weights[slot] = 0;
    if (memory.born[slot] < 0) continue;
    const int64_t at = memory.buffer[slot] * lane;
    seen[count++] = {slot, memory.state.data() + at, memory.key.data() + at, memory.grown.data() + at, T(0)};
    plain = plain && memory.plain[memory.buffer[slot]];
  }
  for (; j + 4 <= count; j += 4) energies<T, 4>(lane, plain, query, grown, energy, seen + j);
  for (; j < count; ++j) energies<T, 1>(lane, plain, query, grown, energy, seen + j);
  softmax(seen, count);
  std::fill_n(context, lane, T(0));
  for (j = 0; j + 4 <= count; j += 4) mix_in<T, 4>(lane, seen + j, context);
  for (; j < count; ++j) mix_in<T, 1>(lane, seen + j, context);
  for (j = 0; j < count; ++j) weights[seen[j].slot] = seen[j].weight;
  for (int64_t slot = 0; slot < n.window; ++slot) memory.relevance[slot] += weights[slot];
}

// --- forward --------------------------------------------------------------------------------------------

template <class T>
struct Row {
  Slots<T> memory;
  std::vector<T> cell_state, candidate, grown, context, weights;
  std::vector<Seen<T>> seen;
  Row(int64_t width, int64_t lane)
      : memory(width, lane), cell_state(lane), candidate(lane), grown(lane), context(lane), weights(width), seen(width) {}
};

// Rows [begin, end) through all steps.
template <class T>
class ForwardBlock {
 public:
  ForwardBlock(const Sizes& n, const ForwardTensors& a, const Packed<T>& from_hidden, const Packed<T>& to_key,
               const T* energy, const T* bias, int64_t begin, int64_t end)
      : n(n), a(a), from_hidden(from_hidden), to_key(to_key), energy(energy), bias(bias), begin(begin),
        count(end - begin), lane(round_up(n.size, LANES<T>)), hidden(count * lane), h(count * lane),
        product_s(count * std::max(from_hidden.columns, 4 * lane + lane)), product_h(count * to_key.columns),
        rows(count, Row<T>(n.width, lane)) {}

  void run() {
    start();
    for (int64_t t = 0; t < n.steps; ++t) {
      if (a.reset)
        for (int64_t r = 0; r < count; ++r)
          if (a.reset[t * n.rows + begin + r]) clear(r);
      product(hidden.data(), lane, count, from_hidden, product_s.data(), stride());
      for (int64_t r = 0; r < count; ++r) recur(t, r);
      product(h.data(), lane, count, to_key, product_h.data(), to_key.columns);
      for (int64_t r = 0; r < count; ++r) remember(t, r);
    }
    finish();
  }

 private:
  const Sizes& n;
  const ForwardTensors& a;
  const Packed<T>&from_hidden, &to_key;
  const T *energy, *bias;
  const int64_t begin, count, lane;
  std::vector<T> hidden, h, product_s, product_h;
  std::vector<Row<T>> rows;

  int64_t stride() const { return product_s.size() / std::max<int64_t>(count, 1); }
  // element `feature` of row r at step t in a (steps, rows, features) tensor; null where it is absent
  template <class U = T>
  U* at(const void* tensor, int64_t t, int64_t r, int64_t features) const {
    return tensor ? static_cast<U*>(const_cast<void*>(tensor)) + (t * n.rows + begin + r) * features : nullptr;
  }
  void copy(T* to, const T* from) const {
    if (to) std::copy(from, from + n.size, to);
  }

  void clear(int64_t r) {
    std::fill_n(hidden.data() + r * lane, lane, T(0));
    std::fill(rows[r].cell_state.begin(), rows[r].cell_state.end(), T(0));
    rows[r].memory.clear();
  }

  void start() {
    std::vector<T> padded(n.width * lane), keys(n.width * to_key.columns);
    for (int64_t r = 0; r < count; ++r) {
      copy(hidden.data() + r * lane, at(a.hidden, 0, r, n.size));
      if (a.cell_state) copy(rows[r].cell_state.data(), at(a.cell_state, 0, r, n.size));
      auto& memory = rows[r].memory;
      memory.age = a.age[begin + r];
      bool any = false;
      for (int64_t j = 0; j < n.width; ++j) {
        memory.relevance[j] = at(a.relevance, 0, r, n.width)[j];
        memory.born[j] = at<int64_t>(a.born, 0, r, n.width)[j];
        memory.id[j] = memory.born[j] < 0 ? -1 : int32_t(j);
        any |= memory.born[j] >= 0;
        copy(memory.state.data() + j * lane, at(a.slots, 0, r, n.width * n.size) + j * n.size);
      }
      if (!any) continue;
      product(memory.state.data(), lane, n.width, to_key, keys.data(), to_key.columns);
      for (int64_t j = 0; j < n.width; ++j) place_key(memory, j, keys.data() + j * to_key.columns);
    }
  }

  void place_key(Slots<T>& memory, int64_t buffer, const T* key) {
    std::copy(key, key + lane, memory.key.data() + buffer * lane);
    memory.plain[buffer] = grow(key, memory.grown.data() + buffer * lane, lane);
  }

  // h_t from s_{t-1}, and what of it is saved
  void recur(int64_t t, int64_t r) {
    Row<T>& row = rows[r];
    T *z = product_s.data() + r * stride(), *s = hidden.data() + r * lane, *state = h.data() + r * lane;
    const int64_t gates = n.gates();
    copy(at(a.asked, t, r, n.size), s);
    copy(at(a.queries, t, r, n.size), z + gates * lane);
    copy(at(a.cells, t, r, n.size), row.cell_state.data());
    const T* projected = at(a.projected, t, r, gates * n.size);
    for (int64_t g = 0; g < gates; ++g)
      if (n.cell == GRU && g == 2)
        copy(row.candidate.data(), projected + g * n.size);
      else
        for (int64_t i = 0; i < n.size; ++i) z[g * lane + i] += projected[g * n.size + i];
    // the query stands behind the gates, where a GRU saves V_n s + b': keep it
    if (n.cell == GRU) std::copy(z + 3 * lane, z + 4 * lane, z + 4 * lane);
    cell_forward(n, lane, z, row.candidate.data(), s, row.cell_state.data(), bias, state);
    if (T* saved = at(a.gates, t, r, (n.cell == ELMAN ? 1 : 4) * n.size)) {
      if (n.cell == ELMAN) copy(saved, state);
      else
        for (int64_t g = 0; g < 4; ++g) copy(saved + g * n.size, z + g * lane);
    }
    if (const T* nudge = at(a.nudge, t, r, n.size))
      for (int64_t i = 0; i < n.size; ++i) state[i] += nudge[i];
    keep_rounded(state, n.size, n.rounding);
    keep_rounded(row.cell_state.data(), n.size, n.rounding);
    copy(at(a.output, t, r, n.size), state);
  }

  // write h_t, read with W_a s_{t-1}, mix
  void remember(int64_t t, int64_t r) {
    Row<T>& row = rows[r];
    Slots<T>& memory = row.memory;
    const T *state = h.data() + r * lane, *key = product_h.data() + r * to_key.columns;
    const T* query = product_s.data() + r * stride() + (n.cell == GRU ? 4 : n.gates()) * lane;
    const int64_t buffer = memory.admit(n, int32_t(n.width + t));
    std::copy(state, state + lane, memory.state.data() + buffer * lane);
    place_key(memory, buffer, key);
    copy(at(a.keys, t, r, n.size), key);
    attend(n, memory, query, energy, row.grown.data(), row.seen.data(), row.weights.data(), row.context.data());
    keep_rounded(row.context.data(), n.size, n.rounding);
    T* s = hidden.data() + r * lane;
    for (int64_t i = 0; i < lane; ++i) s[i] = T(n.mix) * (state[i] + row.context[i]);
    keep_rounded(s, n.size, n.rounding);
    if (T* to = at(a.weights, t, r, n.width)) std::copy(row.weights.begin(), row.weights.end(), to);
    if (int32_t* to = at<int32_t>(a.ids, t, r, n.width)) std::copy(memory.id.begin(), memory.id.end(), to);
    if (int64_t* to = at<int64_t>(a.trace_born, t, r, n.width)) std::copy(memory.born.begin(), memory.born.end(), to);
    if (T* to = at(a.trace_relevance, t, r, n.width))
      std::copy(memory.relevance.begin(), memory.relevance.end(), to);
  }

  void finish() {
    for (int64_t r = 0; r < count; ++r) {
      const Slots<T>& memory = rows[r].memory;
      copy(at(a.hidden_out, 0, r, n.size), hidden.data() + r * lane);
      copy(at(a.cell_state_out, 0, r, n.size), rows[r].cell_state.data());
      a.age_out[begin + r] = memory.age;
      for (int64_t j = 0; j < n.width; ++j) {
        at(a.relevance_out, 0, r, n.width)[j] = memory.relevance[j];
        at<int64_t>(a.born_out, 0, r, n.width)[j] = memory.born[j];
        copy(at(a.slots_out, 0, r, n.width * n.size) + j * n.size, memory.state.data() + memory.buffer[j] * lane);
      }
    }
  }
};

template <class T>
std::vector<T> padded_row(const void* tensor, int64_t size, int64_t lane) {
  std::vector<T> row(lane, T(0));
  if (tensor) std::copy_n(static_cast<const T*>(tensor), size, row.data());
  return row;
}

template <class F>
void over_blocks(int64_t rows, int64_t blocks, const F& f) {
  at::parallel_for(0, blocks, 1, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) f(block, rows * block / blocks, rows * (block + 1) / blocks);
  });
}

template <class T>
void forward(const Sizes& n, const ForwardTensors& a, int64_t blocks) {
  const int64_t lane = round_up(n.size, LANES<T>), gates = n.gates();
  Packed<T> from_hidden(n.size, (gates + 1) * lane), to_key(n.size, lane);
  const T* recurrent = static_cast<const T*>(a.recurrent);
  for (int64_t g = 0; g < gates; ++g)
    from_hidden.fill(recurrent + g * n.size * n.size, 0, g * lane, n.size, 1, n.size);
  from_hidden.fill(static_cast<const T*>(a.query), 0, gates * lane, n.size, 1, n.size);
  to_key.fill(static_cast<const T*>(a.key), 0, 0, n.size, 1, n.size);
  const auto energy = padded_row<T>(a.energy, n.size, lane), bias = padded_row<T>(a.cell_bias, n.size, lane);
  over_blocks(n.rows, blocks, [&](int64_t, int64_t begin, int64_t end) {
    ForwardBlock<T>(n, a, from_hidden, to_key, energy.data(), a.cell_bias ? bias.data() : nullptr, begin, end).run();
  });
}

// --- backward -------------------------------------------------------------------------------------------

// A slot that was read: where its state, its key and their gradients stand in the history.
template <class T>
struct Read {
  const T *state, *key;
  T *d_state, *d_key;
  const T* grown;
  T weight, d_energy;
  bool plain;
};

// e^{2k} of what the slots of one row hold. Between two steps one or two slots change.
template <class T>
struct GrownKeys {
  std::vector<T> grown;
  std::vector<int32_t> id;
  std::vector<char> plain;
  GrownKeys(int64_t width, int64_t lane) : grown(width * lane), id(width, -1), plain(width) {}
};

template <class T>
class BackwardBlock {
 public:
  BackwardBlock(const Sizes& n, const BackwardTensors& a, const Packed<T>& key, const Packed<T>& to_hidden,
                const T* energy, T* d_energy, int64_t begin, int64_t end)
      : n(n), a(a), key(key), to_hidden(to_hidden), energy(energy), d_energy(d_energy), begin(begin),
        count(end - begin), lane(round_up(n.size, LANES<T>)), d_hidden(count * to_hidden.columns),
        d_cell_state(count * lane), d_back(count * (n.gates() + 1) * lane), d_by_key(count * key.columns),
        d_direct(count * lane), d_z(4 * lane), gates(4 * lane), asked(lane), cell(lane), grown(lane), d_context(lane),
        query(lane), reads(n.width), grown_keys(count, GrownKeys<T>(n.width, lane)) {}

  void run() {
    start();
    for (int64_t t = n.steps - 1; t >= 0; --t) {
      for (int64_t r = 0; r < count; ++r) attend(t, r);
      product(history(a.d_keys, t, 0), lane, count, key, d_by_key.data(), key.columns);
      for (int64_t r = 0; r < count; ++r) recur(t, r);
      product(d_back.data(), (n.gates() + 1) * lane, count, to_hidden, d_hidden.data(), to_hidden.columns);
      for (int64_t r = 0; r < count; ++r) reach_back(t, r);
    }
    for (int64_t r = 0; r < count; ++r) {
      copy(at(a.d_hidden_out, 0, r, n.size), d_hidden.data() + r * to_hidden.columns);
      copy(at(a.d_cell_state_out, 0, r, n.size), d_cell_state.data() + r * lane);
    }
  }

 private:
  const Sizes& n;
  const BackwardTensors& a;
  const Packed<T>&key, &to_hidden;
  const T* energy;
  T* d_energy;
  const int64_t begin, count, lane;
  std::vector<T> d_hidden, d_cell_state, d_back, d_by_key, d_direct;
  std::vector<T> d_z, gates, asked, cell, grown, d_context, query;
  std::vector<Read<T>> reads;
  std::vector<GrownKeys<T>> grown_keys;

  T* at(const void* tensor, int64_t t, int64_t r, int64_t features) const {
    return tensor ? static_cast<T*>(const_cast<void*>(tensor)) + (t * n.rows + begin + r) * features : nullptr;
  }
  T* history(const void* tensor, int64_t t, int64_t r) const { return at(tensor, t, r, lane); }
  T* initial(const void* tensor, int64_t r, int64_t j) const {
    return static_cast<T*>(const_cast<void*>(tensor)) + ((begin + r) * n.width + j) * lane;
  }
  void copy(T* to, const T* from) const {
    if (to && from) std::copy(from, from + n.size, to);
  }

  Read<T> find(int64_t r, int32_t id) const {
    if (id < n.width)
      return {initial(a.initial_states, r, id), initial(a.initial_keys, r, id), initial(a.d_initial_states, r, id),
              initial(a.d_initial_keys, r, id)};
    const int64_t t = id - n.width;
    return {history(a.states, t, r), history(a.keys, t, r), history(a.d_states, t, r), history(a.d_keys, t, r)};
  }

  Read<T> read_slot(int64_t r, int64_t j, int32_t id) {
    Read<T> slot = find(r, id);
    GrownKeys<T>& known = grown_keys[r];
    T* grown = known.grown.data() + j * lane;
    if (known.id[j] != id) known.plain[j] = grow(slot.key, grown, lane), known.id[j] = id;
    slot.grown = grown, slot.plain = known.plain[j];
    return slot;
  }

  void start() {
    for (int64_t r = 0; r < count; ++r) {
      copy(d_hidden.data() + r * to_hidden.columns, at(a.d_hidden, 0, r, n.size));
      copy(d_cell_state.data() + r * lane, at(a.d_cell_state, 0, r, n.size));
      const T* d_slots = at(a.d_slots, 0, r, n.width * n.size);
      const int32_t* ids = a.ids + ((n.steps - 1) * n.rows + begin + r) * n.width;
      for (int64_t j = 0; d_slots && j < n.width; ++j) {
        if (ids[j] < 0) continue;
        T* to = find(r, ids[j]).d_state;
        for (int64_t i = 0; i < n.size; ++i) to[i] += d_slots[j * n.size + i];
      }
    }
  }

  // through the read of step t: to the states and keys it read, and to the query
  void attend(int64_t t, int64_t r) {
    const T* d_s = d_hidden.data() + r * to_hidden.columns;
    for (int64_t i = 0; i < lane; ++i) d_context[i] = T(n.mix) * d_s[i];
    copy(query.data(), at(a.queries, t, r, n.size));
    const bool plain = grow(query.data(), grown.data(), lane);
    const int32_t* ids = a.ids + (t * n.rows + begin + r) * n.width;
    const T* weights = at(a.weights, t, r, n.width);
    int64_t read = 0;
    T mean = 0;
    for (int64_t j = 0; j < n.width; ++j) {
      if (ids[j] < 0 || weights[j] == 0) continue;
      Read<T>& slot = reads[read++] = read_slot(r, j, ids[j]);
      slot.weight = weights[j];
      slot.plain = slot.plain && plain;
      Vec<T> sum(T(0));
      each<T>(lane, [&](int64_t i) { sum = at::vec::fmadd(load(d_context.data() + i), load(slot.state + i), sum); });
      slot.d_energy = total(sum);
      mean += slot.weight * slot.d_energy;
    }
    for (int64_t j = 0; j < read; ++j) reads[j].d_energy = reads[j].weight * (reads[j].d_energy - mean);
    T* d_query = d_back.data() + (r * (n.gates() + 1) + n.gates()) * lane;
    std::fill_n(d_query, lane, T(0));
    int64_t j = 0;
    for (; j + 4 <= read; j += 4) score<4>(&reads[j], d_query);
    for (; j < read; ++j) score<1>(&reads[j], d_query);
    copy(at(a.d_queries, t, r, n.size), d_query);
  }

  // through the scores of COUNT slots, read together to share what they have in common
  template <int COUNT>
  void score(const Read<T>* slots, T* d_query) {
    bool plain = true;
    for (int j = 0; j < COUNT; ++j) plain &= slots[j].plain;
    const Vec<T> one(T(1)), two(T(2)), four(T(4));
    each<T>(lane, [&](int64_t i) {
      const auto arriving = load(d_context.data() + i), v = load(energy + i) * four;
      auto d_q = load(d_query + i), d_v = load(d_energy + i);
#pragma GCC unroll 4
      for (int j = 0; j < COUNT; ++j) {
        const Read<T>& slot = slots[j];
        const auto fade = plain ? fading(load(grown.data() + i), load(slot.grown + i))
                                : fading_far(load(query.data() + i), load(slot.key + i));
        const Vec<T> d_e(slot.d_energy);
        const auto d_score = d_e * v * fade * (one - fade);
        d_q = d_q + d_score;
        d_v = at::vec::fmadd(d_e, one - two * fade, d_v);
        (load(slot.d_key + i) + d_score).store(slot.d_key + i);
        at::vec::fmadd(Vec<T>(slot.weight), arriving, load(slot.d_state + i)).store(slot.d_state + i);
      }
      d_q.store(d_query + i);
      d_v.store(d_energy + i);
    });
  }

  // from h_t to the gates
  void recur(int64_t t, int64_t r) {
    const int64_t count_gates = n.gates();
    T* d_h = history(a.d_states, t, r);
    const T *d_s = d_hidden.data() + r * to_hidden.columns, *by_key = d_by_key.data() + r * key.columns;
    for (int64_t i = 0; i < lane; ++i) d_h[i] += T(n.mix) * d_s[i] + by_key[i];
    if (const T* saved = at(a.gates, t, r, (n.cell == ELMAN ? 1 : 4) * n.size))
      for (int64_t g = 0; g < (n.cell == ELMAN ? 1 : 4); ++g) copy(gates.data() + g * lane, saved + g * n.size);
    else
      copy(gates.data(), history(a.states, t, r));
    if (n.cell == GRU) copy(asked.data(), at(a.asked, t, r, n.size));
    if (n.cell == LSTM) copy(cell.data(), at(a.cells, t, r, n.size));
    cell_backward(n, lane, d_h, gates.data(), asked.data(), cell.data(), d_cell_state.data() + r * lane, d_z.data(),
                  d_back.data() + r * (count_gates + 1) * lane, d_direct.data() + r * lane);
    T* d_projected = at(a.d_projected, t, r, count_gates * n.size);
    for (int64_t g = 0; g < count_gates; ++g) copy(d_projected + g * n.size, d_z.data() + g * lane);
  }

  // the product has given dL/ds_{t-1}
  void reach_back(int64_t t, int64_t r) {
    T* d_s = d_hidden.data() + r * to_hidden.columns;
    if (n.cell == GRU)
      for (int64_t i = 0; i < lane; ++i) d_s[i] += d_direct[r * lane + i];
    if (a.reset && a.reset[t * n.rows + begin + r]) {
      std::fill_n(d_s, lane, T(0));
      std::fill_n(d_cell_state.data() + r * lane, lane, T(0));
    }
  }
};

template <class T>
void backward(const Sizes& n, const BackwardTensors& a, int64_t blocks) {
  const int64_t lane = round_up(n.size, LANES<T>), gates = n.gates();
  Packed<T> key(n.size, lane), to_hidden((gates + 1) * lane, lane);
  key.fill(static_cast<const T*>(a.key), 0, 0, n.size, n.size, 1);
  for (int64_t g = 0; g < gates; ++g)
    to_hidden.fill(static_cast<const T*>(a.recurrent) + g * n.size * n.size, g * lane, 0, n.size, n.size, 1);
  to_hidden.fill(static_cast<const T*>(a.query), gates * lane, 0, n.size, n.size, 1);
  const auto energy = padded_row<T>(a.energy, n.size, lane);
  over_blocks(n.rows, blocks, [&](int64_t block, int64_t begin, int64_t end) {
    T* d_energy = static_cast<T*>(a.d_energy) + block * lane;
    BackwardBlock<T>(n, a, key, to_hidden, energy.data(), d_energy, begin, end).run();
  });
}

}  // namespace

extern "C" {
int64_t plait_lanes(bool is_double) { return is_double ? LANES<double> : LANES<float>; }

void plait_forward(const Sizes* n, const ForwardTensors* tensors, int64_t blocks, bool is_double) {
  is_double ? forward<double>(*n, *tensors, blocks) : forward<float>(*n, *tensors, blocks);
}

void plait_backward(const Sizes* n, const BackwardTensors* tensors, int64_t blocks, bool is_double) {
  is_double ? backward<double>(*n, *tensors, blocks) : backward<float>(*n, *tensors, blocks);
}
}
