/* Attention over the blocks of the cache.
 *
 * For one token and head, positions are cut into spans of SPAN tokens and these into tiles of TILE, both counted from
 * position 0. Within a span an online softmax goes over the tiles in order; what the spans come to is merged in order.
 * Every step of that is a chain of fused multiply-adds in a fixed order, one chain for each score and each output, so
 * that it does not matter which tokens share a call, which rows share a register tile, or which thread does a span.
 * Masked keys add exact zeros, so that leaving them out or not is the same as well.
 *
 * A row is one token's one query head. The rows of a task share a head of keys and values. A record is what is kept of a
 * row: outputs, not yet divided, filled up to a multiple of eight, and eight partial sums of the weights.
 */
#ifndef ANTIPHON_ATTENTION_H
#define ANTIPHON_ATTENTION_H

#include "attention_tile.h"

constexpr int SPAN = 256;
/* Rows that share the conversion of a tile to float32. */
constexpr int QUERY_ROWS = 96;
/* Up to so many rows half precision is converted again for each register tile. */
constexpr int DIRECT_ROWS = 12;
/* Floats that the spans of more than single tokens may come to, all together. */
constexpr int64_t MAX_PARTIALS = 8 << 20;

/* Memory that is kept between calls. Its contents do not survive growing. */
class Scratch {
 public:
  float* at_least(size_t size) {
    if (floats_.size() < size + 16) floats_ = std::vector<float>(size + size / 4 + 16);
    return (float*)(((uintptr_t)floats_.data() + 63) & ~(uintptr_t)63);
  }

 private:
  std::vector<float> floats_;
};

/* A few rows of one head over a tile, as it lies in the cache. `last` is the first block that is not of the span. */
static void attend_direct(const Shape& shape, const Rows& rows, const int32_t* blocks, int head, int start, int count,
                          int last) {
  const ak_cache& cache = shape.cache;
  const int64_t key_block = (int64_t)cache.key_size * AK_BLOCK, value_block = (int64_t)cache.value_size * AK_BLOCK;
  const int first = start / AK_BLOCK;
  Tile<uint16_t> tile = {{}, {}, {}, cache.value_size, start, count};
  for (int b = 0; b < count; b++) {
    const int64_t index = (int64_t)blocks[first + b] * cache.kv_heads + head;
    tile.keys[b] = cache.keys + index * key_block;
    tile.values[b] = cache.values + index * value_block;
  }
  for (int b = 0; b < TILE_BLOCKS && first + count + b < last; b++) {
    const int64_t index = (int64_t)blocks[first + count + b] * cache.kv_heads + head;
    tile.ahead[b] = {cache.keys + index * key_block, cache.values + index * value_block};
  }
  attend_tile(shape, tile, rows);
}

/* Many rows of one head over a tile, which is converted first. */
static void attend_converted(const Shape& shape, const Rows& rows, const int32_t* blocks, int head, int start,
                             int count, float* converted) {
  const ak_cache& cache = shape.cache;
  const int64_t key_block = (int64_t)cache.key_size * AK_BLOCK, value_block = (int64_t)cache.value_size * AK_BLOCK;
  const int first = start / AK_BLOCK;
  Tile<float> tile = {{}, {}, {}, shape.width, start, count};
  float* to = converted;
  for (int b = 0; b < count; b++, to += key_block) {
    const uint16_t* from = cache.keys + ((int64_t)blocks[first + b] * cache.kv_heads + head) * key_block;
    for (int64_t i = 0; i < key_block; i += 8) v8_store(to + i, v8_load_half(from + i));
    tile.keys[b] = to;
  }
  for (int b = 0; b < count; b++) {
    const uint16_t* from = cache.values + ((int64_t)blocks[first + b] * cache.kv_heads + head) * value_block;
    tile.values[b] = to;
    for (int t = 0; t < AK_BLOCK; t++, from += cache.value_size, to += shape.width) {
      int d = 0;
      for (; d + 8 <= cache.value_size; d += 8) v8_store(to + d, v8_load_half(from + d));
      for (; d < shape.width; d++) to[d] = d < cache.value_size ? half_to_float(from[d]) : 0.0f;
    }
  }
  attend_tile(shape, tile, rows);
}

/* Tokens [begin, end) of a span, of which `begin` begins a tile, for the heads from `head` on, whose rows are `rows`.
 * The records are started anew. Heads take turns within a tile, as they lie side by side in memory. */
