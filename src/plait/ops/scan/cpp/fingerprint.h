// A 64-bit hash of the numbers of a tensor.

#pragma once

#include <cstdint>
#include <cstring>

namespace plait {

// Sums of products of the halves of 64-bit words, each half with a mask for its position, so that another number, sign
// or order gives another sum. Different contents collide by chance, with probability 1e-9 at most. Never 0.
class Fingerprint {
 public:
  explicit Fingerprint(uint64_t seed) {
    for (uint64_t l = 0; l < 8; ++l) masks[l] = (seed + l + 1) * 0xd6e8feb86659fd93;
  }

  uint64_t of(const void* data, int64_t bytes) const {
    Words sum{}, mask = masks;
    const char* from = static_cast<const char*>(data);
    for (; bytes >= 64; bytes -= 64, from += 64, mask += GOLDEN) sum += mixed(*reinterpret_cast<const Words*>(from), mask);
    if (bytes > 0) {
      Words rest{};
      std::memcpy(&rest, from, bytes);
      sum += mixed(rest, mask);
    }
    uint64_t total = 0;
    for (int l = 0; l < 8; ++l) total += sum[l];
    total = (total ^ total >> 32) * GOLDEN;
    return (total ^ total >> 29) | 1;
  }

 private:
  typedef uint64_t Words __attribute__((vector_size(64), aligned(8), may_alias));
  static constexpr uint64_t GOLDEN = 0x9e3779b97f4a7c15;
  Words masks;

  static Words mixed(const Words& word, const Words& mask) {
    const Words masked = word ^ mask;
    return (masked & 0xffffffff) * (masked >> 32) + (word << 32 | word >> 32);
  }
};

}  // namespace plait
