/* Dot products of a tile's eight rows with rows of quantised inputs, in whole numbers.
 *
 * They are exact, so the instruction sets may take them in whatever order they like: all give the same. Each function
 * calls f(i, sums) for each of MT rows of inputs, `sums` being the eight rows' dot products over the tile's columns.
 */

/* 32 columns of a row of inputs: value = d * q. */
struct Input {
  int8_t q[32];
  float d;
  float sum;       /* of the values: d * (half[0] + half[1]) */
  int32_t half[2]; /* sums of the first and the last 16 q */
};

#if defined(__AVX2__)

AK_INLINE __m256i load_register(const uint8_t* p) { return _mm256_loadu_si256((const __m256i*)p); }

/* Columns 4j to 4j + 3 of the inputs, for all eight rows. */
AK_INLINE __m256i quad(const Input& x, int j) {
  int32_t four;
  memcpy(&four, x.q + 4 * j, 4);
  return _mm256_set1_epi32(four);
}

#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
#define AK_DPBUSD 1
#endif

/* Unsigned w[0..7], at most 15, times x. */
AK_INLINE v8i dot_small(const __m256i* w, const Input& x) {
#if defined(AK_DPBUSD)
  __m256i a = _mm256_setzero_si256(), b = a;
  for (int j = 0; j < 8; j += 2) {
    a = _mm256_dpbusd_epi32(a, w[j], quad(x, j));
    b = _mm256_dpbusd_epi32(b, w[j + 1], quad(x, j + 1));
  }
  return (v8i)_mm256_add_epi32(a, b);
#else
  /* 8 products of pairs: at most 8 * 2 * 15 * 127 = 30480, which 16 bits hold. */
  __m256i a = _mm256_maddubs_epi16(w[0], quad(x, 0)), b = _mm256_maddubs_epi16(w[1], quad(x, 1));
  for (int j = 2; j < 8; j += 2) {
    a = _mm256_add_epi16(a, _mm256_maddubs_epi16(w[j], quad(x, j)));
    b = _mm256_add_epi16(b, _mm256_maddubs_epi16(w[j + 1], quad(x, j + 1)));
  }
  return (v8i)_mm256_madd_epi16(_mm256_add_epi16(a, b), _mm256_set1_epi16(1));
#endif
}

template <int MT, class F>
AK_INLINE void dots_p4(const uint8_t* nibbles, const Input* x, int64_t stride, const F& f) {
  const __m256i low = _mm256_set1_epi8(15);
  __m256i w[8];
  for (int j = 0; j < 4; j++) {
    __m256i r = load_register(nibbles + j * kRegister);
    w[2 * j] = _mm256_and_si256(r, low);
    w[2 * j + 1] = _mm256_and_si256(_mm256_srli_epi16(r, 4), low);
  }
#pragma GCC unroll 16
  for (int i = 0; i < MT; i++) f(i, dot_small(w, x[i * stride]));
}

template <int MT, class F>
AK_INLINE void dots_p6(const uint8_t* registers, const Input* x, int64_t stride, const F& f) {
  const __m256i low = _mm256_set1_epi8(15), high = _mm256_set1_epi8(0x30);
  for (int h = 0; h < 2; h++) {
    __m256i r0 = load_register(registers + 2 * h * kRegister), r1 = load_register(registers + (2 * h + 1) * kRegister);
    __m256i bits = load_register(registers + (4 + h) * kRegister);
    __m256i w[4] = {
        _mm256_or_si256(_mm256_and_si256(r0, low), _mm256_and_si256(_mm256_slli_epi16(bits, 4), high)),
        _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(r0, 4), low),
                        _mm256_and_si256(_mm256_slli_epi16(bits, 2), high)),
        _mm256_or_si256(_mm256_and_si256(r1, low), _mm256_and_si256(bits, high)),
        _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(r1, 4), low),
                        _mm256_and_si256(_mm256_srli_epi16(bits, 2), high)),
    };
