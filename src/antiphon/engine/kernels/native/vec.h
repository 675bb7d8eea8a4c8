/* Vectors of floats, in GCC's and clang's vector extension: one source for every instruction set.
 *
 * What the extension cannot say well (fused multiply-add, half precision, rounding to integers) is written here once for
 * each set. The file is compiled several times with different options, so everything in it is static.
 */
#ifndef ANTIPHON_VEC_H
#define ANTIPHON_VEC_H

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define AK_INLINE static inline __attribute__((always_inline))

typedef float v8f __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t v8i __attribute__((vector_size(32), aligned(4), may_alias));

/* The types may alias anything and lie anywhere; memcpy would go through the stack. */
AK_INLINE v8f v8_load(const float* p) { return *(const v8f*)p; }

AK_INLINE void v8_store(float* p, v8f v) { *(v8f*)p = v; }

AK_INLINE v8f v8_set(float x) { return v8f{x, x, x, x, x, x, x, x}; }

/* a * b + c. Fused wherever the set has it, so that the same values give the same result wherever it is used. */
AK_INLINE v8f v8_fma(v8f a, v8f b, v8f c) {
#if defined(__FMA__)
  return (v8f)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
  float32x4_t r[2], x[2], y[2];
  memcpy(r, &c, 32);
  memcpy(x, &a, 32);
  memcpy(y, &b, 32);
  r[0] = vfmaq_f32(r[0], x[0], y[0]);
  r[1] = vfmaq_f32(r[1], x[1], y[1]);
  v8f v;
  memcpy(&v, r, 32);
  return v;
#else
  return a * b + c;
#endif
}

AK_INLINE v8f v8_max(v8f a, v8f b) {
#if defined(__AVX__)
  return (v8f)_mm256_max_ps((__m256)a, (__m256)b);
#else
  return a > b ? a : b;
#endif
}

AK_INLINE v8f v8_min(v8f a, v8f b) {
#if defined(__AVX__)
  return (v8f)_mm256_min_ps((__m256)a, (__m256)b);
#else
  return a < b ? a : b;
#endif
}

/* In a fixed order: halves, quarters, pairs. */
AK_INLINE float v8_sum(v8f v) {
  float a = v[0] + v[4], b = v[1] + v[5], c = v[2] + v[6], d = v[3] + v[7];
  return (a + c) + (b + d);
}

AK_INLINE float v8_largest(v8f v) {
  float a = v[0] > v[4] ? v[0] : v[4], b = v[1] > v[5] ? v[1] : v[5];
  float c = v[2] > v[6] ? v[2] : v[6], d = v[3] > v[7] ? v[3] : v[7];
  a = a > c ? a : c;
  b = b > d ? b : d;
  return a > b ? a : b;
}

/* To the nearest integer, as integers; ties to even. |v| below 2^22. */
AK_INLINE v8i v8_round(v8f v) {
#if defined(__AVX__)
  return (v8i)_mm256_cvtps_epi32((__m256)v);
#else
  const v8f magic = v8_set(12582912.0f); /* 1.5 * 2^23: adding it leaves the integer in the low bits */
  return (v8i)(v + magic) - 0x4B400000;
#endif
}

AK_INLINE v8f v8_float(v8i v) {
#if defined(__AVX__)
  return (v8f)_mm256_cvtepi32_ps((__m256i)v);
#else
  return __builtin_convertvector(v, v8f);
#endif
}

/* e^x to about 2e-7 of its value, for x clamped to [-87, 88]: 2^n times a polynomial over [-ln2/2, ln2/2] (Cephes). */
AK_INLINE v8f v8_exp(v8f x) {
  x = v8_min(v8_max(x, v8_set(-87.0f)), v8_set(88.0f));
  v8i n = v8_round(x * 1.44269504088896341f);
  v8f f = v8_float(n);
  v8f r = v8_fma(f, v8_set(-0.693359375f), x);
  r = v8_fma(f, v8_set(2.12194440e-4f), r);
  v8f p = v8_set(1.9875691500e-4f);
  p = v8_fma(p, r, v8_set(1.3981999507e-3f));
  p = v8_fma(p, r, v8_set(8.3334519073e-3f));
  p = v8_fma(p, r, v8_set(4.1665795894e-2f));
  p = v8_fma(p, r, v8_set(1.6666665459e-1f));
  p = v8_fma(p, r, v8_set(5.0000001201e-1f));
  p = v8_fma(p, r * r, r + 1.0f);
  return p * (v8f)((n + 127) << 23);
}

/* e^x, exactly 0 below -87, for -infinity and for what is not a number. */
AK_INLINE v8f v8_exp_or_zero(v8f x) {
  v8f e = v8_exp(x);
  return x > -87.0f ? e : v8_set(0.0f);
}

/* --- half precision --- */

AK_INLINE float half_to_float(uint16_t h) {
#if defined(__F16C__)
  return _cvtsh_ss(h);
#elif defined(__aarch64__)
  __fp16 x;
  memcpy(&x, &h, 2);
  return x;
#else
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 1023, bits;
  if (exponent == 0) {
    float tiny = (float)fraction * 5.9604644775390625e-8f; /* 2^-24 */
    return sign ? -tiny : tiny;
  }
  bits = exponent == 31 ? sign | 0x7F800000u | fraction << 13 : sign | (exponent + 112) << 23 | fraction << 13;
  float x;
  memcpy(&x, &bits, 4);
  return x;
#endif
}

/* Rounds to nearest, ties to even. What is too large becomes infinite. */
AK_INLINE uint16_t float_to_half(float x) {
#if defined(__F16C__)
  return (uint16_t)_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__aarch64__)
  __fp16 half = (__fp16)x;
  uint16_t h;
  memcpy(&h, &half, 2);
  return h;
#else
  uint32_t bits;
  memcpy(&bits, &x, 4);
  uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return (uint16_t)(sign | 0x7E00);
  if (magnitude >= 0x477FF000) return (uint16_t)(sign | 0x7C00);
  if (magnitude < 0x38800000) { /* subnormal: let the addition round */
    float tiny;
    memcpy(&tiny, &magnitude, 4);
    tiny += 0.5f;
    uint32_t rounded;
    memcpy(&rounded, &tiny, 4);
    return (uint16_t)(sign | (rounded - 0x3F000000));
  }
  uint32_t odd = magnitude >> 13 & 1;
  return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xFFF + odd) >> 13));
#endif
}

AK_INLINE v8f v8_load_half(const uint16_t* p) {
#if defined(__F16C__)
  return (v8f)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
#elif defined(__aarch64__)
  float32x4_t r[2];
  uint16x8_t h = vld1q_u16(p);
  r[0] = vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(h)));
  r[1] = vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(h)));
  v8f v;
  memcpy(&v, r, 32);
  return v;
#else
  v8f v;
  for (int i = 0; i < 8; i++) v[i] = half_to_float(p[i]);
  return v;
#endif
}

AK_INLINE void v8_store_half(uint16_t* p, v8f v) {
#if defined(__F16C__)
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
#else
  for (int i = 0; i < 8; i++) p[i] = float_to_half(v[i]);
#endif
}

/* --- bfloat16 --- */

AK_INLINE float bf16_to_float(uint16_t b) {
  uint32_t bits = (uint32_t)b << 16;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

AK_INLINE v8f v8_load_bf16(const uint16_t* p) {
#if defined(__AVX2__)
  return (v8f)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16);
#else
  v8f v;
  for (int i = 0; i < 8; i++) v[i] = bf16_to_float(p[i]);
  return v;
#endif
}

#endif
