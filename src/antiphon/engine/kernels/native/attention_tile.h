/* Attention of some rows over one tile of keys and values: scores, weights, and outputs added up. See attention.h. */
#ifndef ANTIPHON_ATTENTION_TILE_H
#define ANTIPHON_ATTENTION_TILE_H

constexpr int TILE = 64;
constexpr int TILE_BLOCKS = TILE / AK_BLOCK;
/* Rows of a register tile: with two vectors of keys or outputs they leave four of AVX2's sixteen registers. */
constexpr int MAX_ROWS = 6;
/* Floats between two rows of queries. A constant keeps addresses simple; the odd 16 spread rows over the L1 cache. */
constexpr int Q_STRIDE = 256 + 16;

AK_INLINE v8f load8(const float* p) { return v8_load(p); }
AK_INLINE v8f load8(const uint16_t* p) { return v8_load_half(p); }

/* Two blocks that will be read later. They are asked for a line at a time, in between other work: the core can wait for
 * few lines at once, and would stand still with more. */
struct Ahead {
  const uint16_t *keys, *values; /* null for none */
  void fetch(int step) const {
    if (keys != nullptr) __builtin_prefetch((step % 2 ? values : keys) + step / 2 * 32, 0, 2);
  }
};

/* c[R][8 W] = c * scale[R] + a[R][n] b[n][8 W], or without the first term where `scale` is null. */
template <int R, int W, int A_STRIDE, class T>
static void multiply(const float* a, const T* b, int64_t b_stride, int n, const float* scale, float* c,
                     int64_t c_stride, const Ahead& ahead = {nullptr, nullptr}) {
  v8f sum[R][W];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int w = 0; w < W; w++)
      sum[r][w] = scale ? v8_load(c + r * c_stride + 8 * w) * v8_set(scale[r]) : v8_set(0.0f);
  for (int k = 0; k < n; k++) {
    if (sizeof(T) == 2 && W == 2) ahead.fetch(k);
    v8f row[W];
#pragma GCC unroll 4
    for (int w = 0; w < W; w++) row[w] = load8(b + k * b_stride + 8 * w);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
      v8f x = v8_set(a[r * A_STRIDE + k]);
#pragma GCC unroll 4
      for (int w = 0; w < W; w++) sum[r][w] = v8_fma(x, row[w], sum[r][w]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int w = 0; w < W; w++) v8_store(c + r * c_stride + 8 * w, sum[r][w]);
}

/* The keys and values of a tile: those of each block, converted or as they lie in the cache. */
template <class T>
struct Tile {
  const T* keys[TILE_BLOCKS];   /* [key_size][AK_BLOCK] */
  const T* values[TILE_BLOCKS]; /* [AK_BLOCK][value_stride] */
  Ahead ahead[TILE_BLOCKS];     /* what to fetch meanwhile */
  int64_t value_stride;
  int start;    /* the position of its first key */
  int blocks;   /* at least one */
};

/* Rows that are worked on together: queries of consecutive tokens, token by token. */
struct Rows {
  int n;
  int group;    /* rows of a token */
  int position; /* of the first token */
  const float* q; /* [n][Q_STRIDE], scaled */
  float* best;    /* [n]: the largest score so far */
  float* records; /* [n][width + 8] */
};

/* What does not change during a call. */
struct Shape {
  const ak_cache& cache;
  const ak_attention& attention;
  int group;
  int width; /* value_size, filled up */
  int record() const { return width + 8; }
  int lowest(int position) const {
    return attention.window > 0 && position >= attention.window ? position - attention.window + 1 : 0;
  }
};

AK_INLINE v8f capped(v8f score, float cap) {
  v8f e = v8_exp(score * v8_set(2.0f / cap));
  return v8_set(cap) - v8_set(2.0f * cap) / (e + 1.0f);
}