static void attend_span(const Shape& shape, const Rows* rows, int heads, const int32_t* blocks, int head, int begin,
                        int end, float* converted) {
  for (int h = 0; h < heads; h++) {
    for (int r = 0; r < rows[h].n; r++) rows[h].best[r] = -INFINITY;
    memset(rows[h].records, 0, sizeof(float) * rows[h].n * shape.record());
  }
  const bool direct = rows->n <= DIRECT_ROWS && shape.width == shape.cache.value_size;
  const int last = (end + AK_BLOCK - 1) / AK_BLOCK;
  for (int start = begin; start < end; start += TILE) {
    if (start + TILE <= shape.lowest(rows->position)) continue;
    const int count = std::min(TILE_BLOCKS, last - start / AK_BLOCK);
    for (int h = 0; h < heads; h++)
      if (direct)
        attend_direct(shape, rows[h], blocks, head + h, start, count, last);
      else
        attend_converted(shape, rows[h], blocks, head + h, start, count, converted);
  }
}

/* Adds what a later span came to. */
static void merge(int n, int record, const float* best, const float* records, float* total_best, float* totals) {
  for (int r = 0; r < n; r++, records += record, totals += record) {
    const float most = total_best[r] > best[r] ? total_best[r] : best[r];
    const float shift = most == -INFINITY ? 0.0f : most;
    const v8f scales = v8_exp_or_zero(v8f{total_best[r] - shift, best[r] - shift});
    const v8f old = v8_set(scales[0]), added = v8_set(scales[1]);
    total_best[r] = most;
    for (int i = 0; i < record; i += 8)
      v8_store(totals + i, v8_fma(v8_load(records + i), added, v8_load(totals + i) * old));
  }
}

/* Divides by the sum of the weights, a sink's included. `heads` are the rows' first head and `out` its output. */
static void finish(const Shape& shape, const Rows& rows, int head, float* out, int64_t out_stride) {
  const int size = shape.cache.value_size;
  for (int r = 0; r < rows.n; r++) {
    const float* record = rows.records + (int64_t)r * shape.record();
    v8f sum = v8_set(v8_sum(v8_load(record + shape.width))), scale = v8_set(1.0f);
    if (shape.attention.sinks) {
      const float sink = shape.attention.sinks[head + r % rows.group], best = rows.best[r];
      const float most = best > sink ? best : sink;
      const v8f scales = v8_exp_or_zero(v8f{best - most, sink - most});
      scale = v8_set(scales[0]);
      sum = v8_fma(sum, scale, v8_set(scales[1]));
    }
    const v8f factor = scale / sum;
    float* to = out + r / rows.group * out_stride + (int64_t)(r % rows.group) * size;
    int d = 0;
    for (; d + 8 <= size; d += 8) v8_store(to + d, v8_load(record + d) * factor);
    if (d < size) {
      const v8f rest = v8_load(record + d) * factor;
      memcpy(to + d, &rest, sizeof(float) * (size - d));
    }
  }
}

/* Some tokens of a segment and one head of keys and values, or several. */
struct AttentionTask {
  int segment;
  int head, heads;       /* the first, and how many */
  int first, tokens;     /* within the segment */
  int span, spans;       /* the first, and how many */
  int64_t partial;       /* where in `partials` what each span comes to is put; -1 to finish at once */
  int64_t head_stride;   /* there, from one head to the next */
};

static int first_span(const Shape& shape, const ak_segment& segment, int first) {
  return shape.lowest(segment.position + first) / SPAN;
}

static int last_span(const ak_segment& segment, int first, int tokens) {
  return (segment.position + first + tokens - 1) / SPAN;
}

/* Heads of keys and values that one task may have. */
constexpr int MAX_HEADS = 8;

/* Cuts the work into tasks: spans of their own where there are few tokens, else some tokens with all their spans.
 * `merges` are what has been cut into spans. Returns the floats of partials. */
