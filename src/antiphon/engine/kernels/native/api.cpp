/* The C interface: checks arguments, and runs the operations of the chosen instruction set on the pool. */
#include <atomic>
#include <cstring>

#include "antiphon_kernels.h"
#include "isa.h"
#include "pool.h"
#include "weights.h"

#define AK_API extern "C" __attribute__((visibility("default")))

namespace {

using ak::Team;

constexpr int kInvalid = -1; /* sizes or pointers that make no sense */
constexpr int kFormat = -2;  /* a format that the operation does not take */

const ak::Isa* const kIsas[] = {
#if defined(__x86_64__)
    &ak::avx512,
    &ak::avx2,
#elif defined(__aarch64__)
    &ak::neon,
#endif
    &ak::portable,
};
constexpr int kNumIsas = sizeof kIsas / sizeof *kIsas;

std::atomic<const ak::Isa*> chosen{nullptr};

const ak::Isa& isa() {
  const ak::Isa* existing = chosen.load(std::memory_order_acquire);
  for (int i = 0; existing == nullptr; i++)
    if (kIsas[i]->usable()) chosen.store(existing = kIsas[i]); /* the last one always is */
  return *existing;
}

bool is_format(int format) {
  return format == AK_F32 || format == AK_F16 || format == AK_BF16 || ak::is_packed(format);
}

int check(const ak_weight& w) {
  if (w.data == nullptr || w.rows < 1 || w.cols < 1) return kInvalid;
  if (!is_format(w.format)) return kFormat;
  return ak::is_packed(w.format) && w.cols % ak::kTile != 0 ? kFormat : 0;
}

int check(const ak_weight& w, int64_t rows, int64_t cols) {
  int error = check(w);
  return error != 0 ? error : w.rows == rows && w.cols == cols ? 0 : kInvalid;
}

int check(const ak_segment* segments, int32_t num_segments, int64_t m) {
  if (num_segments < 1 || segments == nullptr) return kInvalid;
  int64_t row = 0;
  for (int32_t i = 0; i < num_segments; i++) {
    const ak_segment& s = segments[i];
    if (s.row != row || s.n < 1 || s.position < 0 || s.blocks == nullptr) return kInvalid;
    row += s.n;
  }
  return m < 0 || row == m ? 0 : kInvalid;
}

int check(const ak_cache& c) {
  if (c.keys == nullptr || c.values == nullptr || c.kv_heads < 1) return kInvalid;
  return c.key_size < 1 || c.key_size > 256 || c.value_size < 1 || c.value_size > 256 ? kInvalid : 0;
}

int check(const ak_decoder& d) {
  if (d.num_layers < 1 || d.hidden < 1 || d.ffn < 1 || d.heads < 1 || d.kv_heads < 1) return kInvalid;
  if (d.heads % d.kv_heads != 0 || d.head_size < 1 || d.head_size > 256) return kInvalid;
  if (d.rotary < 0 || d.rotary % 2 != 0 || d.rotary > d.head_size) return kInvalid;
  if (d.layers == nullptr || d.norm == nullptr || d.cache == nullptr || d.num_blocks < 1) return kInvalid;
  if (d.rotary > 0 && d.inv_freq == nullptr) return kInvalid;
  int64_t q = (int64_t)d.heads * d.head_size, kv = (int64_t)d.kv_heads * d.head_size;
  for (int32_t i = 0; i < d.num_layers; i++) {
    const ak_layer& l = d.layers[i];
    if (l.attention_norm == nullptr || l.ffn_norm == nullptr) return kInvalid;
    const int errors[] = {
        check(l.q, q, d.hidden),      check(l.k, kv, d.hidden),     check(l.v, kv, d.hidden),
        check(l.o, d.hidden, q),      check(l.gate, d.ffn, d.hidden), check(l.up, d.ffn, d.hidden),
        check(l.down, d.hidden, d.ffn),
    };
    for (int error : errors)
      if (error != 0) return error;
  }
  int error = check(d.embedding, d.embedding.rows, d.hidden);
  return error != 0 ? error : check(d.head, d.head.rows, d.hidden);
}

int check(const ak_batch& b, const ak_decoder& d) {
  if (b.m < 1 || b.tokens == nullptr || b.num_logits < 0) return kInvalid;
  if (b.num_logits > 0 && b.logit_rows == nullptr) return kInvalid;
  for (int32_t i = 0; i < b.num_logits; i++)
    if (b.logit_rows[i] < 0 || b.logit_rows[i] >= b.m) return kInvalid;
  for (int32_t i = 0; i < b.m; i++)
    if (b.tokens[i] < 0 || b.tokens[i] >= d.embedding.rows) return kInvalid;
  int error = check(b.segments, b.num_segments, b.m);
  if (error != 0) return error;
  for (int32_t i = 0; i < b.num_segments; i++) { /* a wrong block would write over somebody else's memory */
    const ak_segment& s = b.segments[i];
    for (int64_t k = 0; k * AK_BLOCK < (int64_t)s.position + s.n; k++)
      if (s.blocks[k] < 0 || s.blocks[k] >= d.num_blocks) return kInvalid;
  }
  return 0;
}

}  // namespace

