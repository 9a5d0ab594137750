// A thread-block cluster on one CPU thread: every CUDA thread a fibre, run in random order; messages between blocks
// arrive late and out of order, warps and whole blocks fall behind. Enough of the machine (machine.h) to test the
// kernels' logic and their barriers, not their speed. Shared memory begins as NaN.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#define DEVICE [[maybe_unused]] static inline
#define MEMBER inline
#define NUMBER [[maybe_unused]] static constexpr int
#define KERNEL(blocks, threads) static void
#define SHARED_MEMORY(name) unsigned char* name = plait::block().memory.data()
#define __restrict__

struct float4 { float x, y, z, w; };
struct float2 { float x, y; };

// save the registers a callee must keep, change stacks
extern "C" void plait_switch(void** from, void* to);
asm(R"(
.text
.globl plait_switch
.hidden plait_switch
.type plait_switch,@function
plait_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

namespace plait {

struct Barrier { int count = 0; long turn = 0; };
struct MBarrier { int pending = 0, total = 0, phase = 0; long bytes = 0; bool live = false; };
struct Warp { int count = 0; long turn = 0; uint32_t value[2][32]; };
struct Block {
  std::vector<unsigned char> memory;
  Barrier barriers[16];
  MBarrier mbarriers[16];  // in the first 128 bytes of shared memory
  std::vector<Warp> warps;
};
struct Copy { long group; unsigned char* to; const void* from; int bytes; bool there; };
struct Fibre {
  void* stack_pointer;
  std::vector<char> stack;
  int block, thread;
  bool done = false;
  std::vector<Copy> copies;
  long group = 0;
};
struct Message { int to; uint32_t at, barrier, value; int from; };

inline std::vector<Block> blocks;
inline std::vector<Fibre> fibres;
inline std::vector<Message> messages;
struct Put { int to; uint32_t at; float value; };
inline std::vector<Put> puts;
inline Barrier cluster_barrier;
inline Fibre* now = nullptr;  // the one that runs
inline void* home;
inline int running_cluster, threads_of_block;
inline std::mt19937 chance;
inline std::function<void()> body;
inline int slow_from = -1, slow_to = -1;  // two blocks between which messages take long

inline void pause() { plait_switch(&now->stack_pointer, home); }
inline Block& block() { return blocks[now->block]; }
inline const char* failure;  // what went wrong, if anything
inline void fail(const char* what) {
  failure = what;
  if (now) pause();  // for good
}

inline void advance(MBarrier& m) {
  if (m.live && m.pending == 0 && m.bytes == 0) m.phase ^= 1, m.pending = m.total;
}
inline void deliver() {
  if (chance() % 64 == 0) slow_from = chance() % blocks.size(), slow_to = chance() % blocks.size();
  for (size_t i = 0; i < messages.size();) {
    const bool slow = messages[i].from == slow_from && messages[i].to == slow_to;
    if (chance() % (slow ? 60 : 3)) { i++; continue; }
    const Message m = messages[i];
    messages[i] = messages.back(), messages.pop_back();
    memcpy(blocks[m.to].memory.data() + m.at, &m.value, 4);
    MBarrier& b = blocks[m.to].mbarriers[m.barrier / 8];
    if (!b.live) fail("a message to a barrier that does not stand");
    b.bytes -= 4, advance(b);
  }
}
inline void entry() { body(), now->done = true, pause(); }

inline void prepare(int size, int threads, size_t bytes) {
  blocks.assign(size, Block());
  messages.clear(), puts.clear(), cluster_barrier = Barrier();
  for (Block& b : blocks) {
    b.memory.resize((bytes + 127) / 4 * 4);
    for (size_t i = 0; i < b.memory.size(); i += 4) { const uint32_t nan = 0x7fc00001u; memcpy(&b.memory[i], &nan, 4); }
    b.warps.assign(threads / 32, Warp());
  }
  fibres.resize((size_t)size * threads);
  for (size_t i = 0; i < fibres.size(); i++) {
    Fibre& f = fibres[i];
    f.copies.clear(), f.group = 0;
    f.done = false, f.block = i / threads, f.thread = i % threads;
    if (f.stack.empty()) f.stack.resize(64 * 1024);
    void** top = (void**)((uintptr_t)(f.stack.data() + f.stack.size()) & ~(uintptr_t)15) - 8;
    for (int k = 0; k < 6; k++) top[k] = nullptr;  // six registers, then where to begin
    top[6] = (void*)entry, top[7] = nullptr;
    f.stack_pointer = top;
  }
}

// Run cluster `index` of blocks to its end, whether it comes there; the same seed gives the same order.
inline bool run_cluster(int index, int size, int threads, size_t bytes, std::function<void()> kernel, int seed) {
  failure = nullptr, now = nullptr, running_cluster = index, threads_of_block = threads, body = kernel;
  chance.seed(seed * 7919 + index);
  prepare(size, threads, bytes);
  const int warps = size * threads / 32, each = threads / 32;
  std::vector<int> frozen(warps, 0);
  size_t left = fibres.size();
  for (long idle = 0; left; idle++) {
    if (chance() % 8 == 0) {  // a warp, or all of a block, falls behind
      const int w = chance() % warps, n = chance() % 100, first = w / each * each;
      if (chance() % 2) frozen[w] = n;
      else for (int i = first; i < first + each; i++) frozen[i] = n;
    }
    for (int& f : frozen) f -= f > 0;
    for (int k = 0; k < warps; k++) {
      const int w = chance() % warps, order = chance() % 32;
      if (chance() % 16 == 0 || frozen[w]) continue;
      for (int l = 0; l < 32; l++) {
        Fibre& f = fibres[w * 32 + (l ^ order)];
        if (f.done) continue;
        now = &f;
        plait_switch(&home, f.stack_pointer);
        now = nullptr;
        if (failure) return false;
        if (f.done) left--, idle = 0;
      }
    }
    deliver();
    if (idle > 2000000) fail("stuck");
    if (failure) return false;
  }
  if (!messages.empty()) fail("messages after the end");
  return !failure;
}

// ---- machine.h on this machine
DEVICE int thread_index() { return now->thread; }
DEVICE int thread_anew() { return now->thread; }
DEVICE int cluster_index() { return running_cluster; }
DEVICE int block_rank() { return now->block; }
DEVICE void arrive(Barrier& b, int threads) { if (++b.count == threads) b.count = 0, b.turn++; }
DEVICE void sync(Barrier& b, int threads) {
  const long turn = b.turn;
  arrive(b, threads);
  while (b.turn == turn) pause();
}
DEVICE void barrier_sync(int id, int threads) { sync(block().barriers[id], threads); }
DEVICE void barrier_arrive(int id, int threads) { arrive(block().barriers[id], threads); }
DEVICE void cluster_sync() {
  const int all = threads_of_block * (int)blocks.size();
  if (cluster_barrier.count == all - 1) {  // the last to arrive: what was put is there now
    for (const Put& p : puts) memcpy(blocks[p.to].memory.data() + p.at, &p.value, 4);
    puts.clear();
  }
  sync(cluster_barrier, all);
}

template <class Read>
DEVICE uint32_t exchange(uint32_t v, Read read) {
  Warp& w = block().warps[now->thread / 32];
  const long turn = w.turn;
  w.value[turn & 1][now->thread % 32] = v;
  if (++w.count == 32) w.count = 0, w.turn++;
  else while (w.turn == turn) pause();
  return read(w.value[turn & 1]);
}
DEVICE uint32_t bits_of(float v) { uint32_t u; memcpy(&u, &v, 4); return u; }
DEVICE float of_bits(uint32_t u) { float v; memcpy(&v, &u, 4); return v; }
DEVICE float shuffle_xor(float v, int mask) {
  const int lane = now->thread % 32;
  return of_bits(exchange(bits_of(v), [&](const uint32_t* x) { return x[lane ^ mask]; }));
}
DEVICE float shuffle(float v, int lane) { return of_bits(exchange(bits_of(v), [&](const uint32_t* x) { return x[lane & 31]; })); }
DEVICE int shuffle(int v, int lane) { return (int)exchange((uint32_t)v, [&](const uint32_t* x) { return x[lane & 31]; }); }
DEVICE uint32_t vote(bool p) {
  return exchange(p, [](const uint32_t* x) { uint32_t b = 0; for (int i = 0; i < 32; i++) b |= x[i] << i; return b; });
}
DEVICE uint32_t warp_min(uint32_t v) {
  return exchange(v, [](const uint32_t* x) { uint32_t m = x[0]; for (int i = 1; i < 32; i++) m = x[i] < m ? x[i] : m; return m; });
}
DEVICE uint32_t warp_max(uint32_t v) { return ~warp_min(~v); }
DEVICE int first_bit(uint32_t v) { return __builtin_ffs(v) - 1; }
DEVICE void warp_sync() { exchange(0, [](const uint32_t*) { return 0u; }); }
DEVICE void keep(int&) {}
template <int N>
DEVICE void more_registers() {}
template <int N>
DEVICE void fewer_registers() {}
// as a GPU's `.approx.ftz`: a subnormal number is zero, before and after
DEVICE float flushed(float x) { return fabsf(x) < 1.17549435e-38f ? copysignf(0.0f, x) : x; }
DEVICE float ex2(float x) { return flushed(exp2f(flushed(x))); }
DEVICE float rcp(float x) { return flushed(1.0f / flushed(x)); }
DEVICE float lg2(float x) { return log2f(flushed(x)); }
DEVICE float mad(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE float divide(float a, float b) { return a / b; }
DEVICE float root(float x) { return std::sqrt(x); }

DEVICE uint32_t shared_address(const void* p) { return (uint32_t)((const unsigned char*)p - block().memory.data()); }
DEVICE MBarrier& mbarrier(uint32_t b) {
  if (b % 8 || b / 8 >= 16) fail("an mbarrier beyond the first 128 bytes");
  return block().mbarriers[b / 8];
}
DEVICE void mbarrier_init(uint32_t b, int arrivals) {
  MBarrier& m = mbarrier(b);
  m = MBarrier(), m.pending = m.total = arrivals, m.live = true;
}
DEVICE void mbarrier_fence() {}
DEVICE void mbarrier_expect(uint32_t b, int bytes) {
  MBarrier& m = mbarrier(b);
  m.bytes += bytes, m.pending--, advance(m);
}
DEVICE void mbarrier_wait(uint32_t b, int parity) { while (mbarrier(b).phase == parity) pause(); }
DEVICE void send(uint32_t address, float v, uint32_t b, int rank) {
  if (address % 4 || address + 4 > block().memory.size()) fail("a message beyond shared memory");
  messages.push_back({rank, address, b, bits_of(v), now->block});
}
DEVICE void send2(uint32_t address, float2 v, uint32_t b, int rank) {
  if (address % 8) fail("8 bytes at an odd address");
  send(address, v.x, b, rank), send(address + 4, v.y, b, rank);
}
DEVICE void send4(uint32_t address, float4 v, uint32_t b, int rank) {
  if (address % 16) fail("16 bytes at an odd address");
  const float word[4] = {v.x, v.y, v.z, v.w};
  for (int i = 0; i < 4; i++) send(address + 4 * i, word[i], b, rank);
}

// Copies arrive as late as they may, when their group is waited for; until then there is NaN.
template <int BYTES>
DEVICE void copy_async(void* to, const void* from, bool there) {
  const size_t at = (unsigned char*)to - block().memory.data();
  if (at % BYTES || (uintptr_t)from % BYTES || at + BYTES > block().memory.size()) fail("a copy at an odd address");
  const uint32_t nan = 0x7fc00001u;
  for (int i = 0; i < BYTES; i += 4) memcpy((unsigned char*)to + i, &nan, 4);
  now->copies.push_back({now->group, (unsigned char*)to, from, BYTES, there});
}
DEVICE void copies_group() { now->group++; }
template <int YOUNGER>
DEVICE void copies_wait() {
  size_t kept = 0;
  for (const Copy& c : now->copies) {
    if (c.group >= now->group - YOUNGER) { now->copies[kept++] = c; continue; }
    if (c.there) memcpy(c.to, c.from, c.bytes);
    else memset(c.to, 0, c.bytes);
  }
  now->copies.resize(kept);
}
DEVICE uint32_t cycles() { return 0; }

// seldom at once, so that whoever does not wait for the barrier sees what was there before
DEVICE void put(uint32_t address, float v, int rank) {
  if (address % 4 || address + 4 > block().memory.size()) fail("a store beyond shared memory");
  if (chance() % 4) puts.push_back({rank, address, v});
  else memcpy(blocks[rank].memory.data() + address, &v, 4);
}
DEVICE float4 load4_fresh(const float* p) { return {p[0], p[1], p[2], p[3]}; }
DEVICE float load_fresh(const float* p) { return *p; }

}  // namespace plait