static int64_t plan(const Shape& shape, const ak_segment* segments, int num_segments, int threads,
                    std::vector<AttentionTask>& tasks, std::vector<AttentionTask>& merges) {
  const int kv_heads = shape.cache.kv_heads, most = std::max(1, std::min(64, QUERY_ROWS / shape.group));
  int64_t pieces = 0, single_spans = 0, partial = 0;
  for (int s = 0; s < num_segments; s++) {
    pieces += (int64_t)(segments[s].n + most - 1) / most * kv_heads;
    if (segments[s].n == 1) single_spans += segments[s].position / SPAN + 1;
  }
  /* Single tokens read more than they compute: where that leaves enough tasks, all heads of a block are read at once. */
  const int together = single_spans >= 2 * threads ? std::min(kv_heads, MAX_HEADS) : 1;
  tasks.clear();
  merges.clear();
  for (int s = 0; s < num_segments; s++) {
    const ak_segment& segment = segments[s];
    const int parts = (segment.n + most - 1) / most;
    const int step = segment.n == 1 ? together : 1;
    /* The longest first, so that the threads end together. */
    for (int p = parts - 1; p >= 0; p--) {
      const int first = (int)((int64_t)segment.n * p / parts);
      const int tokens = (int)((int64_t)segment.n * (p + 1) / parts) - first;
      const int span = first_span(shape, segment, first), spans = last_span(segment, first, tokens) - span + 1;
      const int64_t size = (int64_t)tokens * shape.group * (shape.record() + 1);
      const bool may_part = spans > 1 && (parts == 1 || pieces < 4 * threads);
      for (int head = 0; head < kv_heads; head += step) {
        const int heads = std::min(step, kv_heads - head);
        AttentionTask task = {s, head, heads, first, tokens, span, spans, -1, spans * size};
        if (!may_part || (tokens > 1 && partial + heads * spans * size > MAX_PARTIALS)) {
          tasks.push_back(task);
          continue;
        }
        task.partial = partial;
        merges.push_back(task);
        for (int i = 0; i < spans; i++)
          tasks.push_back({s, head, heads, first, tokens, span + i, 1, partial + i * size, spans * size});
        partial += heads * spans * size;
      }
    }
  }
  return partial;
}

/* One task, with memory of the thread's own. */
static void run_task(const Shape& shape, const AttentionTask& task, const ak_segment& segment, const float* q,
                     int64_t q_stride, float* partials, Scratch& own, float* out, int64_t out_stride) {
  const ak_cache& cache = shape.cache;
  const int n = task.tokens * shape.group, record = shape.record();
  float* converted = own.at_least((size_t)TILE * (cache.key_size + shape.width) +
                                  (size_t)task.heads * n * (Q_STRIDE + 2 * record + 2) + 64);
  float* queries = converted + (int64_t)TILE * (cache.key_size + shape.width);
  float* records = queries + (int64_t)task.heads * n * Q_STRIDE;
  float* bests = records + (int64_t)2 * task.heads * n * record;

  const v8f scale = v8_set(shape.attention.scale);
  Rows rows[MAX_HEADS], later[MAX_HEADS];
  for (int h = 0; h < task.heads; h++) {
    float* to = queries + (int64_t)h * n * Q_STRIDE;
    rows[h] = {n, shape.group, segment.position + task.first, to, bests + 2 * h * n, records + (int64_t)2 * h * n * record};
    later[h] = rows[h];
    later[h].best += n;
    later[h].records += (int64_t)n * record;
    if (task.partial >= 0) {
      rows[h].records = partials + task.partial + h * task.head_stride;
      rows[h].best = rows[h].records + (int64_t)n * record;
    }
    for (int r = 0; r < n; r++, to += Q_STRIDE) {
      const float* from = q + (segment.row + task.first + r / shape.group) * q_stride +
                          (int64_t)((task.head + h) * shape.group + r % shape.group) * cache.key_size;
      int d = 0;
      for (; d + 8 <= cache.key_size; d += 8) v8_store(to + d, v8_load(from + d) * scale);
      for (; d < cache.key_size; d++) to[d] = from[d] * shape.attention.scale;
    }
  }

  const int known = rows->position + task.tokens;
  const auto attend_one = [&](const Rows* of, int span) {
    attend_span(shape, of, task.heads, segment.blocks, task.head, span * SPAN, std::min((span + 1) * SPAN, known),
                converted);
  };
  attend_one(rows, task.span);
  if (task.partial >= 0) return;
  for (int span = task.span + 1; span < task.span + task.spans; span++) {
    attend_one(later, span);
    for (int h = 0; h < task.heads; h++)
      merge(n, record, later[h].best, later[h].records, rows[h].best, rows[h].records);
  }
  for (int h = 0; h < task.heads; h++) {
    const int head = (task.head + h) * shape.group;
    finish(shape, rows[h], head,
           out + (segment.row + task.first) * out_stride + (int64_t)head * cache.value_size, out_stride);
  }
}

