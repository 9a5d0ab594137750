// The products of the reverse walk: rows of M in registers (the rest in shared memory), each warp's part of the sums,
// and the message that sends a column's sum to its owner.

#pragma once

#include "backward_ahead.h"

namespace plait {

template <class S>
struct BackProducts : BackPlaces<S> {
  using L = BackLayout<S>;
  using B = BackPlaces<S>;
  using Layer = typename S::Layer;
  using L::COLUMNS, L::F, L::G, L::H, L::KINDS, L::R, L::WARPS;
  using B::a, B::lane, B::layer, B::rank, B::rows, B::sm;

  const int warp, own;                      // own: the first of this warp's features
  float* const here;                        // the warp's memory
  const uint32_t scores_came, states_came;
  float w[L::REGISTER_KINDS * 4][COLUMNS];  // rows of M, the columns of this lane

  MEMBER BackProducts(const BackwardArguments& arguments, float* memory)
      : B(arguments, memory), warp(thread_index() / 32), own(rank * F + warp * 4), here(B::of_warp(warp)),
        scores_came(shared_address(memory)), states_came(shared_address(memory) + 8) {}

  // N numbers so far apart
  template <int N>
  static MEMBER float total(const float* from, int apart) {
    if constexpr (N == 1) return from[0];
    else return total<N / 2>(from, apart) + total<N - N / 2>(from + N / 2 * apart, apart);
  }
  // add four rows of M, of one kind, times d
  MEMBER void multiply(float (&sum)[COLUMNS], int kind, float4 d) {
    const float each[4] = {d.x, d.y, d.z, d.w};
#pragma unroll
    for (int f = 0; f < 4; f++) {
      if (kind < L::REGISTER_KINDS) {
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) sum[c] = mad(w[kind < L::REGISTER_KINDS ? kind * 4 + f : 0][c], each[f], sum[c]);
      } else {
#pragma unroll
        for (int c = 0; c < COLUMNS; c += 4) {
          const float4 m = load4(shared_weight(kind, f, c));
          sum[c] = mad(m.x, each[f], sum[c]), sum[c + 1] = mad(m.y, each[f], sum[c + 1]);
          sum[c + 2] = mad(m.z, each[f], sum[c + 2]), sum[c + 3] = mad(m.w, each[f], sum[c + 3]);
        }
      }
    }
  }
  // this warp's part of a product, where the others' lie
  MEMBER void put_product(int r, int which, const float (&product)[COLUMNS]) {
    float* to = sm + L::PRODUCT + ((warp * R + r) * L::PRODUCTS + which) * H;
    if constexpr (L::IN_FOURS) {
#pragma unroll
      for (int c = 0; c < COLUMNS; c += 4)
        store4(to + 32 * c + 4 * lane, {product[c], product[c + 1], product[c + 2], product[c + 3]});
    } else {
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) to[32 * c + lane] = product[c];
    }
  }
  MEMBER float* shared_weight(int kind, int f, int c) {
    return here + L::WEIGHTS + ((kind - L::REGISTER_KINDS) * 4 + f) * COLUMNS * 32 + c * 32 + lane * 4;
  }
  // add up the warps' parts and send each column of the last two products to its owner
  MEMBER void send_products() {
    float2 sums[L::PRODUCT_ROUNDS];
#pragma unroll
    for (int round = 0; round < L::PRODUCT_ROUNDS; round++) {
      const int task = round * WARPS + warp, r = task / COLUMNS, column = task % COLUMNS * 32 + lane;
      const float* from = sm + L::PRODUCT + ((r < R ? r : 0) * L::PRODUCTS + L::PRODUCTS - 2) * H + column;
      sums[round] = {total<WARPS>(from, L::PRODUCTS * R * H), total<WARPS>(from + H, L::PRODUCTS * R * H)};
    }
#pragma unroll
    for (int round = 0; round < L::PRODUCT_ROUNDS; round++) {
      const int task = round * WARPS + warp, r = task / COLUMNS, column = task % COLUMNS * 32 + lane;
      if (r < rows)
        send2(shared_address(B::state_in(rank, column % F / 4, r, column % 4)), sums[round],
              L::LIMITED ? scores_came : states_came, column / F);
    }
  }
  // the same for the first product if it is sent alone
  MEMBER void send_first() {
    float sums[L::PRODUCT_ROUNDS];
#pragma unroll
    for (int round = 0; round < L::PRODUCT_ROUNDS; round++) {
      const int task = round * WARPS + warp, r = task / COLUMNS, column = task % COLUMNS * 32 + lane;
      sums[round] = total<WARPS>(sm + L::PRODUCT + (r < R ? r : 0) * L::PRODUCTS * H + column, L::PRODUCTS * R * H);
    }
#pragma unroll
    for (int round = 0; round < L::PRODUCT_ROUNDS; round++) {
      const int task = round * WARPS + warp, r = task / COLUMNS, column = task % COLUMNS * 32 + lane;
      if (r < rows)
        send(shared_address(B::first_in(rank, column % F / 4, r, column % 4)), sums[round], states_came, column / F);
    }
  }
  MEMBER int column(int c) { return L::IN_FOURS ? c / 4 * 128 + lane * 4 + c % 4 : c * 32 + lane; }
  MEMBER void load_weights() {
#pragma unroll
    for (int k = 0; k < KINDS; k++) {
#pragma unroll
      for (int f = 0; f < 4; f++) {
        const Layer* from = k < G ? layer(a.recurrent) + (int64_t)(k * H + own + f) * H
                                  : layer(k == G ? a.query : a.key) + (int64_t)(own + f) * H;
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
          if (k < L::REGISTER_KINDS) w[k < L::REGISTER_KINDS ? k * 4 + f : 0][c] = widened(from[column(c)]);
          else shared_weight(k, f, c / 4 * 4)[c % 4] = widened(from[column(c)]);
        }
      }
    }
  }
};

}  // namespace plait
