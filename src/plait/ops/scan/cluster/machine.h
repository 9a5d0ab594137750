// The features of a Hopper GPU that the cluster kernels use, one small function each: barriers, messages between the
// blocks of a cluster, shuffles, registers. The kernels use nothing else of CUDA, so the same source runs on a CPU
// against another machine, the emulator of the tests (PLAIT_EMULATE names its header).

#pragma once

#ifdef PLAIT_EMULATE
#include PLAIT_EMULATE
#else

#define DEVICE static __device__ __forceinline__
#define MEMBER __device__ __forceinline__
#define NUMBER static constexpr __host__ __device__ int  // a function that host code may call as well
#define KERNEL(blocks, threads) extern "C" __global__ void __cluster_dims__(blocks, 1, 1) __launch_bounds__(threads, 1)
#define SHARED_MEMORY(name) extern __shared__ __align__(128) unsigned char name[]

namespace plait {

using uint32_t = unsigned int;
using int64_t = long long;

// ---- indices
DEVICE int thread_index() { return threadIdx.x; }
DEVICE int thread_anew() { uint32_t i; asm volatile("mov.u32 %0, %%tid.x;" : "=r"(i)); return i; }  // not the value read before
DEVICE int cluster_index() { uint32_t i; asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(i)); return i; }
DEVICE int block_rank() { uint32_t i; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(i)); return i; }

// ---- barriers of a block, of a cluster
DEVICE void barrier_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
DEVICE void barrier_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// ---- within a warp
DEVICE float shuffle_xor(float v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
DEVICE float shuffle(float v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }
DEVICE int shuffle(int v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }
DEVICE uint32_t vote(bool p) { return __ballot_sync(0xffffffffu, p); }
DEVICE uint32_t warp_min(uint32_t v) { return __reduce_min_sync(0xffffffffu, v); }
DEVICE uint32_t warp_max(uint32_t v) { return __reduce_max_sync(0xffffffffu, v); }
DEVICE int first_bit(uint32_t v) { return __ffs(v) - 1; }
DEVICE void warp_sync() { __syncwarp(); }

// ---- arithmetic that GPU and emulator compute to the same few units in the last place
DEVICE uint32_t bits_of(float v) { return __float_as_uint(v); }
DEVICE float of_bits(uint32_t v) { return __uint_as_float(v); }
DEVICE float ex2(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float rcp(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float lg2(float x) { float y; asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float mad(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEVICE float divide(float a, float b) { return __fdiv_rn(a, b); }
DEVICE float root(float x) { return __fsqrt_rn(x); }

// keeps a number in its register, which the compiler would otherwise recompute
DEVICE void keep(int& x) { asm volatile("" : "+r"(x)); }

// ---- registers, reallocated among warpgroups
template <int N>
DEVICE void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N>
DEVICE void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }

// ---- messages: a store into another block's shared memory that its mbarrier counts in bytes
DEVICE uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
DEVICE void mbarrier_init(uint32_t b, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(arrivals) : "memory");
}
DEVICE void mbarrier_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void mbarrier_expect(uint32_t b, int bytes) {  // arrives, and makes the phase wait for this many bytes
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes) : "memory");
}
DEVICE bool mbarrier_try(uint32_t b, int parity) {
  uint32_t done;
  asm volatile(
      "{\n\t.reg .pred p;\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t}" : "=r"(done) : "r"(b), "r"(parity) : "memory");
  return done;
}
DEVICE void mbarrier_wait(uint32_t b, int parity) {
  if (mbarrier_try(b, parity)) return;
  const long long began = clock64();
  while (!mbarrier_try(b, parity))
    if (clock64() - began > 20000000000ll) __trap();  // ten seconds: an error instead of a hanging GPU
}
DEVICE uint32_t mapped(uint32_t address, int rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
// v to `address` in the shared memory of block `rank`, 4 bytes counted by its mbarrier `b`; the next send 8 and 16
DEVICE void send(uint32_t address, float v, uint32_t b, int rank) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                   mapped(address, rank)), "r"(__float_as_uint(v)), "r"(mapped(b, rank)) : "memory");
}
DEVICE void send2(uint32_t address, float2 v, uint32_t b, int rank) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(
                   mapped(address, rank)), "r"(__float_as_uint(v.x)), "r"(__float_as_uint(v.y)), "r"(mapped(b, rank)) : "memory");
}
DEVICE void send4(uint32_t address, float4 v, uint32_t b, int rank) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                   mapped(address, rank)), "r"(__float_as_uint(v.x)), "r"(__float_as_uint(v.y)),
               "r"(__float_as_uint(v.z)), "r"(__float_as_uint(v.w)), "r"(mapped(b, rank)) : "memory");
}

// ---- asynchronous copies from global to shared memory: 4, 8 or 16 aligned bytes, zeros if masked; visible to this
// thread after it has waited for their group
template <int BYTES>
DEVICE void copy_async(void* to, const void* from, bool there) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16);
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(there ? 16 : 0) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)), "l"(from), "n"(BYTES),
                 "r"(there ? BYTES : 0) : "memory");
}
DEVICE void copies_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int YOUNGER>  // all but this many of the latest groups
DEVICE void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(YOUNGER) : "memory"); }

DEVICE uint32_t cycles() { uint32_t c; asm volatile("mov.u32 %0, %%clock;" : "=r"(c)); return c; }

// v to `address` in the shared memory of block `rank`, visible after the next cluster_sync
DEVICE void put(uint32_t address, float v, int rank) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(mapped(address, rank)), "f"(v) : "memory");
}
// global memory that another block has written since this one last read it: not from the first-level cache
DEVICE float4 load4_fresh(const float* p) {
  float4 v;
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p) : "memory");
  return v;
}
DEVICE float load_fresh(const float* p) {
  float v;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
  return v;
}

}  // namespace plait
#endif

namespace plait {

DEVICE float4 load4(const float* p) { return *reinterpret_cast<const float4*>(p); }
DEVICE void store4(float* p, float4 v) { *reinterpret_cast<float4*>(p) = v; }
DEVICE float2 load2(const float* p) { return *reinterpret_cast<const float2*>(p); }

// A number in the layer's own type. Arithmetic is float32; bfloat16 is rounded to nearest, ties to even.
struct bfloat16 {
  unsigned short half;
};
DEVICE float widened(float x) { return x; }
DEVICE float widened(bfloat16 x) { return of_bits((uint32_t)x.half << 16); }
DEVICE void narrow(float x, float& y) { y = x; }
DEVICE void narrow(float x, bfloat16& y) {
  const uint32_t b = bits_of(x);
  const bool nan = (b & 0x7fffffffu) > 0x7f800000u;  // a NaN stays one
  y.half = (unsigned short)(nan ? b >> 16 | 0x40u : (b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}
template <class Layer>
DEVICE Layer narrowed(float x) {
  Layer y;
  narrow(x, y);
  return y;
}
template <class Layer>
DEVICE float rounded(float x) { return widened(narrowed<Layer>(x)); }

}  // namespace plait
