// The forward walk of one cluster; `ForwardArguments` and the shape are written by Python before this is included.

#pragma once

#include "forward_compute.h"
#include "forward_control.h"

namespace plait {

template <class S>
DEVICE void scan_forward(const ForwardArguments& a, unsigned char* memory) {
  using K = ForwardLayout<S>;
  float* sm = reinterpret_cast<float*>(memory);
  const int thread = thread_index();
  for (int i = thread + K::RECORDS; i < K::WEIGHTS_AT; i += K::THREADS) sm[i] = 0.0f;
  if (thread == 0) {
    const uint32_t mbarriers = shared_address(sm);
    for (int i = 0; i < 3; i++) mbarrier_init(mbarriers + 8 * i, 1);
    mbarrier_fence();
    mbarrier_expect(mbarriers, K::H_BYTES);
    mbarrier_expect(mbarriers + 8, K::E_BYTES);
    mbarrier_expect(mbarriers + 16, K::E_BYTES);
  }
  cluster_sync();  // memory is cleared and barriers are initialised before any block sends
  // Each role reads the thread index again: otherwise the compiler would spill values shared by both roles.
  if (thread < K::NW * 32) {
    if constexpr (K::DEAL) more_registers<K::REGISTERS>();
    const int self = thread_anew();
    Compute<K> compute(a, sm, self / 32, self % 32, block_rank(), cluster_index() * K::R);
    compute.prepare();
    barrier_sync(PREPARED, K::MEET);
    compute.take_in();
    compute.walk();
  } else {
    if constexpr (K::DEAL) fewer_registers<K::CONTROL_REGISTERS>();
    const int self = thread_anew() - K::NW * 32, warp = self / 32, lane = self % 32;
    if (warp < K::NCW) {
      Control<K> control(a, sm, warp, lane, block_rank(), cluster_index() * K::R);
      control.prepare();
      if (lane == 0)
        for (int r = warp; r < K::R; r += K::NCW)
          reinterpret_cast<int*>(sm)[K::WHERE + 8 + r] = K::record(r, K::START);  // "newest" before step 0: s_0
      barrier_arrive(PREPARED, K::MEET);
      control.walk();
    }
  }
  cluster_sync();  // no block exits while its shared memory may be written
}

}  // namespace plait
