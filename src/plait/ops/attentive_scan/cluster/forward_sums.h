// The first half of a step in the compute warps of the forward walk: sums over slots, the cell, and sending h_t and
// q_t. The addresses of a lane are the same at every step, so they are computed once.

#pragma once

#include "cells.h"
#include "forward_tasks.h"
#include "products.h"

namespace plait {

template <class K>
struct ForwardSums {
  using Layer = typename K::Layer;
  static constexpr int C = K::C, R = K::R, NW = K::NW, F = K::F, H = K::H, G = K::G, QUARTER = K::QUARTER, SLOTS = K::SLOTS;
  static constexpr int GI = K::GI, QI = K::QI > 0 ? K::QI : 1;

  const ForwardArguments& a;
  float* const sm;
  const int warp, lane, rank, own, first_row;  // own: first feature of this block
  const uint32_t mbarriers;
  Products<K> products;
  ForwardTasks<K> tasks_at;
  // of the gates' tasks: cell state, next input and nudge, bias, values to save
  float c[GI], in[GI], nudge[GI], bias[GI], act[GI], before[GI], made[GI];
  float query_sums[QI];  // of the queries' tasks: q_t or s_{t-1}

  MEMBER ForwardSums(const ForwardArguments& a_, float* sm_, int warp_, int lane_, int rank_, int first_row_)
      : a(a_), sm(sm_), warp(warp_), lane(lane_), rank(rank_), own(rank_ * F), first_row(first_row_),
        mbarriers(shared_address(sm_)) {}

  MEMBER int& whole(int at) const { return reinterpret_cast<int*>(sm)[at]; }
  MEMBER int where(int r, int parity) const { return whole(K::WHERE + parity * 8 + r); }  // of the newest record
  MEMBER bool cut(int r) const { return K::RESET && whole(K::CUT + r); }
  MEMBER int batch_row(int r) const {  // a row beyond the batch repeats the last one
    const int b = first_row + r;
    return b < a.rows ? b : a.rows - 1;
  }

  // alpha of a quarter of the slots
  MEMBER void shares(int at, float (&al)[K::AQ]) const {
#pragma unroll
    for (int j = 0; j < K::AQ; j += 4) {
      const float4 x = load4(sm + at + j);
      al[j] = x.x, al[j + 1] = x.y, al[j + 2] = x.z, al[j + 3] = x.w;
    }
  }
  MEMBER float mixed(int r, float context, float sum, float newest) const {
    const float inverse = sum > 0.0f ? rcp(sum) : 0.0f;
    return cut(r) ? 0.0f : sm[K::FACTOR + r] * mad(context, inverse, newest);
  }

