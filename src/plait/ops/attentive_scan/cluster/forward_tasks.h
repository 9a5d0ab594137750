// Which sums, energies and products a lane of the forward walk takes, and where it reads and writes them: in floats of
// shared memory, or in elements from the beginning of a step.

#pragma once

#include "forward_layout.h"

namespace plait {

template <class K>
struct ForwardTasks {
  static constexpr int F = K::F, H = K::H, G = K::G, R = K::R, NW = K::NW;
  static constexpr int GI = K::GI, QI = K::QI > 0 ? K::QI : 1;

  int warp;
  // gates' tasks: their first slot; offsets in a record, of h_t in a message, in a state, in the input, in the saved
  // gates
  int gates_from[GI], gates_in[GI], state_to[GI], state[GI], input[GI], gate[GI];
  int query_from[QI], query_in[QI], query[QI];                 // queries' tasks likewise
  int energy_key[K::ROUNDS], energy_query[K::ROUNDS], energy_to[K::ROUNDS];
  int product_in[K::PRODUCT_GROUPS], product[K::PRODUCT_GROUPS];  // in a record (-1: nothing to store), and in all saved
  int key;
  bool owns_key;

  MEMBER bool has_gates(int i) const { return (i + 1) * NW <= K::G_TASKS || i * NW + warp < K::G_TASKS; }
  MEMBER int gates_row(int i) const { return (i * NW + warp) / (F / 8); }
  MEMBER bool has_query(int i) const {
    return K::all_queries(i) || K::SEPARATE && (i + 1) * NW > K::G_TASKS && i * NW + warp >= K::G_TASKS && i * NW + warp < K::G_TASKS + K::Q_TASKS;
  }
  MEMBER int query_row(int i) const { return (i * NW + warp - K::G_TASKS) / (F / 16); }
  MEMBER bool has_energies(int j) const { return (j + 1) * NW <= K::E_TASKS || j * NW + NW - 1 - warp < K::E_TASKS; }

  MEMBER void prepare(int warp_, int lane, int own, int first_row, int rows) {
    warp = warp_;
    const auto batch_row = [&](int r) { return first_row + r < rows ? first_row + r : rows - 1; };
    const int part = lane >> 3;
#pragma unroll
    for (int i = 0; i < GI; i++) {
      if (!has_gates(i)) continue;
      const int r = gates_row(i), b = batch_row(r), f = (i * NW + warp) % (F / 8) * 8 + (lane & 7);
      if (K::SAME_FEATURES && i > 0) {  // as the first task, so many rows on
        int further = b - batch_row(gates_row(0));
        keep(further);
        gates_in[i] = gates_in[0], gates_from[i] = gates_from[0] + i * K::ROWS_ON * (K::PADDED + 1) * K::RECORD;
        state_to[i] = state_to[0] + i * K::ROWS_ON * H;
        state[i] = state[0] + further * H, input[i] = input[0] + further * G * H, gate[i] = gate[0] + further * 4 * H;
        continue;
      }
      gates_in[i] = 4 * f, gates_from[i] = K::record(r, part * K::QUARTER) + 4 * f;
      state_to[i] = r * H + own + (f & ~7) + (lane & 1) * 4;
      state[i] = b * H + own + f, input[i] = (b * G + (part < G ? part : 0)) * H + own + f, gate[i] = (b * 4 + part) * H + own + f;
      keep(gates_from[i]), keep(state[i]), keep(gate[i]), keep(input[i]), keep(state_to[i]);
    }
#pragma unroll
    for (int i = 0; i < K::QI; i++) {
      if (!has_query(i + K::QFIRST)) continue;
      const int n = (i + K::QFIRST) * NW + warp - K::G_TASKS, r = n / (F / 16), f = n % (F / 16) * 16 + (lane & 15);
      query_in[i] = K::PAIRS + 2 * f, query_from[i] = K::record(r, (lane >> 4) * 2 * K::QUARTER) + K::PAIRS + 2 * f;
      query[i] = batch_row(r) * H + own + f;
      keep(query_from[i]), keep(query[i]);
    }
#pragma unroll
    for (int j = 0; j < K::ROUNDS; j++) {  // the last warps first: the first have gates
      const int n = j * NW + NW - 1 - warp, r = n < K::E_TASKS ? n / K::QUARTER : 0, x = n % K::QUARTER * 4 + part;
      energy_key[j] = K::record(r, x) + K::KEYS + (lane & 7) * (F / 8), energy_query[j] = K::Q_AT + r * F + (lane & 7) * (F / 8);
      energy_to[j] = n < K::E_TASKS && (lane & 7) == 0 && x < K::SLOTS ? K::E_OLD + r * K::EROW + x : -1;
      keep(energy_key[j]), keep(energy_query[j]), keep(energy_to[j]);
    }
    prepare_products<0, 0>(lane, own, first_row, rows);
    const int ks = lane & 7, r = K::key_row(ks);
    owns_key = r < R && (ks & (8 / K::KN - 1)) == 0 && (K::KW == NW || warp < K::KW);
    key = batch_row(r < R ? r : 0) * K::PH + (G + 1) * H + own + warp * 4 + part;
    keep(key);
  }
  template <int BASE, int GROUP>
  MEMBER void prepare_products(int lane, int own, int first_row, int rows) {
    if constexpr (BASE < K::NV) {
      constexpr int COUNT = power_under(K::NV - BASE), SHIFT = 3 - log2_of(COUNT);
      const int ks = lane & 7, n = BASE + (ks >> SHIFT), r = n % R, q = (n / R + K::FIRST) * NW + warp;
      const int b = first_row + r < rows ? first_row + r : rows - 1;
      const bool mine = (ks & ((1 << SHIFT) - 1)) == 0 && q >= K::KQ && q < K::NQ;
      const int block = mine ? K::block_of(q) : 0, f = q % K::KQ * 4 + (lane >> 3);
      product_in[GROUP] = mine ? K::in_record(block, f) : -1;
      product[GROUP] = b * K::PH + block * H + own + f;
      keep(product_in[GROUP]), keep(product[GROUP]);
      prepare_products<BASE + COUNT, GROUP + 1>(lane, own, first_row, rows);
    }
  }
};

}  // namespace plait
