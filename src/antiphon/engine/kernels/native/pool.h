/* The threads that share the work of one call.
 *
 * `run` has the threads of the pool execute the same function; within it, `Team` hands out work. Threads that have
 * nothing to do spin for a short while and then sleep, so that an idle server costs nothing and a token does not wait for
 * threads to wake up between two steps.
 *
 * Nobody waits for a thread that has no work of its own in hand. One that the system has put aside for somebody else
 * comes back to find the pieces done that were handed out meanwhile, and goes on to where the others are.
 */
#ifndef ANTIPHON_POOL_H
#define ANTIPHON_POOL_H

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ak {

/* A function somewhere else, called while it is still there: std::function without its allocation. */
template <class... Arguments>
class Body {
 public:
  template <class F, class = std::enable_if_t<!std::is_same_v<std::decay_t<F>, Body>>>
  __attribute__((always_inline)) Body(const F& function)
      : function_(&function), call_([](const void* f, Arguments... a) { (*static_cast<const F*>(f))(a...); }) {}
  __attribute__((always_inline)) void operator()(Arguments... a) const { call_(function_, a...); }

 private:
  const void* function_;
  void (*call_)(const void*, Arguments...);
};

/* The threads of one region, seen from one of them.
 *
 * All call the same functions in the same order. A thread may be late: what it reads between two calls may be of later
 * steps already, and is sure to be right only in the body of a share, or where it is used in no other than the next
 * share and nothing changes it in that. Between calls a thread writes to nothing but its own memory. */
class Team {
 public:
  /* The most threads that may take part. */
  virtual int size() const = 0;
  /* Runs body(begin, end) over pieces of [0, n), each of at most `grain`, on whichever threads are free, and returns when
   * all are done. All call it with the same n and grain. */
  virtual void share(int64_t n, int64_t grain, Body<int64_t, int64_t> body) = 0;
  /* Memory for all threads together, the same for each and aligned to 64 bytes. Once in a region, with the same size. */
  virtual void* shared_scratch(size_t bytes) = 0;
  /* Memory for this thread alone, aligned to 64 bytes. What was got before in this region is lost. */
  virtual void* own_scratch(size_t bytes) = 0;

 protected:
  ~Team() = default;
};

/* Threads of the pool, the caller's own included. Not while something runs. */
void set_threads(int threads);
int num_threads();
/* Runs `region` on the caller's thread and on those of the pool that are there in time. One at a time; a second caller
 * waits. */
void run(Body<Team&> region);

}  // namespace ak

#endif
