// The fused scan on a CPU: a cell and its memory walked through time, forward and in reverse.
//
// A task is a block of batch rows and walks all steps, so threads never wait for each other. Rows are
// padded to whole vectors (size -> lane); the padding holds zeros throughout. docs/notes/kernels.md explains the names
// and derives the reverse walk.
//
// tanh(q + k) = 1 - 2 / (1 + e^{2q} e^{2k}): both exponentials are computed once per query and once per key,
// so a score costs one multiplication and one division per feature. Outside of the range where neither exponential
// overflows ("plain" below), tanh itself is computed.

#include "backward.h"
#include "forward.h"
#include "lifetimes.h"
#include "outer.h"
#include "past.h"
#include "past_back.h"
#include "plain.h"
#include "step.h"

#include <new>

#define PLAIT_EXPORT __attribute__((visibility("default")))

extern "C" {

PLAIT_EXPORT int64_t plait_lanes(bool is_double) {
  return is_double ? plait::LANES<double> : plait::LANES<float>;
}

// Each of these returns false if memory ran out.
PLAIT_EXPORT bool plait_outer_product(const void* left, int64_t m, const void* right, int64_t n, int64_t rows, void* out,
                                      bool is_double) try {
  const auto take = [&](auto number) {
    using T = decltype(number);
    plait::outer_product(static_cast<const T*>(left), m, static_cast<const T*>(right), n, rows, static_cast<T*>(out));
  };
  is_double ? take(double()) : take(float());
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

PLAIT_EXPORT bool plait_lifetimes(const plait::LifetimeSizes* n, const plait::LifetimeTensors* tensors) try {
  plait::lifetimes(*n, *tensors);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

#define PLAIT_WALK(name, Tensors)                                                                                    \
  PLAIT_EXPORT bool plait_##name(const plait::Sizes* n, const plait::Tensors* tensors, int64_t blocks,               \
                                 bool is_double) try {                                                               \
    is_double ? plait::name<double>(*n, *tensors, blocks) : plait::name<float>(*n, *tensors, blocks);                \
    return true;                                                                                                     \
  } catch (const std::bad_alloc&) {                                                                                  \
    return false;                                                                                                    \
  }

PLAIT_WALK(attentive_scan_forward, ForwardTensors)
PLAIT_WALK(attentive_scan_backward, BackwardTensors)
PLAIT_WALK(attentive_scan_step, StepTensors)
PLAIT_WALK(full_scan_forward, ForwardTensors)
PLAIT_WALK(full_scan_backward, BackwardTensors)
PLAIT_WALK(plain_scan_forward, ForwardTensors)
PLAIT_WALK(plain_scan_backward, BackwardTensors)

}
