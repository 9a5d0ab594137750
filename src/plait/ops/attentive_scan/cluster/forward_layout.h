// Distribution of the data over a cluster of C blocks that walks R rows of the batch forward.
//
// With M = [V; W_a; U_a] and P_j = M h_j, taken once when h_j is made,
//     z_{t+1} = p_{t+1} + V s_t = p_{t+1} + mix (P_t + sum_j alpha_j P_j),   q_{t+1} likewise,
// because s_t = mix (h_t + sum_j alpha_j h_j): a step has ONE product, with h_t, and two exchanges between the blocks.
//
// Block `rank` owns the features rank*F .. rank*F+F-1, F = H/C: their gates, query, key and cell state, and of every
// slot that part of P, h and k (a record). Energies are sums over features: each block sends its part to all.
//
// Warps 0..NW-1 compute. Control warps do the slots' bookkeeping, identically in every block of the cluster; row r
// belongs to control warp r mod 4.
//
//   step t   control                                   compute
//            wait E(t-1): exp(e) -> alpha
//            -------------- ALPHA: control arrives, compute waits ---------------
//            weights, credit; where h_t goes           z_t, gates, c_t, h_t -> all blocks (H);  q_t, s_{t-1}
//            -------------- PLACED: control arrives, compute waits --------------
//            write weights, ids, trace                 write gates ...; energies of the old slots
//                                                      wait H(t):  k_t, energy of the new slot
//            -------------- ENERGIES: compute arrives, control waits ------------
//            energies -> all blocks (E)                the other products -> P_t into its slot

#pragma once

#include "shape.h"

namespace plait {

enum ForwardBarrier : int { ALPHA = 1, PLACED, ENERGIES, PREPARED, COMPUTED };

template <class S>
struct ForwardLayout : S {
  static constexpr int H = S::HIDDEN, C = S::CLUSTER, R = S::ROWS, NW = S::WARPS, SQ = S::SHARED_QUADS;
  static constexpr int G = gates_of(S::CELL), F = H / C, COLUMNS = H / 8;
  static constexpr int SLOTS = S::WINDOW + S::CAPACITY, QUARTER = ceil_div(SLOTS, 4), PADDED = 4 * QUARTER;
  static constexpr bool SEPARATE = S::CELL != ELMAN;  // query and state are separate sums, in addition to the gates'

  // ---- warps
  static constexpr int NCW = R > 4 ? 4 : R;     // control warps at work
  static constexpr int RC = ceil_div(R, NCW);   // rows of one
  static constexpr int THREADS = (NW + 4) * 32;  // control warps come in groups of four: registers are allocated to warpgroups
  static constexpr int MEET = (NW + NCW) * 32;   // threads at a barrier of both
  // Registers a thread: a quarter of a multiprocessor has 512 for each lane. Control warps release those they do not
  // need; with 8 warps each has the maximum.
  static constexpr bool DEAL = NW + 4 > 8;
  static constexpr int GROUPS = NW / 4 + 1, ENTRY = 512 / GROUPS / 8 * 8, CONTROL_REGISTERS = 56;
  static constexpr int DEALT = (ENTRY * GROUPS - CONTROL_REGISTERS) / (NW / 4) / 8 * 8;
  static constexpr int REGISTERS = DEALT > 248 ? 248 : DEALT;

  // ---- products. A quad is 4 rows of M, features 4i.. of one block of it, a row for each group of 8 lanes; a lane
  // holds COLUMNS of its row. Keys come first, then V by gates, then W_a; warp w has the quads i * NW + w.
  static constexpr int KQ = F / 4, NQ = (G + 2) * KQ, QW = ceil_div(NQ, NW);
  static constexpr int IK = ceil_div(KQ, NW);   // quads i < IK may be keys
  static constexpr int FIRST = KQ / NW;         // quads i < FIRST all are
  static constexpr int KW = KQ < NW ? KQ : NW;  // warps with keys
  NUMBER in_shared(int i) { return i - (QW - SQ); }  // the last SQ quads lie in shared memory
  NUMBER block_of(int quad) { return quad < KQ ? G + 1 : quad / KQ - 1; }  // of M: V's gates, W_a, U_a

  static constexpr int NI = QW - FIRST, NV = NI * R;  // quads and numbers of a warp besides the first keys
  static constexpr int KN = R <= 1 ? 1 : R <= 2 ? 2 : R <= 4 ? 4 : 8;  // rows of keys summed together
  NUMBER key_row(int ks) { return ks / (8 / KN); }
  static constexpr int PRODUCT_GROUPS = NV / 8 + (NV % 8 >= 4) + (NV % 4 >= 2) + NV % 2;
  static constexpr int PH = (G + 2) * H;

