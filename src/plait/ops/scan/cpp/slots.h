// The slot memory of one row, and reading it.

#pragma once

#include <vector>

#include "reading.h"

namespace plait {

// The slot of the ring for the next state: in range for any age, as torch's remainder. An unchecked age may be
// negative.
inline int64_t ring_place(const Sizes& n, int64_t age) { return (age % n.window + n.window) % n.window; }

// The slot for the state that leaves the ring, -1 if it is dropped; the rules of plait.ops.slots.
template <class T>
int64_t destination(const Sizes& n, const T* relevance, const int64_t* born, int64_t leaving) {
  if (n.width == n.window || born[leaving] < 0) return -1;
  if (n.every > 0)
    return born[leaving] % n.every ? -1 : n.window + born[leaving] / n.every % (n.width - n.window);
  T least = 0;
  int64_t place = -1;
  for (int64_t j = n.window; j < n.width; ++j) {
    const T standing = born[j] < 0 ? -std::numeric_limits<T>::infinity() : relevance[j];
    if (place >= 0 && standing >= least) continue;
    least = standing, place = j;
    if (standing != standing) break;  // a NaN is the least, as it is to torch
  }
  return relevance[leaving] > least ? place : -1;
}

template <class T>
struct Slots {
  int64_t width, lane, age = 0;
  std::vector<T> state, key, grown;             // by buffer
  std::vector<T> relevance, score;              // by slot; a score is the learned part of an energy
  std::vector<int64_t> born, buffer;            // by slot; a move exchanges buffers, nothing is copied
  std::vector<int32_t> id;
  std::vector<char> plain;  // by buffer: e^{2k} is in range

  Slots(int64_t width, int64_t lane)
      : width(width), lane(lane), state(width * lane), key(width * lane), grown(width * lane), relevance(width),
        score(width), born(width), buffer(width), id(width), plain(width) {
    for (int64_t j = 0; j < width; ++j) buffer[j] = j;
  }

  void clear() {
    std::fill(state.begin(), state.end(), T(0));
    std::fill(relevance.begin(), relevance.end(), T(0));
    std::fill(score.begin(), score.end(), T(0));
    std::fill(born.begin(), born.end(), int64_t(-1));
    std::fill(id.begin(), id.end(), -1);
    age = 0;
  }

  // Make room for the next state in the ring and return the buffer to write it to.
  int64_t admit(const Sizes& n, int32_t new_id) {
    const int64_t leaving = ring_place(n, age), place = destination(n, relevance.data(), born.data(), leaving);
    if (place >= 0) {
      std::swap(buffer[place], buffer[leaving]);
      relevance[place] = relevance[leaving], score[place] = score[leaving], born[place] = born[leaving], id[place] = id[leaving];
    }
    relevance[leaving] = 0, born[leaving] = age++, id[leaving] = new_id;
    return buffer[leaving];
  }

  // The score of the state last admitted, and the noise added to it.
  void rate(const Sizes& n, T worth, T noise) {
    const int64_t slot = (age - 1) % n.window;
    score[slot] = worth, relevance[slot] = worth + noise;
  }
};

// Read with a query: weights over the occupied slots, context; states in the ring earn their weights, if relevance is
// earned.
template <class T>
void attend(const Sizes& n, Slots<T>& memory, const T* query, const T* energy, bool earned, T* grown, Seen<T>* seen,
            T* weights, T* context) {
  const int64_t lane = memory.lane;
  bool plain = grow(query, grown, lane);
  int64_t count = 0;
  for (int64_t slot = 0; slot < memory.width; ++slot) {
    weights[slot] = 0;
    if (memory.born[slot] < 0) continue;
    const int64_t at = memory.buffer[slot] * lane;
    seen[count++] = {slot, memory.state.data() + at, memory.key.data() + at, memory.grown.data() + at, T(0),
                     memory.score[slot]};
    plain = plain && memory.plain[memory.buffer[slot]];
  }
  read(lane, plain, query, grown, energy, seen, count, context);
  for (int64_t j = 0; j < count; ++j) weights[seen[j].slot] = seen[j].weight;
  if (earned)
    for (int64_t slot = 0; slot < n.window; ++slot) memory.relevance[slot] += weights[slot];
}

}  // namespace plait
