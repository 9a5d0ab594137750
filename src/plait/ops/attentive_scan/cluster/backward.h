// The walk back through time. With P_j = [V; W_a] h_j taken once per state, and g = dL/d[V s_t; W_a s_t] (which step t + 1
// left), what a step does to the slots it read is
//
//     dL/da_j = mix g . P_j                       scores, summed over all features: exchanged
//     dL/de_j = a_j (dL/da_j - mean)              then dL/dk_j, dL/dq_t, dL/dv
//     dL/ds_t = [V; W_a]' g,  U_a' dL/dk_t        products over all rows of M: exchanged
//     dL/dh_j += mix (a_j + [j = t]) dL/ds_t      dL/dh_t gains dL/doutput and U_a' dL/dk_t, and is complete
//
// and the cell gives the next g. Each block sums over its own features and rows and sends what it has to the blocks that
// need it, which add in the order of ranks: the same bits every time. Two exchanges a step, no barrier of the cluster.
// That one buffer for each suffices: a block sends the scores of a step only when it has all products of the step
// before, and those were sent when every warp of their block had read its scores; and the other way round.
//
// What a slot gathers lies in its block's shared memory until the slot is given to an older state; `ids` tell which.

#pragma once

#include "backward_stages.h"

namespace plait {

template <class S>
struct Back : BackStages<S> {
  using L = BackLayout<S>;
  using B = BackPlaces<S>;
  using P = BackProducts<S>;
  using T = BackStages<S>;
  using Layer = typename S::Layer;
  using L::C, L::COLUMNS, L::EACH, L::EIGHTH, L::F, L::G, L::H, L::R, L::SLOTS, L::THREADS, L::WARPS;
  using B::a, B::first, B::lane, B::rank, B::ring, B::rows, B::sm;
  using B::held, B::ids, B::layer, B::place, B::row, B::stash, B::there;
  using P::here, P::multiply, P::own, P::put_product, P::scores_came, P::send_products, P::states_came, P::warp;
  using T::d_cell, T::d_energy, T::d_score, T::direct, T::feature, T::from_here, T::group, T::has, T::in, T::is_reset, T::mine,
      T::put_scores, T::refill, T::slot_at, T::to_key, T::to_state, T::v, T::writes;
  using typename T::Ready;

  MEMBER Back(const BackwardArguments& arguments, float* memory) : T(arguments, memory) {}

