/* Linear layers: y = x W^T + bias.
 *
 * Work is cut into groups of eight outputs, whatever the format. A group's outputs for MT rows of inputs are one vector
 * for each row. The operations that lead to a row's outputs, and their order, do not depend on MT or on who computes
 * them: a row gives the same result alone and among others.
 */

/* Rows of inputs at once: as many sums as the registers hold. */
constexpr int kRows = 4;

/* Rows of inputs: as they are, for plain weights, and quantised, for packed ones. */
struct Inputs {
  const float* x;
  int64_t stride;
  const Input* q; /* [rows][tiles] */
  int64_t tiles;
};

static inline void quantize_tile(const float* x, Input* out) {
  v8f v[4], largest = v8_set(0.0f);
  for (int i = 0; i < 4; i++) {
    v[i] = v8_load(x + 8 * i);
    largest = v8_max(largest, v8_max(v[i], -v[i]));
  }
  float magnitude = v8_largest(largest);
  /* The inverse of less than this may be infinite. */
  float inverse = magnitude > 1e-30f ? 127.0f / magnitude : 0.0f;
  v8i q[4];
  for (int i = 0; i < 4; i++) q[i] = v8_round(v[i] * inverse);
#if defined(__AVX2__)
  __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32((__m256i)q[0], (__m256i)q[1]),
                                      _mm256_packs_epi32((__m256i)q[2], (__m256i)q[3]));
  packed = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256((__m256i*)out->q, packed);
#else
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < 8; k++) out->q[8 * i + k] = (int8_t)q[i][k];
#endif
  for (int h = 0; h < 2; h++) {
    v8i s = q[2 * h] + q[2 * h + 1];
    out->half[h] = s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
  }
  out->d = inverse > 0.0f ? magnitude / 127.0f : 0.0f;
  out->sum = out->d * (float)(out->half[0] + out->half[1]);
}

static inline void quantize_row(const float* x, int64_t tiles, Input* out) {
  for (int64_t t = 0; t < tiles; t++) quantize_tile(x + t * kTile, out + t);
}

/* A single row of inputs is bound by how fast weights come from memory. */
template <int MT>
AK_INLINE void prefetch(const uint8_t* p) {
  if (MT > 1) return;
  __builtin_prefetch(p + 1280);
  __builtin_prefetch(p + 1344);
  __builtin_prefetch(p + 1408);
}

template <int MT>
static __attribute__((noinline)) void group_p4(const uint8_t* w, int64_t tiles, const Input* x, int64_t stride,
                                               v8f* out) {
  v8f sums[MT];
  for (int i = 0; i < MT; i++) sums[i] = v8_set(0.0f);
  for (int64_t t = 0; t < tiles; t++, w += kP4Bytes, x++) {
    prefetch<MT>(w);
    v8f d = v8_load_half((const uint16_t*)w), m = v8_load_half((const uint16_t*)w + 8);
    dots_p4<MT>(w + kP4Scales, x, stride, [&](int i, v8i dot) __attribute__((always_inline)) {
      const Input& in = x[i * stride];
      sums[i] = v8_fma(v8_float(dot), d * in.d, sums[i]);
      sums[i] = v8_fma(m, v8_set(in.sum), sums[i]);
    });
  }
  for (int i = 0; i < MT; i++) out[i] = sums[i];
}

template <int MT>
static __attribute__((noinline)) void group_p6(const uint8_t* w, int64_t tiles, const Input* x, int64_t stride,
                                               v8f* out) {
  v8f sums[MT];
  for (int i = 0; i < MT; i++) sums[i] = v8_set(0.0f);
  for (int64_t t = 0; t < tiles; t++, w += kP6Bytes, x++) {
    prefetch<MT>(w);
    v8f d[2] = {v8_load_half((const uint16_t*)w), v8_load_half((const uint16_t*)w + 8)};
    dots_p6<MT>(w + kP6Scales, x, stride, [&](int i, int h, v8i dot) __attribute__((always_inline)) {
      const Input& in = x[i * stride];
      sums[i] = v8_fma(v8_float(dot - 32 * in.half[h]), d[h] * in.d, sums[i]);
    });
  }
  for (int i = 0; i < MT; i++) out[i] = sums[i];
}