static void attend(Team& team, const ak_cache& cache, const ak_attention& attention, const float* q, int64_t q_stride,
                   const ak_segment* segments, int32_t num_segments, float* out, int64_t out_stride) {
  /* Not the team's scratch memory: the caller may hold that. Regions run one at a time, so one is enough for all. */
  static Scratch shared;
  static float* partials;
  static thread_local std::vector<AttentionTask> tasks, merges;
  static thread_local Scratch own;

  const Shape shape = {cache, attention, attention.heads / cache.kv_heads, (cache.value_size + 7) / 8 * 8};
  const int64_t needed = plan(shape, segments, num_segments, team.size(), tasks, merges);
  if (needed > 0) team.share(1, 1, [&](int64_t, int64_t) { partials = shared.at_least(needed); });

  team.share((int64_t)tasks.size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++)
      run_task(shape, tasks[i], segments[tasks[i].segment], q, q_stride, partials, own, out, out_stride);
  });
  if (needed == 0) return;

  team.share((int64_t)merges.size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const AttentionTask& task = merges[i];
      const ak_segment& segment = segments[task.segment];
      const int n = task.tokens * shape.group, record = shape.record();
      for (int h = 0; h < task.heads; h++) {
        const int head = (task.head + h) * shape.group;
        float* total = partials + task.partial + h * task.head_stride;
        Rows rows = {n, shape.group, 0, nullptr, total + (int64_t)n * record, total};
        for (int span = 1; span < task.spans; span++) {
          const float* later = total + (int64_t)span * n * (record + 1);
          merge(n, record, later + (int64_t)n * record, later, rows.best, rows.records);
        }
        finish(shape, rows, head,
               out + (segment.row + task.first) * out_stride + (int64_t)head * cache.value_size, out_stride);
      }
    }
  });
}

/* --- writing --- */

AK_INLINE v8f storable(v8f x) {
  x = x == x ? x : v8_set(0.0f);
  return v8_min(v8_max(x, v8_set(-65504.0f)), v8_set(65504.0f));
}

/* n floats to half precision; `target` has room for n filled up to a multiple of eight. */
AK_INLINE void to_half(const float* source, int n, uint16_t* target) {
  int d = 0;
  for (; d + 8 <= n; d += 8) v8_store_half(target + d, storable(v8_load(source + d)));
  if (d == n) return;
  v8f rest = v8_set(0.0f);
  memcpy(&rest, source + d, sizeof(float) * (n - d));
  v8_store_half(target + d, storable(rest));
}

static void write_cache(Team& team, const ak_cache& cache, const float* keys, int64_t key_stride, const float* values,
                        int64_t value_stride, const ak_segment* segments, int32_t num_segments) {
  const int64_t key_block = (int64_t)cache.key_size * AK_BLOCK, value_block = (int64_t)cache.value_size * AK_BLOCK;
  int64_t total = 0;
  for (int s = 0; s < num_segments; s++) total += segments[s].n;

  team.share(total, AK_BLOCK, [&](int64_t begin, int64_t end) {
    uint16_t halves[256 + 8];
    int s = 0;
    int64_t before = 0; /* tokens of the segments before s */
    for (int64_t i = begin; i < end; i++) {
      while (i - before >= segments[s].n) before += segments[s++].n;
      const ak_segment& segment = segments[s];
      const int64_t row = segment.row + i - before, position = segment.position + i - before;
      const int64_t block = segment.blocks[position / AK_BLOCK], slot = position % AK_BLOCK;
      for (int head = 0; head < cache.kv_heads; head++) {
        uint16_t* to = cache.keys + (block * cache.kv_heads + head) * key_block + slot;
        to_half(keys + row * key_stride + (int64_t)head * cache.key_size, cache.key_size, halves);
        for (int d = 0; d < cache.key_size; d++) to[d * AK_BLOCK] = halves[d];
        to_half(values + row * value_stride + (int64_t)head * cache.value_size, cache.value_size, halves);
        memcpy(cache.values + (block * cache.kv_heads + head) * value_block + slot * cache.value_size, halves,
               sizeof(uint16_t) * cache.value_size);
      }
    }
  });
}

#endif
