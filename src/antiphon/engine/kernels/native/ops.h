/* What lies between the linear layers: embeddings, norms, rotations, gates. */

static inline void rms_norm_row(const float* x, const float* weight, int64_t n, float eps, float* y) {
  v8f squares = v8_set(0.0f);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    v8f v = v8_load(x + i);
    squares = v8_fma(v, v, squares);
  }
  if (i < n) {
    v8f v = load_last(x + i, n - i);
    squares = v8_fma(v, v, squares);
  }
  float scale = 1.0f / sqrtf(v8_sum(squares) / (float)n + eps);
  for (i = 0; i < n; i += 8) store_some(y + i, load_some(x + i, n - i) * scale * load_some(weight + i, n - i), n - i);
}

static void rms_norm(Team& team, const float* x, const float* weight, int64_t m, int64_t n, float eps, float* y) {
  team.share(m, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) rms_norm_row(x + i * n, weight, n, eps, y + i * n);
  });
}

/* Sines and cosines of a position, in single precision as the models were trained with: [half] each. */
static inline void rope_angles(int32_t position, int64_t half, const float* inv_freq, float scale, float* cosines,
                               float* sines) {
  for (int64_t i = 0; i < half; i++) {
    float angle = (float)position * inv_freq[i];
    cosines[i] = cosf(angle) * scale;
    sines[i] = sinf(angle) * scale;
  }
}

static inline void rope_head(float* x, int64_t half, const float* cosines, const float* sines) {
  for (int64_t i = 0; i < half; i += 8) {
    int64_t n = half - i;
    v8f a = load_some(x + i, n), b = load_some(x + half + i, n);
    v8f c = load_some(cosines + i, n), s = load_some(sines + i, n);
    store_some(x + i, v8_fma(a, c, -(b * s)), n);
    store_some(x + half + i, v8_fma(b, c, a * s), n);
  }
}

static void rope(Team& team, float* x, const int32_t* positions, int64_t m, int64_t heads, int64_t stride,
                 int64_t rotary, const float* inv_freq, float scale) {
  int64_t half = rotary / 2;
  float* cosines = (float*)team.own_scratch((size_t)rotary * 4);
  team.share(m, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      rope_angles(positions[i], half, inv_freq, scale, cosines, cosines + half);
      for (int64_t h = 0; h < heads; h++) rope_head(x + (i * heads + h) * stride, half, cosines, cosines + half);
    }
  });
}

/* act(gate) * up. The tanh of GELU is a logistic function: (1 + tanh(z)) / 2 = 1 / (1 + e^-2z). */
AK_INLINE v8f apply_gate(v8f gate, v8f up, int activation) {
  v8f z = gate;
  if (activation == 1) z = 1.5957691216f * (gate + 0.044715f * gate * gate * gate);
  return gate / (1.0f + v8_exp(-z)) * up;
}

static void gated(Team& team, const float* x, int64_t m, int64_t n, int activation, float* y) {
  team.share(m, 8, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
      const float* g = x + row * 2 * n;
      for (int64_t i = 0; i < n; i += 8)
        store_some(y + row * n + i, apply_gate(load_some(g + i, n - i), load_some(g + n + i, n - i), activation),
                   n - i);
    }
  });
}

static void embed(Team& team, const ak_weight& table, const int32_t* tokens, int64_t n, float* target) {
  team.share(n, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) unpack_row(table, tokens[i], target + i * table.cols);
  });
}