AK_API int ak_abi(void) { return AK_ABI; }

AK_API int ak_num_isas(void) { return kNumIsas; }

AK_API const char* ak_isa_name(int index) { return index < 0 || index >= kNumIsas ? nullptr : kIsas[index]->name; }

AK_API int ak_isa_usable(int index) { return index >= 0 && index < kNumIsas && kIsas[index]->usable(); }

AK_API int ak_use_isa(const char* name) {
  for (const ak::Isa* candidate : kIsas)
    if (strcmp(candidate->name, name) == 0 && candidate->usable()) {
      chosen.store(candidate);
      return 0;
    }
  return kInvalid;
}

AK_API const char* ak_isa(void) { return isa().name; }

AK_API int ak_set_threads(int threads) {
  if (threads < 1 || threads > 1024) return kInvalid;
  ak::set_threads(threads);
  return 0;
}

AK_API int ak_packed_format(int ggml_type) { return ak::packed_format(ggml_type); }

AK_API size_t ak_packed_bytes(int format, int64_t rows, int64_t cols) { return ak::packed_bytes(format, rows, cols); }

AK_API int ak_pack(int ggml_type, const void* source, int64_t rows, int64_t cols, void* target) {
  if (ak::packed_format(ggml_type) < 0) return kFormat;
  if (source == nullptr || target == nullptr || rows < 1 || cols < 1) return kInvalid;
  if (cols % ak::block_columns(ggml_type) != 0) return kInvalid;
  ak::run([&](Team& team) {
    ak::pack(team, ggml_type, static_cast<const uint8_t*>(source), rows, cols, static_cast<uint8_t*>(target));
  });
  return 0;
}

AK_API int ak_quantize(int format, const float* source, int64_t rows, int64_t cols, void* target) {
  if (format != AK_P4 && format != AK_P8) return kFormat;
  if (source == nullptr || target == nullptr || ak::packed_bytes(format, rows, cols) == 0) return kInvalid;
  ak::run([&](Team& team) { ak::quantize(team, format, source, rows, cols, static_cast<uint8_t*>(target)); });
  return 0;
}

AK_API int ak_unpack_row(const ak_weight* weight, int64_t row, float* target) {
  if (int error = check(*weight)) return error;
  if (row < 0 || row >= weight->rows) return kInvalid;
  ak::unpack_row(*weight, row, target);
  return 0;
}

AK_API int ak_linear(const ak_weight* weight, const float* x, int64_t m, float* y) {
  if (int error = check(*weight)) return error;
  if (m < 1) return m == 0 ? 0 : kInvalid;
  ak::run([&](Team& team) { isa().linear(team, *weight, x, m, y); });
  return 0;
}

