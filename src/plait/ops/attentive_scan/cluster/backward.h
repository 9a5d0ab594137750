// The walk back through time. With P_j = [V; W_a] h_j computed once per state, and g = dL/d[V s_t; W_a s_t] (from step
// t + 1), the gradients of a step's reads are
//
//     dL/da_j = mix g . P_j                       scores, summed over all features: exchanged
//     dL/de_j = a_j (dL/da_j - mean)              then dL/dk_j, dL/dq_t, dL/dv
//     dL/ds_t = [V; W_a]' g,  U_a' dL/dk_t        products over all rows of M: exchanged
//     dL/dh_j += mix (a_j + [j = t]) dL/ds_t      dL/dh_t gains dL/doutput and U_a' dL/dk_t, and is complete
//
// and the cell gives the next g. Each block sums over its own features and rows and sends its partial sums to the
// blocks that need them, which add in the order of ranks, so that results are deterministic. Two exchanges a step, no
// barrier of the cluster. That one buffer for each suffices: a block sends the scores of a step only after it has
// received all products of the step before, and those were sent only after every warp of their block had read its
// scores; and vice versa.
//
// Where dL/ds_t has a limit the exchanges come in another order, by the same argument: `backward_limited.h`.
//
// The gradient of a slot is accumulated in its block's shared memory until the slot passes to an older state, as given
// by `ids`.

#pragma once

#include "backward_limited.h"

namespace plait {

template <class S>
struct Back : BackLimited<S> {
  using L = BackLayout<S>;
  using B = BackPlaces<S>;
  using P = BackProducts<S>;
  using T = BackLimited<S>;
  using Layer = typename S::Layer;
  using L::C, L::COLUMNS, L::EACH, L::F, L::G, L::H, L::R, L::SLOTS, L::THREADS, L::WARPS;
  using B::a, B::first, B::lane, B::rank, B::ring, B::rows, B::sm;
  using B::gathered, B::held, B::ids, B::layer, B::place, B::record, B::row, B::stash, B::there;
  using P::here, P::multiply, P::own, P::put_product, P::scores_came, P::send_products, P::states_came, P::warp;
  using T::at, T::d_energy, T::d_score, T::from_here, T::gain, T::in, T::is_reset, T::leave, T::left, T::put_score, T::refill, T::share, T::v;
  using typename T::Ready;

  MEMBER Back(const BackwardArguments& arguments, float* memory) : T(arguments, memory) {}

