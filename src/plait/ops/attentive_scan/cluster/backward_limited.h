// A step back where no element of dL/ds_t may be larger than a limit. The scores then depend on dL/ds_t, which must
// arrive before them: the same two exchanges in another order.
//
//     dL/ds_t = [V; W_a]' g, limited              products over all rows of M: exchanged
//     dL/da_j = mix dL/ds_t . h_j                 scores, summed over all features: exchanged
//
// The gradient of h_t through its key, U_a' dL/dk_t, would be a third: dL/dk_t is the sum from later steps plus dL/de_t
// b_t, with b_t = v (1 - tanh(q_t + k_t)^2), and only the number dL/de_t depends on the scores. So U_a' is applied to
// both while dL/ds_t is in flight, and both products are sent with the scores.

#pragma once

#include "backward_stages.h"

namespace plait {

template <class S>
struct BackLimited : BackStages<S> {
  using L = BackLayout<S>;
  using B = BackPlaces<S>;
  using P = BackProducts<S>;
  using T = BackStages<S>;
  using L::C, L::COLUMNS, L::EACH, L::G, L::R, L::SLOTS;
  using B::a, B::gathered, B::ids, B::input, B::lane, B::place, B::record, B::ring, B::row, B::stash, B::there;
  using P::here, P::multiply, P::put_product, P::warp;
  using T::at, T::feature, T::in, T::keeps, T::leave, T::left, T::limited, T::mine, T::share, T::slot;

  float most;  // limit of dL/ds_t

  MEMBER BackLimited(const BackwardArguments& arguments, float* memory)
      : T(arguments, memory), most(L::LIMITED ? *a.grad_limit * *a.limit : 0.0f) {}

  MEMBER float below(float x) const { return x > most ? most : x < -most ? -most : x; }  // a NaN stays one

  // this warp's part of [V; W_a]' g
  MEMBER void begin_state() {
#pragma unroll
    for (int r = 0; r < R; r++) {
      float product[COLUMNS];
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) product[c] = 0.0f;
#pragma unroll
      for (int k = 0; k <= G; k++) multiply(product, k, load4(left + stash(r, k)));
      put_product(r, 0, product);
    }
  }
  // while dL/ds_t is in flight: the slots, and U_a' times the gradient of h_t's key and times b_t
  MEMBER void look(int t) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      if constexpr (S::RESET) T::is_reset[r] = a.reset[row(t, there(r) ? r : 0)];
      slot[r] = B::slot_of(t, r);
      const float4 q = SCALE * load4(here + input(ring, r, L::GATES));
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int id = in(i) ? ids(t)[r * SLOTS + lane + 32 * i] : -1;
        share[r][i] = id < 0 ? 0.0f : B::shares(t)[r * SLOTS + place(id)];
        T::bend[r][i] = T::bent(load4(at[i] + record(r, L::KEY)), q);
      }
      float of_key[COLUMNS], of_bend[COLUMNS];
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) of_key[c] = of_bend[c] = 0.0f;
      const float4 half = shuffle(EACH > 1 && slot[r] >= 32 ? T::bend[r][EACH - 1] : T::bend[r][0], slot[r] & 31);
      multiply(of_key, G + 1, load4(here + gathered(r, 0) + slot[r] * 4));
      multiply(of_bend, G + 1, T::bent_back(half));
      put_product(r, 1, of_key), put_product(r, 2, of_bend);
    }
  }
  // after its arrival: its contribution to the slots, and this warp's part of the scores
  MEMBER void take_state(int t) {
    limited = L::DIRECT || t == a.steps - 1 ? left[stash(mine, G + 1) + feature] : 0.0f;
    float sum = 0.0f;
#pragma unroll
    for (int c = 0; c < C; c++) sum += *B::first_in(c, warp, mine, feature);
    limited += sum;
    if (t < a.steps - 1) limited = below(limited);  // the gradient of the last state comes from the caller
    if (keeps) left[stash(mine, G + 2) + feature] = limited;
#pragma unroll
    for (int r = 0; r < R; r++) T::put_scores(r, R == 1 ? limited : shuffle(limited, (r << L::OF_ROW) * 4 + feature));
    warp_sync();
  }
  // while the scores are in flight
  MEMBER void give() {
    float4 gained[R][EACH];
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
      for (int i = 0; i < EACH; i++) gained[r][i] = T::gain(r, i);
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
      for (int i = 0; i < EACH; i++)
        if (in(i)) store4(at[i] + gathered(r, 1), gained[r][i]);
    }
    warp_sync();
  }
  // dL/de of h_t
  MEMBER void find_pulled() {
#pragma unroll
    for (int r = 0; r < R; r++) {
      const float of_row = T::of_slot(T::felt[r], slot[r]);
      if (r == mine) T::pulled = of_row;
    }
  }
};

}  // namespace plait