  MEMBER void begin() {
    const int last = a.steps - 1;
    P::load_weights();
    from_here = row(last, 0) * H + own;
    v = 4.0f * widened(layer(a.energy)[own + feature]), d_energy = 0.0f;
    const int64_t at = (int64_t)(first + mine) * H + own + feature;
    direct = a.d_hidden && there(mine) ? widened(layer(a.d_hidden)[at]) : 0.0f;
    d_cell = a.d_cell_state && there(mine) ? widened(layer(a.d_cell_state)[at]) : 0.0f;
#pragma unroll
    for (int r = 0; r < R; r++) {
      is_reset[r] = false;
#pragma unroll
      for (int i = 0; i < EACH; i++) d_score[r][i] = 0.0f;
      if (there(r)) refill(last, r);
      const int64_t b = first + r;
      const float arrived = a.d_hidden && there(r) ? widened(layer(a.d_hidden)[b * H + own + feature]) : 0.0f;
      float sum[EIGHTH];
#pragma unroll
      for (int i = 0; i < EIGHTH; i++) {
        const int id = has(i) && there(r) ? ids(last)[r * SLOTS + slot_at(i)] : -1;
        sum[i] = id < 0 ? 0.0f : arrived * widened(B::state_of(held(id), r, own)[feature]);
        to_key[r][i] = 0.0f;
        to_state[r][i] = a.d_slots && id >= 0 ? widened(layer(a.d_slots)[(b * SLOTS + place(id)) * H + own + feature]) : 0.0f;
      }
      put_scores(r, sum);
    }
  }
  MEMBER void walk() {
    begin();
    Watch<S::PROFILE> watch;
    for (int t = a.steps - 1; t >= 0; t--) {
      const int parity = (a.steps - 1 - t) & 1;
      barrier_sync(0, THREADS);
      watch.stamp(0);
      T::send_scores();
      watch.stamp(1);
      T::gather(t);
      watch.stamp(2);
      mbarrier_wait(scores_came, parity);
      if (thread_index() == 0) mbarrier_expect(scores_came, C * rows * SLOTS * 4);
      watch.stamp(3);
      T::read(t);
      watch.stamp(4);
      barrier_sync(1, THREADS);
      watch.stamp(5);
      send_products();
      watch.stamp(6);
      T::settle(t);
      watch.stamp(7);
      Ready ready;
      T::make_ready(ready);
      mbarrier_wait(states_came, parity);
      if (thread_index() == 0) mbarrier_expect(states_came, C * rows * F * 8);
      watch.stamp(8);
      T::recede_all(t, ready);
      watch.stamp(9);
      ring = B::next(ring), from_here -= (int64_t)a.rows * H;
    }
    if (cluster_index() == 0 && rank == 0 && lane == 0) watch.write(a.profile, warp);
    end();
  }
  // dL/ds_0 takes one product more; then what the initial slots have gathered, dL/dc_0, and dL/dv of the cluster. Before
  // that everybody meets: no exchange lies between this product and the last, which everybody must have read. An initial
  // slot that nobody read comes out as zeros, whatever it held.
  MEMBER void end() {
    barrier_sync(2, WARPS * 32);  // a slower warp may still be adding up the last step's products
#pragma unroll
    for (int r = 0; r < R; r++) {
      float product[COLUMNS], none[COLUMNS];
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) product[c] = none[c] = 0.0f;
#pragma unroll
      for (int k = 0; k <= G; k++) multiply(product, k, load4(here + stash(r, k)));
      put_product(r, 0, product), put_product(r, 1, none);
    }
    cluster_sync();
    send_products();
    mbarrier_wait(states_came, a.steps & 1);
    const bool wanted = a.d_hidden_out;  // else nothing came before
    if (writes && wanted) {
      const int64_t at = (int64_t)(first + mine) * H + own + feature;
      float ds = direct;
      for (int c = 0; c < C; c++) ds += *B::state_in(c, warp, mine, feature);
      a.d_hidden_out[at] = ds;
      if (S::CELL == LSTM) a.d_cell_state_out[at] = d_cell;
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (!there(r) || !wanted) continue;
      const int64_t b = first + r;
#pragma unroll
      for (int i = 0; i < EIGHTH; i++) {
        const int x = slot_at(i);
        if (!has(i)) continue;
        const int64_t at = (b * SLOTS + x) * H + own + feature;
        const bool stayed = held(ids(0)[r * SLOTS + x]) == x;
        a.d_initial_keys[at] = stayed ? to_key[r][i] : 0.0f;
        a.d_initial_states[at] = stayed ? to_state[r][i] : 0.0f;
        a.initial_slots[at] = stayed ? widened(layer(a.slots)[at]) : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int x = lane + 32 * i;
        if (S::LEARNED && warp == 0 && rank == 0 && in(i))
          a.d_initial_scores[b * SLOTS + x] = held(ids(0)[r * SLOTS + x]) == x ? d_score[r][i] : 0.0f;
      }
    }
#pragma unroll
    for (int m = 16; m > 2; m >>= 1) d_energy += shuffle_xor(d_energy, m);
    if (group == 0) a.d_energy[(int64_t)cluster_index() * H + own + feature] = 2.0f * d_energy;
  }
};

template <class S>
DEVICE void scan_backward(const BackwardArguments& a, unsigned char* memory) {
  using L = BackLayout<S>;
  float* sm = reinterpret_cast<float*>(memory);
  const BackPlaces<S> places(a, sm);
  if (thread_index() == 0) {
    const uint32_t scores_came = shared_address(memory), states_came = scores_came + 8;
    mbarrier_init(scores_came, 1), mbarrier_init(states_came, 1);
    mbarrier_fence();
    mbarrier_expect(scores_came, L::C * places.rows * L::SLOTS * 4);
    mbarrier_expect(states_came, L::C * places.rows * L::F * 8);
  }
  for (int n = 32 + thread_index() * 4; n < L::FLOATS; n += L::THREADS * 4)  // of rows that are not there, too
    for (int i = 0; i < 4 && n + i < L::FLOATS; i++) sm[n + i] = 0.0f;
  barrier_sync(0, L::THREADS);
  for (int n = thread_index(); n < 3 * places.rows * L::SLOTS; n += L::THREADS) {  // what the first steps need at once
    const int t = a.steps - 1 - n / (places.rows * L::SLOTS), at = n % (places.rows * L::SLOTS);
    if (t >= 0) places.ids(t)[at] = a.ids[places.row(t, 0) * L::SLOTS + at];
  }
  cluster_sync();  // the barriers stand before anyone sends
  if (thread_index() < L::WARPS * 32) {
    if constexpr (L::DEAL) more_registers<L::REGISTERS>();
    Back<S>(a, sm).walk();
  } else {
    if constexpr (L::DEAL) fewer_registers<L::OF_AHEAD>();
    BackAhead<S>(a, sm).walk();
    cluster_sync();  // with the others, at their end
  }
  cluster_sync();  // nobody leaves while its memory may be written
}

}  // namespace plait