template <int MT>
static __attribute__((noinline)) void group_p8(const uint8_t* w, int64_t tiles, const Input* x, int64_t stride,
                                               v8f* out) {
  v8f sums[MT];
  for (int i = 0; i < MT; i++) sums[i] = v8_set(0.0f);
  for (int64_t t = 0; t < tiles; t++, w += kP8Bytes, x++) {
    prefetch<MT>(w);
    v8f d = v8_load_half((const uint16_t*)w);
    dots_p8<MT>(w + kP8Scales, x, stride, [&](int i, v8i dot) __attribute__((always_inline)) {
      sums[i] = v8_fma(v8_float(dot), d * x[i * stride].d, sums[i]);
    });
  }
  for (int i = 0; i < MT; i++) out[i] = sums[i];
}

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

AK_INLINE v8f load_plain(const float* p) { return v8_load(p); }
AK_INLINE v8f load_plain(const Half* p) { return v8_load_half(&p->bits); }
AK_INLINE v8f load_plain(const BFloat16* p) { return v8_load_bf16(&p->bits); }

/* The last columns of a row, filled up with zeros. */
template <class T>
AK_INLINE v8f load_last(const T* p, int64_t n) {
  T padded[8] = {};
  memcpy(padded, p, (size_t)n * sizeof(T));
  return load_plain(padded);
}

/* Plain rows: each lane sums up every eighth column. */
template <int MT, class T>
static __attribute__((noinline)) void group_plain(const T* w, int64_t rows, int64_t cols, const float* x,
                                                  int64_t stride, v8f* out) {
  for (int64_t r = 0; r < kGroup; r += 2) {
    if (r >= rows) break;
    const T* w0 = w + r * cols;
    const T* w1 = r + 1 < rows ? w0 + cols : w0;
    v8f sums[MT][2];
    for (int i = 0; i < MT; i++) sums[i][0] = sums[i][1] = v8_set(0.0f);
    int64_t k = 0;
    for (; k + 8 <= cols; k += 8) {
      v8f a = load_plain(w0 + k), b = load_plain(w1 + k);
      for (int i = 0; i < MT; i++) {
        v8f v = v8_load(x + i * stride + k);
        sums[i][0] = v8_fma(a, v, sums[i][0]);
        sums[i][1] = v8_fma(b, v, sums[i][1]);
      }
    }
    if (k < cols) {
      v8f a = load_last(w0 + k, cols - k), b = load_last(w1 + k, cols - k);
      for (int i = 0; i < MT; i++) {
        v8f v = load_last(x + i * stride + k, cols - k);
        sums[i][0] = v8_fma(a, v, sums[i][0]);
        sums[i][1] = v8_fma(b, v, sums[i][1]);
      }
    }
    for (int i = 0; i < MT; i++) {
      out[i][r] = v8_sum(sums[i][0]);
      out[i][r + 1] = v8_sum(sums[i][1]);
    }
  }
}

/* Eight floats, or as many as there are. */
AK_INLINE v8f load_some(const float* p, int64_t n) { return n >= 8 ? v8_load(p) : load_last(p, n); }

AK_INLINE void store_some(float* p, v8f v, int64_t n) {
  if (n >= 8)
    v8_store(p, v);
  else
    memcpy(p, &v, (size_t)n * 4);
}

/* The outputs of one group for rows `row` to `row` + MT - 1 of the inputs. */
template <int MT>
static inline void group_rows(const ak_weight& w, int64_t group, const Inputs& in, int64_t row, v8f* out) {
  const Input* q = in.q + row * in.tiles;
  const float* x = in.x + row * in.stride;
  int64_t first = group * kGroup, rows = w.rows - first;
  switch (w.format) {
    case AK_P4:
      group_p4<MT>(group_data(w, group), in.tiles, q, in.tiles, out);
      break;
    case AK_P6:
      group_p6<MT>(group_data(w, group), in.tiles, q, in.tiles, out);
      break;
    case AK_P8:
      group_p8<MT>(group_data(w, group), in.tiles, q, in.tiles, out);
      break;
    case AK_F32:
      group_plain<MT>((const float*)w.data + first * w.cols, rows, w.cols, x, in.stride, out);
      break;
    case AK_F16:
      group_plain<MT>((const Half*)w.data + first * w.cols, rows, w.cols, x, in.stride, out);
      break;
    case AK_BF16:
      group_plain<MT>((const BFloat16*)w.data + first * w.cols, rows, w.cols, x, in.stride, out);
      break;
  }
  if (w.bias != nullptr) {
    v8f bias = load_some(w.bias + first, rows);
    for (int i = 0; i < MT; i++) out[i] += bias;
  }
}

