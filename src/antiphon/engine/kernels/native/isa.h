/* What each instruction set provides.
 *
 * The headers of the operations (linear.h, attention.h, forward.h, ...) are compiled once for each set, in a namespace
 * of its own, by isa_<name>.cpp; that file defines the table below. api.cpp picks the best table that the processor can
 * run. Every operation that takes a Team is called by all its threads.
 */
#ifndef ANTIPHON_ISA_H
#define ANTIPHON_ISA_H

#include "antiphon_kernels.h"
#include "pool.h"

namespace ak {

struct Isa {
  const char* name;
  bool (*usable)();
  /* y[m][rows] = x[m][cols] W^T + bias */
  void (*linear)(Team&, const ak_weight&, const float* x, int64_t m, float* y);
  void (*embed)(Team&, const ak_weight&, const int32_t* tokens, int64_t n, float* target);
  void (*rms_norm)(Team&, const float* x, const float* weight, int64_t m, int64_t n, float eps, float* y);
  void (*rope)(Team&, float* x, const int32_t* positions, int64_t m, int64_t heads, int64_t stride, int64_t rotary,
               const float* inv_freq, float scale);
  void (*gated)(Team&, const float* x, int64_t m, int64_t n, int activation, float* y);
  void (*write_cache)(Team&, const ak_cache&, const float* keys, int64_t key_stride, const float* values,
                      int64_t value_stride, const ak_segment* segments, int32_t num_segments);
  void (*attend)(Team&, const ak_cache&, const ak_attention&, const float* q, int64_t q_stride,
                 const ak_segment* segments, int32_t num_segments, float* out, int64_t out_stride);
  void (*forward)(Team&, const ak_decoder&, const ak_batch&, float* logits, float* hidden);
  /* One row, on one thread: ak_sample. */
  int32_t (*sample)(const float* logits, int64_t vocab, const ak_sampling&, float* logprob, int32_t* top_tokens,
                    float* top_logprobs);
};

extern const Isa portable;
#if defined(__x86_64__)
extern const Isa avx2;
extern const Isa avx512;
#elif defined(__aarch64__)
extern const Isa neon;
#endif

}  // namespace ak

#endif
