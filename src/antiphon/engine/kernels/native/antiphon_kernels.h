/* The kernels' C interface: plain pointers and sizes, no torch, no Python.
 *
 * Everything is row-major and float32 unless it says otherwise. Functions that may fail return 0 on success and a
 * negative number on arguments they cannot take; none of them allocates memory that outlives the call, but for the
 * threads of the pool and scratch space that each keeps. Calls may come from several threads; they run one after the
 * other on the pool.
 */
#ifndef ANTIPHON_KERNELS_H
#define ANTIPHON_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AK_ABI 1

/* How weights are stored. The first are plain rows; the packed ones interleave eight rows, see weights.h. */
enum ak_format {
  AK_F32 = 0,
  AK_F16 = 1,
  AK_BF16 = 2,
  AK_P4 = 16, /* 4 bits with a scale and a minimum for each 32 values of a row */
  AK_P6 = 17, /* 6 bits with a scale for each 16 values */
  AK_P8 = 18  /* 8 bits with a scale for each 32 values */
};

/* A weight of a linear layer, y = x W^T + bias, or a table of embeddings. */
typedef struct {
  int32_t format;    /* ak_format */
  int64_t rows;      /* outputs */
  int64_t cols;      /* inputs; a multiple of 32 for packed formats */
  const void* data;  /* aligned to 64 bytes for packed formats */
  const float* bias; /* [rows] or null */
} ak_weight;

/* --- the library --- */

int ak_abi(void);
/* The instruction sets compiled in, best first, and whether this processor has them. */
int ak_num_isas(void);
const char* ak_isa_name(int index); /* "avx512", "avx2", "neon", "portable" */
int ak_isa_usable(int index);
int ak_use_isa(const char* name);   /* for tests; -1 if unknown or unusable */
const char* ak_isa(void);           /* the one in use; the best usable one unless told otherwise */
int ak_set_threads(int threads);    /* of the pool, the caller's own included; at least 1 */

/* --- weights --- */

/* The packed format that a GGUF tensor type (ggml's numbers) becomes, -1 if it has none. */
int ak_packed_format(int ggml_type);
/* Bytes of a packed weight; 0 for what cannot be packed. Rows are filled up to a multiple of eight. */
size_t ak_packed_bytes(int format, int64_t rows, int64_t cols);
/* GGUF blocks as they lie in the file, row by row, to the packed format. Loses nothing but, for Q4_K and Q6_K, the
 * product of two scales being rounded to half precision. */
int ak_pack(int ggml_type, const void* source, int64_t rows, int64_t cols, void* target);
/* Rows of float32 to AK_P8 or AK_P4, quantised by the largest magnitude (P8) or the range (P4) of each block. */
int ak_quantize(int format, const float* source, int64_t rows, int64_t cols, void* target);
/* One row as float32. */
int ak_unpack_row(const ak_weight* weight, int64_t row, float* target);

/* --- single operations --- */

/* y[m][rows] = x[m][cols] W^T + bias. Inputs are quantised to 8 bits in blocks of 32 for packed formats. */
int ak_linear(const ak_weight* weight, const float* x, int64_t m, float* y);
int ak_embed(const ak_weight* weight, const int32_t* tokens, int64_t n, float* target);
int ak_rms_norm(const float* x, const float* weight, int64_t m, int64_t n, float eps, float* y);
/* Rotates pairs (i, i + n/2) of the first n = `rotary` values of each head in place. x: [m][heads][stride]. */
int ak_rope(float* x, const int32_t* positions, int64_t m, int64_t heads, int64_t stride, int64_t rotary,
            const float* inv_freq, float scale);
/* y[m][n] = act(x[m][0:n]) * x[m][n:2n]; act: 0 SiLU, 1 GELU (tanh). */
int ak_gated(const float* x, int64_t m, int64_t n, int activation, float* y);

/* --- paged attention ---
 *
 * The cache is cut into blocks of AK_BLOCK tokens. Within a block and a head, keys lie transposed, [key_size][AK_BLOCK],
 * so that the scores of a block's tokens are one vector; values lie [AK_BLOCK][value_size].
 *
 * What a token attends to is always summed up in the same order, whether it is computed alone or with others of its
 * prompt, so that the results are the same to the last bit. */
#define AK_BLOCK 16

/* Consecutive tokens of one sequence: rows [row, row + n) of a batch, at positions [position, position + n). Their keys
 * and values, and those of all earlier positions, lie in the blocks of `blocks`. */
typedef struct {
  int32_t row;
  int32_t n;
  int32_t position;
  int32_t reserved;
  const int32_t* blocks; /* at least (position + n + AK_BLOCK - 1) / AK_BLOCK */
} ak_segment;

/* Keys and values of one layer, half precision: [block][kv_head][key_size][AK_BLOCK] and
 * [block][kv_head][AK_BLOCK][value_size]. They never hold anything but finite numbers. */