  // contribution of the slots to the gates of task I
  template <int I>
  MEMBER float gates_sum(int t) const {
    const int r = tasks_at.gates_row(I), part = lane >> 3, from = tasks_at.gates_from[I];
    float al[K::AQ], sum = 0.0f;
    shares(K::ALPHAS + (r * 4 + part) * K::AQ, al);
    const float newest = sm[where(r, (t + 1) & 1) + tasks_at.gates_in[I] + part];
    float4 x = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int j = 0; j < QUARTER; j++) {
      const float4 y = load4(sm + from + j * K::RECORD);
      x.x = mad(al[j], y.x, x.x), x.y = mad(al[j], y.y, x.y), x.z = mad(al[j], y.z, x.z), x.w = mad(al[j], y.w, x.w);
      sum += al[j];
    }
    // over the quarters; lane group g keeps the g-th of the four
    const bool hi = lane & 16, lo = lane & 8;
    const float k0 = (hi ? x.z : x.x) + shuffle_xor(hi ? x.x : x.z, 16), k1 = (hi ? x.w : x.y) + shuffle_xor(hi ? x.y : x.w, 16);
    sum += shuffle_xor(sum, 16);
    const float context = (lo ? k1 : k0) + shuffle_xor(lo ? k0 : k1, 8);
    sum += shuffle_xor(sum, 8);
    return mixed(r, context, sum, newest);
  }
  template <int I>
  MEMBER void take_step(float given) {
    const int fl = lane & 7, part = lane >> 3;
    before[I] = cut(tasks_at.gates_row(I)) ? 0.0f : c[I];
    CellStep step;
    if constexpr (K::CELL == LSTM) step = lstm_step<Layer>(given, in[I], before[I], part, fl);
    else if constexpr (K::CELL == GRU) step = gru_step<Layer>(given, in[I], bias[I], part, fl);
    else step = elman_step<K::NONLINEARITY>(given, in[I], bias[I], fl);
    c[I] = step.c, act[I] = step.act;
    made[I] = rounded<Layer>(K::NUDGE ? step.h + nudge[I] : step.h);
    if constexpr (K::CELL == ELMAN) before[I] = given;  // q and s_{t-1}, to be saved by their lanes
  }
  // send h_t to all blocks; store the inputs of this block's energies and of the choice of slots
  template <int I>
  MEMBER void hand_over(int t) {
    send_state(I, t, made[I]);
    const int r = tasks_at.gates_row(I), f = tasks_at.gates_in[I] / 4;
    if (K::CELL == ELMAN && lane >> 3 == 1) sm[K::Q_AT + r * F + f] = SCALE * before[I];
    if constexpr (K::LEARNED) {
      float rated = made[I] * widened(static_cast<const Layer*>(a.worth)[own + f]);
#pragma unroll
      for (int m = 4; m; m >>= 1) rated += shuffle_xor(rated, m);
      if (lane == 0) sm[K::SCORE + r * K::SCORES + f / 8] = rated;
    }
  }
  // 8 features of h_t, which every group of 8 lanes holds, to all blocks: lane = block * 2 + half
  MEMBER void send_state(int i, int t, float h) {
    const int half = lane & 1;
    float4 v;
    v.x = shuffle(h, half * 4), v.y = shuffle(h, half * 4 + 1), v.z = shuffle(h, half * 4 + 2), v.w = shuffle(h, half * 4 + 3);
    if (lane < 2 * C) send4(shared_address(sm + K::H_IN + (t & 1) * R * H + tasks_at.state_to[i]), v, mbarriers, lane >> 1);
  }
  // 16 features: lane = half of the slots (then query or state) * 16 + feature
  template <int I>
  MEMBER float query_sum(int t) const {
    const int r = tasks_at.query_row(I + K::QFIRST), part = lane >> 4, from = tasks_at.query_from[I];
    float x = 0.0f, y = 0.0f, sum = 0.0f;
#pragma unroll
    for (int quarter = 0; quarter < 2; quarter++) {
      float al[K::AQ];
      shares(K::ALPHAS + (r * 4 + part * 2 + quarter) * K::AQ, al);
#pragma unroll
      for (int j = 0; j < QUARTER; j++) {
        const float2 v = load2(sm + from + (quarter * QUARTER + j) * K::RECORD);
        x = mad(al[j], v.x, x), y = mad(al[j], v.y, y), sum += al[j];
      }
    }
    const float mine = (part ? y : x) + shuffle_xor(part ? x : y, 16);
    sum += shuffle_xor(sum, 16);
    return mixed(r, mine, sum, sm[where(r, (t + 1) & 1) + tasks_at.query_in[I] + part]);
  }
  template <int I>
  MEMBER void hand_over_query() {
    const int r = tasks_at.query_row(I + K::QFIRST);
    if (lane < 16) sm[K::Q_AT + r * F + (tasks_at.query_in[I] - K::PAIRS) / 2] = SCALE * query_sums[I];
  }
  // Tasks of every warp run together, stage by stage: all reads come before any write, so that the compiler can overlap
  // their latencies. Tasks of only some warps follow one by one.
  template <int I>
  MEMBER void sum_up(int t, float (&given)[GI]) {
    if constexpr (I < K::TASKS) {
      if constexpr (K::all_gates(I)) given[I] = gates_sum<I>(t);
      else if constexpr (K::all_queries(I)) query_sums[I - K::QFIRST] = query_sum<I - K::QFIRST>(t);
      sum_up<I + 1>(t, given);
    }
  }
  template <int I>
  MEMBER void take_steps(const float (&given)[GI]) {
    if constexpr (I < GI) {
      if constexpr (K::all_gates(I)) take_step<I>(given[I]);
      take_steps<I + 1>(given);
    }
  }
  template <int I>
  MEMBER void hand_over_all(int t) {
    if constexpr (I < K::TASKS) {
      if constexpr (K::all_gates(I)) hand_over<I>(t);
      else if constexpr (K::all_queries(I)) hand_over_query<I - K::QFIRST>();
      hand_over_all<I + 1>(t);
    }
  }
  template <int I>
  MEMBER void single_tasks(int t) {
    if constexpr (I < K::TASKS) {
      if constexpr (!K::all_gates(I) && !K::all_queries(I)) {
        if (tasks_at.has_gates(I)) {
          if constexpr (I < GI) take_step<I>(gates_sum<I>(t)), hand_over<I>(t);
        } else if (tasks_at.has_query(I)) {
          if constexpr (K::SEPARATE && I >= K::QFIRST) query_sums[I - K::QFIRST] = query_sum<I - K::QFIRST>(t), hand_over_query<I - K::QFIRST>();
        }
      }
      single_tasks<I + 1>(t);
    }
  }
  MEMBER void all_tasks(int t) {
    float given[GI];
    sum_up<0>(t, given);
    take_steps<0>(given);
    hand_over_all<0>(t);
    single_tasks<0>(t);
  }
};

}  // namespace plait
