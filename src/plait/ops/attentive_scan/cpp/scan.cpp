// The fused scan on a CPU: a cell and its slot memory walked through time, forward and in reverse.
//
// A task is a block of batch rows and walks all steps, so threads never wait for each other. Rows are
// padded to whole vectors (size -> lane); the padding holds zeros throughout. What every name means, and
// the derivation of the reverse walk, stands in docs/kernels.md.
//
// tanh(q + k) = 1 - 2 / (1 + e^{2q} e^{2k}): both exponentials are taken once per query and once per key,
// so a score costs one multiplication and one division per feature. Out of the range where neither
// exponential overflows ("plain" below), tanh is taken itself.

#include "backward.h"
#include "forward.h"
#include "plain.h"

#include <new>

#define PLAIT_EXPORT __attribute__((visibility("default")))

extern "C" {

PLAIT_EXPORT int64_t plait_lanes(bool is_double) {
  return is_double ? plait::LANES<double> : plait::LANES<float>;
}

// Every walk returns false where memory ran out.
PLAIT_EXPORT bool plait_forward(const plait::Sizes* n, const plait::ForwardTensors* tensors, int64_t blocks,
                                bool is_double) try {
  is_double ? plait::forward<double>(*n, *tensors, blocks) : plait::forward<float>(*n, *tensors, blocks);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

PLAIT_EXPORT bool plait_backward(const plait::Sizes* n, const plait::BackwardTensors* tensors, int64_t blocks,
                                 bool is_double) try {
  is_double ? plait::backward<double>(*n, *tensors, blocks) : plait::backward<float>(*n, *tensors, blocks);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

PLAIT_EXPORT bool plait_plain_forward(const plait::Sizes* n, const plait::PlainForwardTensors* tensors,
                                      int64_t blocks, bool is_double) try {
  is_double ? plait::plain_forward<double>(*n, *tensors, blocks) : plait::plain_forward<float>(*n, *tensors, blocks);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

PLAIT_EXPORT bool plait_plain_backward(const plait::Sizes* n, const plait::PlainBackwardTensors* tensors,
                                       int64_t blocks, bool is_double) try {
  is_double ? plait::plain_backward<double>(*n, *tensors, blocks) : plait::plain_backward<float>(*n, *tensors, blocks);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

}
