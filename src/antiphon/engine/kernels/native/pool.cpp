#include "pool.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

namespace ak {
namespace {

/* Pauses of about 20 to 40 ns: waiting costs this thread's core for about 50 us before it offers it to others, and for
 * no more than a few times as long before it sleeps. */
constexpr int kSpins = 2000;
constexpr int kYields = 1500;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/* Where threads wait for a condition on something atomic. */
class Meeting {
 public:
  /* After what may have made the condition true. */
  void wake() {
    /* Either this thread sees who sleeps, or the one about to sleep sees what changed. */
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_relaxed) == 0) return;
    std::lock_guard<std::mutex> lock(mutex_);
    changed_.notify_all();
  }

  template <class Condition>
  void wait(const Condition& condition) {
    for (int i = 0; i < kSpins; i++) {
      if (condition()) return;
      pause();
    }
    for (int i = 0; i < kYields; i++) {
      sched_yield();
      if (condition()) return;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    sleepers_.fetch_add(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    changed_.wait(lock, condition);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

/* Aligned memory that only grows. */
class Scratch {
 public:
  ~Scratch() { free(data_); }

  void* get(size_t bytes) {
    if (bytes > size_) {
      free(data_);
      size_ = (bytes + bytes / 4 + 4095) / 4096 * 4096;
      data_ = aligned_alloc(64, size_);
      if (data_ == nullptr) std::abort(); /* in the middle of a region there is nobody to tell */
    }
    return data_;
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

class Pool {
 public:
  explicit Pool(int threads) : size_(threads), members_(static_cast<size_t>(threads)) {
    for (Member& member : members_) member.pool = this;
    for (size_t i = 1; i < members_.size(); i++) threads_.emplace_back([this, i] { work(members_[i]); });
  }

  ~Pool() {
    stopping_.store(true);
    begun_.wake();
    for (auto& thread : threads_) thread.join();
  }

  int size() const { return size_; }

  void run(const Body<Team&>& region) {
    std::lock_guard<std::mutex> lock(running_);
    if (size_ == 1) return region(members_[0]);
    region_ = &region;
    claim_.store(0, std::memory_order_relaxed);
    door_.store(((door_.load(std::memory_order_relaxed) >> 32) + 1) << 32 | kOpen, std::memory_order_release);
    begun_.wake();
    members_[0].number = 0;
    region(members_[0]);
    door_.fetch_and(~kOpen, std::memory_order_acq_rel);
    left_.wait([this] { return (door_.load(std::memory_order_acquire) & kInside) == 0; });
  }

 private:
  /* The door's bits: how many threads besides the caller are in the region, whether more may enter, and from 32 on the
   * number of the region. */
  static constexpr uint64_t kInside = (uint64_t{1} << 31) - 1;
  static constexpr uint64_t kOpen = uint64_t{1} << 31;

  struct Member final : Team {
    Pool* pool = nullptr;
    uint32_t number = 0; /* of the next share in this region */
    Scratch scratch;

    int size() const override { return pool->size_; }

    void share(int64_t n, int64_t grain, Body<int64_t, int64_t> body) override {
      if (grain < 1) grain = 1;
      if (n < 1) return;
      if (pool->size_ > 1) return pool->share(number++, (n + grain - 1) / grain, [&](int64_t piece) {
        int64_t begin = piece * grain;
        body(begin, begin + grain < n ? begin + grain : n);
      });
      for (int64_t i = 0; i < n; i += grain) body(i, i + grain < n ? i + grain : n);
    }

    void* shared_scratch(size_t bytes) override {
      share(1, 1, [&](int64_t, int64_t) { pool->shared_ = pool->scratch_.get(bytes); });
      return pool->shared_;
    }

    void* own_scratch(size_t bytes) override { return scratch.get(bytes); }
  };

  /* `claim_` holds the number of the share that is under way and, in its low half, its next piece. Who completes the last
   * piece begins the next share: until then nobody can be further on, and afterwards nobody can take an old piece. */
  template <class Piece>
  void share(uint32_t number, int64_t pieces, const Piece& piece) {
    uint64_t claim = claim_.load(std::memory_order_acquire);
    while (claim >> 32 == number) {
      int64_t next = static_cast<int64_t>(claim & 0xFFFFFFFF);
      if (next >= pieces) {
        finished_.wait([&] { return claim_.load(std::memory_order_acquire) >> 32 != number; });
        return;
      }
      if (!claim_.compare_exchange_weak(claim, claim + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      piece(next);
      if (completed_.fetch_add(1, std::memory_order_acq_rel) + 1 == pieces) {
        completed_.store(0, std::memory_order_relaxed);
        claim_.store(uint64_t{number + 1} << 32, std::memory_order_release);
        finished_.wake();
        return;
      }
      claim = claim_.load(std::memory_order_acquire);
    }
  }

  void work(Member& member) {
    uint64_t region = 0;
    for (;;) {
      uint64_t door = 0;
      begun_.wait([&] {
        door = door_.load(std::memory_order_acquire);
        return (door >> 32 != region && (door & kOpen) != 0) || stopping_.load(std::memory_order_acquire);
      });
      if (stopping_.load()) return;
      if (!door_.compare_exchange_strong(door, door + 1, std::memory_order_acq_rel)) continue;
      region = door >> 32;
      member.number = 0;
      (*region_)(member);
      if ((door_.fetch_sub(1, std::memory_order_acq_rel) & kInside) == 1) left_.wake();
    }
  }

  const int size_;
  std::vector<Member> members_;
  std::vector<std::thread> threads_;
  std::mutex running_;
  std::atomic<bool> stopping_{false};
  const Body<Team&>* region_ = nullptr;
  Scratch scratch_;
  void* shared_ = nullptr;
  Meeting begun_, finished_, left_;
  alignas(64) std::atomic<uint64_t> door_{0};
  alignas(64) std::atomic<uint64_t> claim_{0};
  alignas(64) std::atomic<int64_t> completed_{0};
};

std::mutex making;
std::atomic<Pool*> current{nullptr};
std::atomic<int> wanted{0};

/* A forked process has none of the threads. Its pool is made anew; the old one's memory is let lie. */
void forget() {
  new (&making) std::mutex;
  current.store(nullptr);
}

Pool& pool() {
  if (Pool* existing = current.load(std::memory_order_acquire)) return *existing;
  std::lock_guard<std::mutex> lock(making);
  if (Pool* existing = current.load()) return *existing;
  static const int watched = pthread_atfork(nullptr, nullptr, forget);
  (void)watched;
  Pool* made = new Pool(num_threads());
  current.store(made, std::memory_order_release);
  return *made;
}

}  // namespace

int num_threads() {
  int threads = wanted.load();
  if (threads > 0) return threads;
  unsigned cores = std::thread::hardware_concurrency();
  return cores > 0 ? static_cast<int>(cores) : 1;
}

void set_threads(int threads) {
  std::lock_guard<std::mutex> lock(making);
  wanted.store(threads);
  Pool* existing = current.load();
  if (existing == nullptr || existing->size() == threads) return;
  current.store(nullptr);
  delete existing;
}

void run(Body<Team&> region) { pool().run(region); }

}  // namespace ak