  MEMBER void begin() {
    const int last = a.steps - 1;
    P::load_weights();
    from_here = row(last, 0) * H + own;
    v = 4.0f * widened4(layer(a.energy) + own), d_energy = nothing();
#pragma unroll
    for (int r = 0; r < R; r++) {
      is_reset[r] = false;
#pragma unroll
      for (int i = 0; i < EACH; i++) d_score[r][i] = 0.0f, share[r][i] = 0.0f;
      if (!there(r)) continue;
      const int64_t b = first + r;
      const float4 arrived = a.d_hidden ? widened4(layer(a.d_hidden) + b * H + own) : nothing();
      if (lane == 0) {
        store4(left + stash(r, G + 1), arrived);
        if (a.d_cell_state) store4(left + stash(r, G + 3), widened4(layer(a.d_cell_state) + b * H + own));
      }
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int id = in(i) ? ids(last)[r * SLOTS + lane + 32 * i] : -1;
        const float4 state = id < 0 ? nothing() : widened4(B::state_of(held(id), r, own));
        const float4 direct = arrived * state;
        if constexpr (!L::LIMITED) put_score(r, i, a.mix * ((direct.x + direct.y) + (direct.z + direct.w)));
        refill(last, r, i);
        if (in(i) && a.d_slots && id >= 0)
          store4(at[i] + gathered(r, 1), widened4(layer(a.d_slots) + (b * SLOTS + place(id)) * H + own));
      }
    }
  }
  MEMBER void step(int t, int parity, Watch<S::PROFILE>& watch) {
    barrier_sync(0, THREADS);
    watch.stamp(0);
    T::send_scores();
    watch.stamp(1);
    T::gather(t);
    watch.stamp(2);
    mbarrier_wait(scores_came, parity);
    if (thread_index() == 0) mbarrier_expect(scores_came, rows * L::SCORE_BYTES);
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
    T::make_ready(t, ready);
    mbarrier_wait(states_came, parity);
    if (thread_index() == 0) mbarrier_expect(states_came, rows * L::STATE_BYTES);
    watch.stamp(8);
    T::recede_all(t, ready);
    watch.stamp(9);
  }
  MEMBER void limited_step(int t, int parity, Watch<S::PROFILE>& watch) {
    T::begin_state();
    watch.stamp(0);
    barrier_sync(0, THREADS);
    watch.stamp(1);
    P::send_first();
    watch.stamp(2);
    T::look(t);
    watch.stamp(3);
    mbarrier_wait(states_came, parity);
    if (thread_index() == 0) mbarrier_expect(states_came, rows * L::STATE_BYTES);
    watch.stamp(4);
    T::take_state(t);
    watch.stamp(5);
    barrier_sync(1, THREADS);
    watch.stamp(6);
    T::send_scores();
    send_products();
    watch.stamp(7);
    T::give();
    Ready ready;
    T::make_ready(t, ready);
    mbarrier_wait(scores_came, parity);
    if (thread_index() == 0) mbarrier_expect(scores_came, rows * L::SCORE_BYTES);
    watch.stamp(8);
    T::read(t);
    watch.stamp(9);
    T::find_pulled();
    T::settle(t);
    watch.stamp(10);
    T::recede_all(t, ready);
    warp_sync();
    watch.stamp(11);
  }
  MEMBER void walk() {
    begin();
    Watch<S::PROFILE> watch;
    for (int t = a.steps - 1; t >= 0; t--) {
      if constexpr (L::LIMITED) limited_step(t, (a.steps - 1 - t) & 1, watch);
      else step(t, (a.steps - 1 - t) & 1, watch);
      ring = B::next(ring), from_here -= (int64_t)a.rows * H;
      float* const last = left;
      left = leave, leave = last;
    }
    if (cluster_index() == 0 && rank == 0 && lane == 0) watch.write(a.profile, warp);
    end();
  }
  // inputs of dL/ds_0 from the last step
  MEMBER void last_product() {
    barrier_sync(2, WARPS * 32);  // a slower warp may still be adding up the last step's products
#pragma unroll
    for (int r = 0; r < R; r++) {
      float product[COLUMNS], none[COLUMNS];
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) product[c] = none[c] = 0.0f;
#pragma unroll
      for (int k = 0; k <= G; k++) multiply(product, k, load4(left + stash(r, k)));
      put_product(r, 0, product), put_product(r, 1, none);
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const float4 gained = gain(r, i);
        if (in(i)) store4(at[i] + gathered(r, 1), gained);
      }
    }
  }
  // dL/ds_0 takes one more product; then the gradients of the initial slots, dL/dc_0, and dL/dv of the cluster. A
  // cluster barrier comes first: there is no exchange between this product and the last, which every block must have
  // read. The gradient of an initial slot that was never read is zero.
  MEMBER void end() {
    if constexpr (L::LIMITED) T::begin_state();
    else last_product();
    cluster_sync();
    if constexpr (L::LIMITED) P::send_first();
    else send_products();
    mbarrier_wait(states_came, a.steps & 1);
    const bool wanted = a.d_hidden_out;  // otherwise there is no initial state
#pragma unroll
    for (int r = 0; r < R; r++) {
      if (!there(r) || !wanted) continue;
      const int64_t b = first + r;
      float4 ds = L::DIRECT ? load4(left + stash(r, G + 1)) : nothing();
      for (int c = 0; c < C; c++) {
        const float* from = L::LIMITED ? B::first_in(c, warp, r, 0) : B::state_in(c, warp, r, 0);
        ds = ds + (L::LIMITED ? load4(from) : float4{from[0], from[2], from[4], from[6]});
      }
      if constexpr (L::LIMITED) ds = {T::below(ds.x), T::below(ds.y), T::below(ds.z), T::below(ds.w)};
      if (lane == 0) store4(a.d_hidden_out + b * H + own, ds);
      if (S::CELL == LSTM && lane == 0) store4(a.d_cell_state_out + b * H + own, load4(left + stash(r, G + 3)));
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int x = lane + 32 * i;
        if (!in(i)) continue;
        const bool stayed = held(ids(0)[r * SLOTS + x]) == x;
        store4(a.d_initial_keys + (b * SLOTS + x) * H + own, stayed ? load4(at[i] + gathered(r, 0)) : nothing());
        store4(a.d_initial_states + (b * SLOTS + x) * H + own, stayed ? load4(at[i] + gathered(r, 1)) : nothing());
        store4(a.initial_slots + (b * SLOTS + x) * H + own,
               stayed ? widened4(layer(a.slots) + (b * SLOTS + x) * H + own) : nothing());
        if (S::LEARNED && warp == 0 && rank == 0) a.d_initial_scores[b * SLOTS + x] = stayed ? d_score[r][i] : 0.0f;
      }
    }
#pragma unroll
    for (int m = 16; m; m >>= 1) {
      const float4 other = {shuffle_xor(d_energy.x, m), shuffle_xor(d_energy.y, m), shuffle_xor(d_energy.z, m),
                            shuffle_xor(d_energy.w, m)};
      d_energy = d_energy + other;
    }
    if (lane == 0) store4(a.d_energy + (int64_t)cluster_index() * H + own, 2.0f * d_energy);
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
    mbarrier_expect(scores_came, places.rows * L::SCORE_BYTES);
    mbarrier_expect(states_came, places.rows * L::STATE_BYTES);
  }
  for (int n = 32 + thread_index() * 4; n < L::FLOATS; n += L::THREADS * 4)  // also of rows beyond the batch
    for (int i = 0; i < 4 && n + i < L::FLOATS; i++) sm[n + i] = 0.0f;
  barrier_sync(0, L::THREADS);
  for (int n = thread_index(); n < 3 * places.rows * L::SLOTS; n += L::THREADS) {  // inputs of the first steps
    const int t = a.steps - 1 - n / (places.rows * L::SLOTS), at = n % (places.rows * L::SLOTS);
    if (t >= 0) places.ids(t)[at] = a.ids[places.row(t, 0) * L::SLOTS + at];
  }
  cluster_sync();  // barriers are initialised before any block sends
  if (thread_index() < L::WARPS * 32) {
    if constexpr (L::DEAL) more_registers<L::REGISTERS>();
    Back<S>(a, sm).walk();
  } else {
    if constexpr (L::DEAL) fewer_registers<L::OF_AHEAD>();
    BackAhead<S>(a, sm).walk();
    cluster_sync();  // with the others, at their end
  }
  cluster_sync();  // no block exits while its shared memory may be written
}

}  // namespace plait