/* Scores [n][TILE] to weights. Adds their sums to the records' and sets what the outputs are to be scaled by. */
static void weigh(const Shape& shape, const Rows& rows, int first, int n, int start, int vectors, bool masked,
                  float* scores, float* scale) {
  const v8i lanes = {0, 1, 2, 3, 4, 5, 6, 7};
  const v8f minus_infinity = v8_set(-INFINITY);
  float change[8] = {0}, shift[MAX_ROWS];
  for (int r = 0; r < n; r++) {
    float* row = scores + r * TILE;
    if (shape.attention.softcap > 0)
      for (int v = 0; v < vectors; v++) v8_store(row + 8 * v, capped(v8_load(row + 8 * v), shape.attention.softcap));
    if (masked) {
      int position = rows.position + (first + r) / rows.group, lowest = shape.lowest(position);
      for (int v = 0; v < vectors; v++) {
        v8i key = lanes + (start + 8 * v);
        v8_store(row + 8 * v, (key <= position) & (key >= lowest) ? v8_load(row + 8 * v) : minus_infinity);
      }
    }
    v8f most = v8_load(row);
    for (int v = 1; v < vectors; v++) most = v8_max(most, v8_load(row + 8 * v));
    float old = rows.best[first + r], best = v8_largest(most);
    best = best > old ? best : old;
    rows.best[first + r] = best;
    shift[r] = best == -INFINITY ? 0.0f : best;
    change[r] = old - shift[r];
  }
  v8_store(scale, v8_exp_or_zero(v8_load(change)));
  for (int r = 0; r < n; r++) {
    float* row = scores + r * TILE;
    float* sums = rows.records + (first + r) * shape.record() + shape.width;
    v8f sum = v8_load(sums) * v8_set(scale[r]), most = v8_set(shift[r]);
    for (int v = 0; v < vectors; v++) {
      v8f weight = v8_exp_or_zero(v8_load(row + 8 * v) - most);
      v8_store(row + 8 * v, weight);
      sum = sum + weight;
    }
    v8_store(sums, sum);
  }
}

/* One tile for R rows. */
template <int R, class T>
static void attend_rows(const Shape& shape, const Tile<T>& tile, const Rows& rows, int first, bool masked) {
  alignas(64) float scores[R * TILE];
  alignas(64) float scale[8];
  const float* q = rows.q + (int64_t)first * Q_STRIDE;
  int block = 0;
  do {
    multiply<R, 2, Q_STRIDE>(q, tile.keys[block], AK_BLOCK, shape.cache.key_size, nullptr, scores + block * AK_BLOCK,
                             TILE, tile.ahead[block]);
  } while (++block < tile.blocks);
  weigh(shape, rows, first, R, tile.start, 2 * tile.blocks, masked, scores, scale);

  const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  float* out = rows.records + (int64_t)first * shape.record();
  /* Converted values follow one another; those of the cache go block by block. */
  const bool joined = sizeof(T) == sizeof(float);
  const int steps = joined ? 1 : tile.blocks, n = joined ? AK_BLOCK * tile.blocks : AK_BLOCK;
  for (int b = 0; b < steps; b++) {
    const float* weights = scores + b * AK_BLOCK;
    const float* by = b ? ones : scale;
    int d = 0;
    /* Few rows leave registers for longer ones, and need them to have enough chains going. */
    constexpr int LONG = R <= 3 ? 4 : 2;
    for (; d + 8 * LONG <= shape.width; d += 8 * LONG)
      multiply<R, LONG, TILE>(weights, tile.values[b] + d, tile.value_stride, n, by, out + d, shape.record());
    for (; d < shape.width; d += 8)
      multiply<R, 1, TILE>(weights, tile.values[b] + d, tile.value_stride, n, by, out + d, shape.record());
  }
}

template <class T>
static void attend_tile(const Shape& shape, const Tile<T>& tile, const Rows& rows) {
  const int end = tile.start + AK_BLOCK * tile.blocks;
  const int last = rows.position + (rows.n - 1) / rows.group;
  const bool masked = end > rows.position + 1 || shape.lowest(last) > tile.start;
  const int pieces = (rows.n + MAX_ROWS - 1) / MAX_ROWS;
  for (int p = 0; p < pieces; p++) {
    const int first = rows.n * p / pieces;
    switch (rows.n * (p + 1) / pieces - first) {
      case 1: attend_rows<1>(shape, tile, rows, first, masked); break;
      case 2: attend_rows<2>(shape, tile, rows, first, masked); break;
      case 3: attend_rows<3>(shape, tile, rows, first, masked); break;
      case 4: attend_rows<4>(shape, tile, rows, first, masked); break;
      case 5: attend_rows<5>(shape, tile, rows, first, masked); break;
      default: attend_rows<6>(shape, tile, rows, first, masked); break;
    }
  }
}

#endif