  // ---- sums over slots, each by one warp
  static constexpr int G_TASKS = R * F / 8;                     // 8 features' gates
  static constexpr bool SAME_FEATURES = NW % (F / 8) == 0;      // a warp's tasks differ by rows alone
  static constexpr int ROWS_ON = NW / (F / 8);
  static constexpr int Q_TASKS = SEPARATE ? R * F / 16 : 0;     // 16 features' query and state
  static constexpr int TASKS = ceil_div(G_TASKS + Q_TASKS, NW), GI = ceil_div(G_TASKS, NW);
  NUMBER all_gates(int i) { return (i + 1) * NW <= G_TASKS; }  // whether every warp has gates, or a query, in round i
  NUMBER all_queries(int i) { return i * NW >= G_TASKS && (i + 1) * NW <= G_TASKS + Q_TASKS; }
  static constexpr int QFIRST = G_TASKS / NW, QI = SEPARATE ? TASKS - QFIRST : 0;

  static constexpr int E_TASKS = R * QUARTER, ROUNDS = ceil_div(E_TASKS, NW);  // 4 slots' energies

  // ---- a slot's record: four numbers a feature for the gates' sum, then query and state, then the key
  static constexpr int PAIRS = 4 * F, KEYS = SEPARATE ? 6 * F : 4 * F, RECORD = KEYS + F;
  static constexpr int START = PADDED;  // the record of s_0, after the slots'
  NUMBER in_record(int block, int f) {
    return block == G + 1 ? KEYS + f : block < G ? 4 * f + block : SEPARATE ? PAIRS + 2 * f : 4 * f + 1;
  }
  NUMBER state_in_record(int f) { return SEPARATE ? PAIRS + 2 * f + 1 : 4 * f + 2; }

  // ---- shared memory, in floats; the first 32 are the mbarriers: H, E of even steps, E of odd steps
  static constexpr int AQ = round_up(QUARTER, 4), EROW = round_up(SLOTS + 1, 4), PK_ROW = round_up(KW, 4);
  static constexpr int SCORES = F / 8;  // parts of gT h_t
  static constexpr int RECORDS = 32;
  NUMBER record(int r, int slot) { return RECORDS + (r * (PADDED + 1) + slot) * RECORD; }
  static constexpr int H_IN = RECORDS + R * (PADDED + 1) * RECORD;  // two buffers of R x H
  static constexpr int Q_AT = H_IN + 2 * R * H;
  static constexpr int V_AT = Q_AT + R * F;                         // -2 v_a
  static constexpr int E_IN = V_AT + F;                             // two buffers of C x R x EROW
  static constexpr int E_OLD = E_IN + 2 * C * R * EROW;
  static constexpr int E_NEW = E_OLD + R * EROW;
  static constexpr int ALPHAS = E_NEW + R * PK_ROW;
  static constexpr int SCORE = ALPHAS + R * 4 * AQ;
  static constexpr int FACTOR = SCORE + round_up(R * SCORES, 4);    // factor of a row's sum
  static constexpr int CUT = FACTOR + 8;                            // whether a row is reset
  static constexpr int WHERE = CUT + 8;                             // a row's newest record, of even and odd steps
  static constexpr int OCCUPIED = WHERE + 16;
  static constexpr int PLACES = OCCUPIED + 8;
  static constexpr int WEIGHTS_AT = PLACES + round_up(R * PADDED, 4);
  static constexpr int FLOATS = WEIGHTS_AT + SQ * COLUMNS * NW * 32, BYTES = FLOATS * 4;
  static constexpr int H_BYTES = R * H * 4, E_BYTES = C * R * EROW * 4;

  static_assert(BYTES == S::SHARED_BYTES, "the host knows another layout");
  static_assert(H % 32 == 0 && H % C == 0 && F % 16 == 0, "features do not split");
  static_assert(SLOTS <= 32, "a lane of a control warp is a slot");
  static_assert(R <= 8 && NW % 4 == 0 && C <= 16 && SQ < QW);
};

// a float as an unsigned number of the same order, and back; all numbers are above 0
DEVICE uint32_t ordered(float x) {
  const uint32_t b = bits_of(x);
  return b & 0x80000000u ? ~b : b | 0x80000000u;
}
DEVICE float unordered(uint32_t o) { return of_bits(o & 0x80000000u ? o & 0x7fffffffu : ~o); }

}  // namespace plait