AK_API int ak_embed(const ak_weight* weight, const int32_t* tokens, int64_t n, float* target) {
  if (int error = check(*weight)) return error;
  for (int64_t i = 0; i < n; i++)
    if (tokens[i] < 0 || tokens[i] >= weight->rows) return kInvalid;
  ak::run([&](Team& team) { isa().embed(team, *weight, tokens, n, target); });
  return 0;
}

AK_API int ak_rms_norm(const float* x, const float* weight, int64_t m, int64_t n, float eps, float* y) {
  if (m < 0 || n < 1) return kInvalid;
  ak::run([&](Team& team) { isa().rms_norm(team, x, weight, m, n, eps, y); });
  return 0;
}

AK_API int ak_rope(float* x, const int32_t* positions, int64_t m, int64_t heads, int64_t stride, int64_t rotary,
                   const float* inv_freq, float scale) {
  if (m < 0 || heads < 1 || rotary < 2 || rotary % 2 != 0 || rotary > stride) return kInvalid;
  ak::run([&](Team& team) { isa().rope(team, x, positions, m, heads, stride, rotary, inv_freq, scale); });
  return 0;
}

AK_API int ak_gated(const float* x, int64_t m, int64_t n, int activation, float* y) {
  if (m < 0 || n < 1 || activation < 0 || activation > 1) return kInvalid;
  ak::run([&](Team& team) { isa().gated(team, x, m, n, activation, y); });
  return 0;
}

AK_API int ak_write_cache(const ak_cache* cache, const float* keys, int64_t key_stride, const float* values,
                          int64_t value_stride, const ak_segment* segments, int32_t num_segments) {
  if (int error = check(*cache)) return error;
  if (int error = check(segments, num_segments, -1)) return error;
  ak::run([&](Team& team) {
    isa().write_cache(team, *cache, keys, key_stride, values, value_stride, segments, num_segments);
  });
  return 0;
}

AK_API int ak_attend(const ak_cache* cache, const ak_attention* attention, const float* q, int64_t q_stride,
                     const ak_segment* segments, int32_t num_segments, float* out, int64_t out_stride) {
  if (int error = check(*cache)) return error;
  if (int error = check(segments, num_segments, -1)) return error;
  if (attention->heads < 1 || attention->heads % cache->kv_heads != 0 || attention->window < 0) return kInvalid;
  ak::run([&](Team& team) {
    isa().attend(team, *cache, *attention, q, q_stride, segments, num_segments, out, out_stride);
  });
  return 0;
}

AK_API int ak_forward(const ak_decoder* decoder, const ak_batch* batch, float* logits, float* hidden) {
  if (int error = check(*decoder)) return error;
  if (int error = check(*batch, *decoder)) return error;
  ak::run([&](Team& team) { isa().forward(team, *decoder, *batch, logits, hidden); });
  return 0;
}

AK_API int32_t ak_sample(const float* logits, int64_t vocab, const ak_sampling* sampling, float* logprob,
                         int32_t* top_tokens, float* top_logprobs) {
  return isa().sample(logits, vocab, *sampling, logprob, top_tokens, top_logprobs);
}

AK_API int ak_sample_rows(const float* logits, int64_t vocab, int32_t n, const ak_sampling* samplings,
                          int32_t* tokens, float* logprobs, int32_t* top_tokens, float* top_logprobs,
                          int32_t max_top) {
  if (n < 0 || vocab < 1) return kInvalid;
  for (int32_t i = 0; i < n; i++)
    if (samplings[i].num_top > max_top) return kInvalid;
  const auto sample = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++)
      tokens[i] = isa().sample(logits + i * vocab, vocab, samplings[i], logprobs + i, top_tokens + i * max_top,
                               top_logprobs + i * max_top);
  };
  if (n == 1)
    sample(0, 1); /* sooner done than others are there */
  else
    ak::run([&](Team& team) { team.share(n, 1, sample); });
  return 0;
}
