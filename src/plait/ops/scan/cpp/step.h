// One step of every row with a bounded memory, from the input to the returned state, as streaming and reinforcement
// learning call it. No matrix is packed, and the keys of old slots are not recomputed.

#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "blocks.h"
#include "cells.h"
#include "fingerprint.h"
#include "slots.h"
#include "unpacked.h"

namespace plait {

// e^{2k} of every slot and a fingerprint of what it was computed from: U_a and the state. If either has changed since,
// by any means, the fingerprint differs and the key is recomputed. 0 marks an unusable key.
template <class T>
struct MarkedKeys {
  T* grown;
  uint64_t* mark;
  MarkedKeys(void* keys, int64_t slots, int64_t lane)
      : grown(static_cast<T*>(keys)), mark(reinterpret_cast<uint64_t*>(grown + slots * lane)) {}
};

// Rows [begin, end).
template <class T>
class Step {
 public:
  Step(const Sizes& n, const StepTensors& a, const Fingerprint& marks, int64_t begin, int64_t end)
      : n(n), a(a), marks(marks), begin(begin), count(end - begin), lane(round_up(n.size, LANES<T>)),
        z_stride((n.cell == GRU ? 4 : n.gates()) * lane), room(count * (z_stride + 6 * lane) + (2 * n.width + 2) * lane),
        memory(std::make_unique_for_overwrite<T[]>(room)), z(memory.get()), candidates(z + count * z_stride),
        hidden(candidates + count * lane), cell_states(hidden + count * lane), h(cell_states + count * lane),
        queries(h + count * lane), new_keys(queries + count * lane), grown_query(new_keys + count * lane),
        context(grown_query + lane), states(context + lane), far_keys(states + n.width * lane),
        known(const_cast<void*>(a.known_keys), n.rows * n.width, lane), keys(a.keys_out, n.rows * n.width, lane),
        energy(padded_row<T>(a.energy, n.size, lane)), candidate_bias(padded_row<T>(a.candidate_bias, n.size, lane)),
        modrelu_bias(padded_row<T>(a.modrelu_bias, n.size, lane)), seen(n.width), score(n.width) {
    if (lane != n.size) std::fill_n(memory.get(), room, T(0));
  }

  void run() {
    for (int64_t r = 0; r < count; ++r) begin_row(r);
    const Rowwise<T> by_hidden(hidden, lane, count, n.size), by_input(at(a.x, 0, n.inputs), n.inputs, count, n.inputs);
    for (int64_t g = 0; g < n.gates(); ++g) {
      const T *recurrent = static_cast<const T*>(a.recurrent) + g * n.size * n.size,
              *input = static_cast<const T*>(a.input_weight) + g * n.size * n.inputs;
      const bool apart = n.cell == GRU && g == 2;  // the reset gate is applied between the two
      by_hidden.product(recurrent, apart ? nullptr : &by_input, input, n.size, z + g * lane, z_stride);
      if (apart) by_input.product(input, n.size, candidates, lane);
    }
    by_hidden.product(static_cast<const T*>(a.query), n.size, queries, lane);
    for (int64_t r = 0; r < count; ++r) recur(r);
    Rowwise<T>(h, lane, count, n.size).product(static_cast<const T*>(a.key), n.size, new_keys, lane);
    for (int64_t r = 0; r < count; ++r) remember(r);
  }

 private:
  const Sizes& n;
  const StepTensors& a;
  const Fingerprint& marks;
  const int64_t begin, count, lane, z_stride, room;
  std::unique_ptr<T[]> memory;
  T *z, *candidates, *hidden, *cell_states, *h, *queries, *new_keys;  // by row
  T *grown_query, *context, *states, *far_keys;                      // of one row at a time
  const MarkedKeys<T> known, keys;
  const std::vector<T> energy, candidate_bias, modrelu_bias;
  std::vector<Seen<T>> seen;
  std::vector<T> score;

  template <class U = T>
  U* at(const void* tensor, int64_t r, int64_t features) const {
    return tensor ? static_cast<U*>(const_cast<void*>(tensor)) + (begin + r) * features : nullptr;
  }
  bool is_reset(int64_t r) const { return a.reset && a.reset[begin + r]; }
  uint64_t mark_of(const T* state) const { return marks.of(state, n.size * sizeof(T)); }

  void begin_row(int64_t r) {
    for (auto [from, to] : {std::pair{at(a.hidden, r, n.size), hidden}, std::pair{at(a.cell_state, r, n.size), cell_states}})
      if (from && !is_reset(r)) std::copy_n(from, n.size, to + r * lane);
      else std::fill_n(to + r * lane, lane, T(0));
  }

  // h_t from s_{t-1} and the input
  void recur(int64_t r) {
    T *gates = z + r * z_stride, *candidate = candidates + r * lane;
    for (int64_t g = 0; a.input_bias && g < n.gates(); ++g) {
      const T* bias = static_cast<const T*>(a.input_bias) + g * n.size;
      T* to = n.cell == GRU && g == 2 ? candidate : gates + g * lane;
      for (int64_t i = 0; i < n.size; ++i) to[i] += bias[i];
    }
    cell_forward<T>(n, lane, gates, nullptr, candidate, hidden + r * lane, cell_states + r * lane,
                    a.candidate_bias ? candidate_bias.data() : nullptr, a.modrelu_bias ? modrelu_bias.data() : nullptr,
                    gates, h + r * lane);
    std::copy_n(h + r * lane, n.size, at(a.output, r, n.size));
    if (n.cell == LSTM) std::copy_n(cell_states + r * lane, n.size, at(a.cell_state_out, r, n.size));
  }