/* Calls out(row, v) with the outputs v of one group for each row of [begin, end). */
template <class Out>
static inline void for_rows(const ak_weight& w, int64_t group, const Inputs& in, int64_t begin, int64_t end,
                            const Out& out) {
  v8f v[kRows];
  int64_t row = begin;
  for (; row + kRows <= end; row += kRows) {
    group_rows<kRows>(w, group, in, row, v);
    for (int i = 0; i < kRows; i++) out(row + i, v[i]);
  }
  int left = (int)(end - row);
  if (left == 3)
    group_rows<3>(w, group, in, row, v);
  else if (left == 2)
    group_rows<2>(w, group, in, row, v);
  else if (left == 1)
    group_rows<1>(w, group, in, row, v);
  for (int i = 0; i < left; i++) out(row + i, v[i]);
}

static inline int64_t num_groups(const ak_weight& w) { return (w.rows + kGroup - 1) / kGroup; }

/* Rows of inputs that stay in the cache while the weights pass by: 128 KiB of them. */
static inline int64_t rows_in_cache(const ak_weight& w) {
  int64_t bytes = is_packed(w.format) ? w.cols / kTile * (int64_t)sizeof(Input) : w.cols * 4;
  int64_t rows = 131072 / bytes / kRows * kRows;
  return rows < kRows ? kRows : rows;
}

/* Bytes of one value. */
static inline double value_bytes(const ak_weight& w) {
  if (is_packed(w.format)) return (double)tile_bytes(w.format) / (kGroup * kTile);
  return w.format == AK_F32 ? 4 : 2;
}

/* How many of n pieces of work to take at once, where each is `rows` rows of `w` times m rows of inputs. To take one
 * costs as much as to read a few kilobytes, as the threads' cores have to agree on it; so little work is cut into few
 * pieces, and much work into more, so that nobody waits long for the last one. */
static inline int64_t grain(const ak_weight& w, int64_t n, int64_t rows, int64_t m, const Team& team) {
  if (team.size() == 1) return n;
  double work = value_bytes(w) * (double)(n * rows * w.cols) * (m < 4 ? 1.0 : (double)m / 4);
  double least = team.size(), most = 6 * team.size(), pieces = work / 131072;
  pieces = pieces < least ? least : pieces > most ? most : pieces;
  int64_t taken = (int64_t)((double)n / pieces + 0.999);
  return taken < 1 ? 1 : taken;
}

/* Calls out(row, group, v) for all m rows and the groups of [begin, end). */
template <class Out>
static inline void for_groups(const ak_weight& w, int64_t begin, int64_t end, const Inputs& in, int64_t m,
                              const Out& out) {
  int64_t step = rows_in_cache(w);
  for (int64_t row = 0; row < m; row += step)
    for (int64_t group = begin; group < end; group++)
      for_rows(w, group, in, row, row + step < m ? row + step : m,
               [&](int64_t i, v8f v) { out(i, group, v); });
}

/* So few rows are made ready by each thread for itself: that is quicker than to wait for one another. */
constexpr int64_t kFewRows = 4;

static void linear(Team& team, const ak_weight& w, const float* x, int64_t m, float* y) {
  Inputs in{x, w.cols, nullptr, w.cols / kTile};
  if (is_packed(w.format)) {
    size_t bytes = (size_t)(m * in.tiles) * sizeof(Input);
    if (m <= kFewRows) {
      Input* q = (Input*)team.own_scratch(bytes);
      for (int64_t i = 0; i < m; i++) quantize_row(x + i * w.cols, in.tiles, q + i * in.tiles);
      in.q = q;
    } else {
      Input* q = (Input*)team.shared_scratch(bytes);
      team.share(m, 16, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) quantize_row(x + i * w.cols, in.tiles, q + i * in.tiles);
      });
      in.q = q;
    }
  }
  team.share(num_groups(w), grain(w, num_groups(w), kGroup, m, team), [&](int64_t begin, int64_t end) {
    for_groups(w, begin, end, in, m, [&](int64_t i, int64_t group, v8f v) {
      store_some(y + i * w.rows + group * kGroup, v, w.rows - group * kGroup);
    });
  });
}