#pragma GCC unroll 16
    for (int i = 0; i < MT; i++) {
      const Input& in = x[i * stride];
#if defined(AK_DPBUSD)
      __m256i sum = _mm256_setzero_si256();
      for (int j = 0; j < 4; j++) sum = _mm256_dpbusd_epi32(sum, w[j], quad(in, 4 * h + j));
#else
      /* 4 products of pairs: at most 4 * 63 * 127 = 32004. */
      __m256i a = _mm256_add_epi16(_mm256_maddubs_epi16(w[0], quad(in, 4 * h)),
                                   _mm256_maddubs_epi16(w[1], quad(in, 4 * h + 1)));
      __m256i b = _mm256_add_epi16(_mm256_maddubs_epi16(w[2], quad(in, 4 * h + 2)),
                                   _mm256_maddubs_epi16(w[3], quad(in, 4 * h + 3)));
      const __m256i one = _mm256_set1_epi16(1);
      __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(a, one), _mm256_madd_epi16(b, one));
#endif
      f(i, h, (v8i)sum);
    }
  }
}

template <int MT, class F>
AK_INLINE void dots_p8(const uint8_t* registers, const Input* x, int64_t stride, const F& f) {
  __m256i sums[MT];
  for (int i = 0; i < MT; i++) sums[i] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int j = 0; j < 8; j++) {
    __m256i w = load_register(registers + j * kRegister);
#if defined(AK_DPBUSD)
    w = _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80)); /* w + 128, without its sign */
    for (int i = 0; i < MT; i++) sums[i] = _mm256_dpbusd_epi32(sums[i], w, quad(x[i * stride], j));
#else
    __m256i magnitude = _mm256_abs_epi8(w);
#pragma GCC unroll 16
    for (int i = 0; i < MT; i++) {
      __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(quad(x[i * stride], j), w));
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
#endif
  }
#pragma GCC unroll 16
  for (int i = 0; i < MT; i++) {
#if defined(AK_DPBUSD)
    const Input& in = x[i * stride];
    sums[i] = _mm256_sub_epi32(sums[i], _mm256_set1_epi32(128 * (in.half[0] + in.half[1])));
#endif
    f(i, (v8i)sums[i]);
  }
}

#elif defined(__ARM_FEATURE_DOTPROD)

/* Two vectors make a register: rows 0 to 3 and rows 4 to 7. */
struct Pair {
  int8x16_t a, b;
};

AK_INLINE Pair load_register(const uint8_t* p) {
  return {vld1q_s8((const int8_t*)p), vld1q_s8((const int8_t*)p + 16)};
}

AK_INLINE Pair low_bits(Pair r) {
  const int8x16_t mask = vdupq_n_s8(15);
  return {vandq_s8(r.a, mask), vandq_s8(r.b, mask)};
}

AK_INLINE int8x16_t shift_right(int8x16_t v, int bits) {
  return vreinterpretq_s8_u8(vshlq_u8(vreinterpretq_u8_s8(v), vdupq_n_s8((int8_t)-bits)));
}

AK_INLINE Pair high_bits(Pair r) { return {shift_right(r.a, 4), shift_right(r.b, 4)}; }

struct Sums {
  int32x4_t a = vdupq_n_s32(0), b = vdupq_n_s32(0);

  /* Columns 4j to 4j + 3. */
  inline __attribute__((always_inline)) void add(Pair w, const Input& x, int j) {
    int32_t four;
    memcpy(&four, x.q + 4 * j, 4);
    int8x16_t in = vreinterpretq_s8_s32(vdupq_n_s32(four));
    a = vdotq_s32(a, w.a, in);
    b = vdotq_s32(b, w.b, in);
  }

  inline __attribute__((always_inline)) v8i get() const {
    v8i v;
    memcpy(&v, &a, 16);
    memcpy((char*)&v + 16, &b, 16);
    return v;
  }
};

template <int MT, class F>
AK_INLINE void dots_p4(const uint8_t* nibbles, const Input* x, int64_t stride, const F& f) {
  Pair w[8];
  for (int j = 0; j < 4; j++) {
    Pair r = load_register(nibbles + j * kRegister);
    w[2 * j] = low_bits(r);
    w[2 * j + 1] = high_bits(r);
  }
#pragma GCC unroll 16
  for (int i = 0; i < MT; i++) {
    Sums sums;
    for (int j = 0; j < 8; j++) sums.add(w[j], x[i * stride], j);
    f(i, sums.get());
  }
}