  // The initial memory, emptied by a reset; whether all of its keys are known.
  bool carry(int64_t r, T* slots, T* relevance, int64_t* born) {
    const int64_t first = (begin + r) * n.width;
    const int64_t* born_in = at<int64_t>(a.born, r, n.width);
    bool all_known = true;
    for (int64_t j = 0; j < n.width; ++j) {
      T* state = slots + j * n.size;
      born[j] = is_reset(r) ? -1 : born_in[j];
      relevance[j] = score[j] = 0;
      keys.mark[first + j] = 0;
      if (born[j] < 0) {
        std::fill_n(state, n.size, T(0));
        continue;
      }
      std::copy_n(at(a.slots, r, n.width * n.size) + j * n.size, n.size, state);
      const uint64_t mark = mark_of(state);
      if (a.known_keys && known.mark[first + j] == mark) {
        keys.mark[first + j] = mark;
        std::copy_n(known.grown + (first + j) * lane, lane, keys.grown + (first + j) * lane);
      } else {
        all_known = false;
      }
      if (!a.worth) relevance[j] = at(a.relevance, r, n.width)[j];
      else relevance[j] = score[j] = worth_of(state);
    }
    return all_known;
  }

  T worth_of(const T* state) const {
    T sum = 0;
    dots<T, 1>(state, static_cast<const T*>(a.worth), n.size, &sum);
    return sum;
  }

  // write h_t to the ring, and the state that leaves it to its kept slot; whether the key of h_t is in range
  bool admit(int64_t r, T* slots, T* relevance, int64_t* born) {
    const int64_t first = (begin + r) * n.width, age = is_reset(r) ? 0 : a.age[begin + r];
    const int64_t leaving = ring_place(n, age), place = destination(n, relevance, born, leaving);
    if (place >= 0) {
      std::copy_n(slots + leaving * n.size, n.size, slots + place * n.size);
      std::copy_n(keys.grown + (first + leaving) * lane, lane, keys.grown + (first + place) * lane);
      keys.mark[first + place] = keys.mark[first + leaving];
      relevance[place] = relevance[leaving], score[place] = score[leaving], born[place] = born[leaving];
    }
    std::copy_n(h + r * lane, n.size, slots + leaving * n.size);
    relevance[leaving] = 0, born[leaving] = age, a.age_out[begin + r] = age + 1;
    if (a.worth) {
      score[leaving] = worth_of(h + r * lane);
      relevance[leaving] = score[leaving] + (a.noise ? *at(a.noise, r, 1) : T(0));
    }
    const bool plain = grow(new_keys + r * lane, keys.grown + (first + leaving) * lane, lane);
    keys.mark[first + leaving] = plain ? mark_of(h + r * lane) : 0;
    return plain;
  }

  // Every key of the row; whether all are in range. Others are in `far_keys` only.
  bool take_keys(int64_t r, const int64_t* born, const T* from, int64_t stride) {
    const int64_t first = (begin + r) * n.width;
    bool all_plain = true;
    Rowwise<T>(from, stride, n.width, n.size).product(static_cast<const T*>(a.key), n.size, far_keys, lane);
    for (int64_t j = 0; j < n.width; ++j) {
      if (born[j] < 0) continue;
      const bool plain = grow(far_keys + j * lane, keys.grown + (first + j) * lane, lane);
      keys.mark[first + j] = plain ? mark_of(from + j * stride) : 0;
      all_plain &= plain;
    }
    return all_plain;
  }

  // write h_t, read with W_a s_{t-1}, mix
  void remember(int64_t r) {
    const int64_t first = (begin + r) * n.width;
    T *slots = at(a.slots_out, r, n.width * n.size), *relevance = at(a.relevance_out, r, n.width);
    int64_t* born = at<int64_t>(a.born_out, r, n.width);
    const T* query = queries + r * lane;
    bool plain = grow(query, grown_query, lane), all_known = carry(r, slots, relevance, born);
    all_known = admit(r, slots, relevance, born) && all_known;
    if (!all_known || !plain) plain = take_keys(r, born, slots, n.size) && plain;
    const T* from = slots;
    if (lane != n.size) {  // reads load whole vectors
      for (int64_t j = 0; j < n.width; ++j) std::copy_n(slots + j * n.size, n.size, states + j * lane);
      from = states;
    }
    int64_t occupied = 0;
    for (int64_t j = 0; j < n.width; ++j)
      if (born[j] >= 0) seen[occupied++] = {j, from + j * lane, far_keys + j * lane, keys.grown + (first + j) * lane, T(0), score[j]};
    read(lane, plain, query, grown_query, energy.data(), seen.data(), occupied, context);
    if (!a.worth)
      for (int64_t i = 0; i < occupied; ++i)
        if (seen[i].slot < n.window) relevance[seen[i].slot] += seen[i].weight;
    T* s = at(a.hidden_out, r, n.size);
    for (int64_t i = 0; i < n.size; ++i) s[i] = T(n.mix) * (h[r * lane + i] + context[i]);
  }
};

template <class T>
void attentive_scan_step(const Sizes& n, const StepTensors& a, int64_t blocks) {
  const Fingerprint marks(Fingerprint(n.size).of(a.key, n.size * n.size * sizeof(T)));
  over_blocks(n.rows, blocks, [&](int64_t, int64_t begin, int64_t end) { Step<T>(n, a, marks, begin, end).run(); });
}

}  // namespace plait