typedef struct {
  uint16_t* keys;
  uint16_t* values;
  int32_t kv_heads;
  int32_t key_size;   /* 1 to 256 */
  int32_t value_size; /* 1 to 256 */
  int32_t reserved;
} ak_cache;

/* Writes keys [m][kv_heads][key_size] and values [m][kv_heads][value_size] of a batch into its segments' blocks. A stride
 * is the distance between two tokens' rows, in floats. What half precision cannot hold becomes its largest number. */
int ak_write_cache(const ak_cache* cache, const float* keys, int64_t key_stride, const float* values,
                   int64_t value_stride, const ak_segment* segments, int32_t num_segments);

typedef struct {
  int32_t heads;      /* query heads, a multiple of kv_heads */
  float scale;
  float softcap;      /* s -> softcap * tanh(s / softcap); 0 for none */
  int32_t window;     /* a token sees itself and this many - 1 before it; 0 for all */
  const float* sinks; /* [heads]: a score that takes part in the softmax and nothing else; null for none */
} ak_attention;

/* out[m][heads][value_size] from q[m][heads][key_size]; causal. The cache already holds the batch's own keys. */
int ak_attend(const ak_cache* cache, const ak_attention* attention, const float* q, int64_t q_stride,
              const ak_segment* segments, int32_t num_segments, float* out, int64_t out_stride);

/* --- a whole decoder of the Llama shape --- */

typedef struct {
  ak_weight q, k, v, o, gate, up, down;
  const float* attention_norm; /* [hidden] */
  const float* ffn_norm;       /* [hidden] */
  const float* q_norm;         /* [head_size], applied to each head before the rotation; null for none */
  const float* k_norm;
  int32_t rotates;             /* 0: this layer does not rotate */
  int32_t window;              /* 0: sees everything */
} ak_layer;

typedef struct {
  int32_t num_layers;
  int32_t hidden;
  int32_t ffn;
  int32_t heads;
  int32_t kv_heads;
  int32_t head_size;
  int32_t rotary;        /* how many values of a head are rotated */
  int32_t activation;    /* as in ak_gated */
  float eps;
  float scale;           /* of attention scores */
  float rope_scale;      /* of sines and cosines */
  float residual_scale;  /* of what a layer adds; 1 as a rule */
  float embedding_scale; /* 1 as a rule */
  float logit_scale;     /* 1 as a rule */
  const float* inv_freq; /* [rotary / 2] */
  const ak_layer* layers;
  ak_weight embedding;
  ak_weight head;
  const float* norm;     /* [hidden] */
  uint16_t* cache;       /* [layer][2][num_blocks][kv_heads * head_size * AK_BLOCK]; 0: keys, 1: values */
  int64_t num_blocks;
} ak_decoder;

typedef struct {
  int32_t m;                  /* tokens */
  const int32_t* tokens;      /* [m] */
  const ak_segment* segments; /* rows in order, together all m */
  int32_t num_segments;
  const int32_t* logit_rows;  /* [num_logits]: rows whose scores are wanted */
  int32_t num_logits;
} ak_batch;

/* logits[num_logits][head.rows]. `hidden` may be null, or [m][hidden] to be given the last layer's output before the
 * final norm. */
int ak_forward(const ak_decoder* decoder, const ak_batch* batch, float* logits, float* hidden);

/* --- sampling --- */

typedef struct {
  float temperature;         /* below 1e-4: the likeliest */
  float top_p;
  float min_p;               /* of the likeliest token's probability; 0 for none */
  int32_t top_k;             /* 0 for all */
  float presence_penalty;
  float frequency_penalty;
  int32_t num_counted;       /* tokens that were made before, each once, and how often */
  const int32_t* counted;
  const int32_t* counts;
  int32_t num_biased;        /* added to scores */
  const int32_t* biased;
  const float* biases;
  const uint32_t* allowed;   /* one bit a token, ceil(vocab / 32) words; null for all */
  uint64_t seed;
  uint64_t position;         /* the draw's number: the same seed and number draw the same */
  int32_t num_top;           /* likeliest tokens to report, -1 for no log-probabilities at all */
} ak_sampling;

/* Draws a token from scores [vocab]. Log-probabilities are those before any setting. Writes `logprob` and
 * top_tokens/top_logprobs[num_top] if num_top >= 0. Returns the token, or -1 if none is allowed. */
int32_t ak_sample(const float* logits, int64_t vocab, const ak_sampling* sampling, float* logprob,
                  int32_t* top_tokens, float* top_logprobs);
/* The same for n rows at once, on the pool; top_* are [n][max_top]. */
int ak_sample_rows(const float* logits, int64_t vocab, int32_t n, const ak_sampling* samplings, int32_t* tokens,
                   float* logprobs, int32_t* top_tokens, float* top_logprobs, int32_t max_top);

#ifdef __cplusplus
}
#endif
#endif