template <int MT, class F>
AK_INLINE void dots_p6(const uint8_t* registers, const Input* x, int64_t stride, const F& f) {
  for (int h = 0; h < 2; h++) {
    Pair bits = load_register(registers + (4 + h) * kRegister), w[4];
    for (int k = 0; k < 4; k++) {
      Pair r = load_register(registers + (2 * h + k / 2) * kRegister), low = k % 2 ? high_bits(r) : low_bits(r);
      const int8x16_t two = vdupq_n_s8(3);
      w[k].a = vorrq_s8(low.a, vshlq_n_s8(vandq_s8(shift_right(bits.a, 2 * k), two), 4));
      w[k].b = vorrq_s8(low.b, vshlq_n_s8(vandq_s8(shift_right(bits.b, 2 * k), two), 4));
    }
#pragma GCC unroll 16
    for (int i = 0; i < MT; i++) {
      Sums sums;
      for (int k = 0; k < 4; k++) sums.add(w[k], x[i * stride], 4 * h + k);
      f(i, h, sums.get());
    }
  }
}

template <int MT, class F>
AK_INLINE void dots_p8(const uint8_t* registers, const Input* x, int64_t stride, const F& f) {
  Sums sums[MT];
  for (int j = 0; j < 8; j++) {
    Pair w = load_register(registers + j * kRegister);
#pragma GCC unroll 16
    for (int i = 0; i < MT; i++) sums[i].add(w, x[i * stride], j);
  }
#pragma GCC unroll 16
  for (int i = 0; i < MT; i++) f(i, sums[i].get());
}

#else

/* Columns 4j to 4j + 3 of eight rows. */
AK_INLINE void add_quad(const int8_t* w, const Input& x, int j, int32_t* sums) {
  const int8_t* q = x.q + 4 * j;
  for (int r = 0; r < 8; r++)
    sums[r] += w[4 * r] * q[0] + w[4 * r + 1] * q[1] + w[4 * r + 2] * q[2] + w[4 * r + 3] * q[3];
}

AK_INLINE v8i to_vector(const int32_t* sums) {
  v8i v;
  memcpy(&v, sums, 32);
  return v;
}

AK_INLINE void unpack_nibbles(const uint8_t* nibbles, int8_t (*w)[32]) {
  for (int j = 0; j < 4; j++)
    for (int i = 0; i < 32; i++) {
      w[2 * j][i] = (int8_t)(nibbles[j * kRegister + i] & 15);
      w[2 * j + 1][i] = (int8_t)(nibbles[j * kRegister + i] >> 4);
    }
}

template <int MT, class F>
static inline void dots_p4(const uint8_t* nibbles, const Input* x, int64_t stride, const F& f) {
  int8_t w[8][32];
  unpack_nibbles(nibbles, w);
  for (int i = 0; i < MT; i++) {
    int32_t sums[8] = {0};
    for (int j = 0; j < 8; j++) add_quad(w[j], x[i * stride], j, sums);
    f(i, to_vector(sums));
  }
}

template <int MT, class F>
static inline void dots_p6(const uint8_t* registers, const Input* x, int64_t stride, const F& f) {
  int8_t w[8][32];
  unpack_nibbles(registers, w);
  for (int k = 0; k < 8; k++)
    for (int i = 0; i < 32; i++)
      w[k][i] = (int8_t)(w[k][i] | (registers[(4 + k / 4) * kRegister + i] >> 2 * (k % 4) & 3) << 4);
  for (int h = 0; h < 2; h++)
    for (int i = 0; i < MT; i++) {
      int32_t sums[8] = {0};
      for (int k = 4 * h; k < 4 * h + 4; k++) add_quad(w[k], x[i * stride], k, sums);
      f(i, h, to_vector(sums));
    }
}

template <int MT, class F>
static inline void dots_p8(const uint8_t* registers, const Input* x, int64_t stride, const F& f) {
  for (int i = 0; i < MT; i++) {
    int32_t sums[8] = {0};
    for (int j = 0; j < 8; j++) add_quad((const int8_t*)registers + j * kRegister, x[i * stride], j, sums);
    f(i, to_vector(sums));
  }
}

#endif
