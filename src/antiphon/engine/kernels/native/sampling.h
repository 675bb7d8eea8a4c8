/* Drawing a token from the scores of a vocabulary.
 *
 * Weights are e^((score - largest) / temperature), so that the likeliest token's is 1. They are drawn from by walking
 * along them in the order of the tokens' numbers until their sum passes a random part of the whole. Filters decide first
 * which weights take part; they sort nothing.
 */
#ifndef ANTIPHON_SAMPLING_H
#define ANTIPHON_SAMPLING_H

/* Tokens whose weights are summed up as one. */
constexpr int64_t CHUNK = 64;

struct Candidate {
  float weight;
  int32_t token;
};

/* Likelier tokens first, lower numbers before higher ones. `weight` may be a score as well. */
struct Likelier {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.weight > b.weight || (a.weight == b.weight && a.token < b.token);
  }
};

/* What is kept between two draws of a thread, to spare it the allocation. */
struct SamplingScratch {
  std::vector<float> weights;
  std::vector<double> sums;
  std::vector<Candidate> candidates;
};

/* What is not a number is impossible; what is infinite is very likely. */
AK_INLINE v8f clean(v8f score) {
  score = score == score ? score : v8_set(-INFINITY);
  return v8_min(score, v8_set(3.402823466e38f));
}

/* Eight scores from `token` on, impossible ones beyond the vocabulary. */
AK_INLINE v8f scores_at(const float* scores, int64_t token, int64_t vocab) {
  if (token + 8 <= vocab) return clean(v8_load(scores + token));
  float rest[8];
  for (int i = 0; i < 8; i++) rest[i] = token + i < vocab ? scores[token + i] : -INFINITY;
  return clean(v8_load(rest));
}

/* A number in [0, 1) that depends on the seed and the draw's number alone: SplitMix64's sequence from a hashed seed. */
static double uniform(uint64_t seed, uint64_t position) {
  const auto mix = [](uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  };
  const uint64_t golden = 0x9E3779B97F4A7C15u;
  return (double)(mix(mix(seed + golden) + (position + 1) * golden) >> 11) * 0x1p-53;
}

static float largest_score(const float* scores, int64_t vocab) {
  v8f a = v8_set(-INFINITY), b = a;
  int64_t t = 0;
  for (; t + 16 <= vocab; t += 16) {
    a = v8_max(a, clean(v8_load(scores + t)));
    b = v8_max(b, clean(v8_load(scores + t + 8)));
  }
  for (; t < vocab; t += 8) a = v8_max(a, scores_at(scores, t, vocab));
  return v8_largest(v8_max(a, b));
}

/* The first token of a score that one is known to have. */
static int32_t first_of(const float* scores, int64_t vocab, float score) {
  for (int64_t t = 0; t < vocab; t += 8) {
    const v8f here = scores_at(scores, t, vocab);
    if (v8_largest(here) != score) continue;
    for (int i = 0; i < 8; i++)
      if (here[i] == score) return (int32_t)(t + i);
  }
  return -1;
}

static bool is_adjusted(const ak_sampling& s) {
  return s.allowed != nullptr || s.num_biased > 0 ||
         (s.num_counted > 0 && (s.presence_penalty != 0 || s.frequency_penalty != 0));
}

/* Scores with the mask, penalties and biases applied. */
static void adjust(const float* scores, int64_t vocab, const ak_sampling& s, float* target) {
  if (s.allowed == nullptr) {
    memcpy(target, scores, sizeof(float) * vocab);
  } else {
    for (int64_t word = 0, t = 0; t < vocab; word++, t += 32) {
      const int n = (int)std::min<int64_t>(32, vocab - t);
      const uint32_t bits = s.allowed[word];
      if (bits == 0xFFFFFFFFu)
        memcpy(target + t, scores + t, sizeof(float) * n);
      else if (bits == 0)
        std::fill_n(target + t, n, -INFINITY);
      else
        for (int i = 0; i < n; i++) target[t + i] = bits >> i & 1 ? scores[t + i] : -INFINITY;
    }
  }
  if (s.presence_penalty != 0 || s.frequency_penalty != 0)
    for (int i = 0; i < s.num_counted; i++)
      if (s.counted[i] >= 0 && s.counted[i] < vocab)
        target[s.counted[i]] -= s.presence_penalty + s.frequency_penalty * (float)s.counts[i];
  for (int i = 0; i < s.num_biased; i++)
    if (s.biased[i] >= 0 && s.biased[i] < vocab) target[s.biased[i]] += s.biases[i];
}

/* Weights, filled up to whole chunks, and the sums of chunks. `scores` and `weights` may be the same. Returns the sum
 * of all. */
static double weights_of(const float* scores, int64_t vocab, float largest, float factor, float* weights,
                         double* sums) {
  double total = 0;
  const v8f shift = v8_set(largest), by = v8_set(factor);
  for (int64_t chunk = 0, t = 0; t < vocab; chunk++) {
    v8f sum = v8_set(0.0f);
    for (const int64_t end = t + CHUNK; t < end; t += 8) {
      const v8f weight = t < vocab ? v8_exp_or_zero((scores_at(scores, t, vocab) - shift) * by) : v8_set(0.0f);
      v8_store(weights + t, weight);
      sum = sum + weight;
    }
    sums[chunk] = v8_sum(sum);
    total += sums[chunk];
  }
  return total;
}

/* Walks along all weights. */
static int32_t draw(const float* weights, const double* sums, int64_t vocab, double target) {
  int64_t chunk = 0, last = 0;
  for (const int64_t chunks = (vocab + CHUNK - 1) / CHUNK; chunk < chunks; chunk++) {
    if (sums[chunk] <= 0) continue;
    last = chunk;
    if (target < sums[chunk]) break;
    target -= sums[chunk];
  }
  /* Where rounding takes the walk past the end, the last token with any weight is it. */
  int32_t token = -1;
  for (int64_t t = last * CHUNK; t < (last + 1) * CHUNK; t++) {
    if (weights[t] <= 0) continue;
    token = (int32_t)t;
    if (target < weights[t]) break;
    target -= weights[t];
  }
  return token;
}

/* Tokens of at least a weight, in the order of their numbers. Returns the sum of their weights. */
static double collect(const float* weights, int64_t vocab, float least, std::vector<Candidate>& candidates) {
  candidates.resize((size_t)vocab);
  size_t count = 0;
  double mass = 0;
  for (int64_t t = 0; t < vocab; t += 8) {
    if (v8_largest(v8_load(weights + t)) < least) continue;
    for (int64_t i = t; i < t + 8; i++) {
      if (weights[i] < least || weights[i] <= 0) continue;
      candidates[count++] = {weights[i], (int32_t)i};
      mass += weights[i];
    }
  }
  candidates.resize(count);
  return mass;
}

/* Leaves the fewest of the likeliest candidates that reach a number, or a mass if it is not `by_count`; of equal ones
 * the first. At least one is left, and their order stays.
 *
 * The bits of positive floats are in the order of their values, so that the weight of the last one to be left is found
 * ten bits at a time, by what falls to each value of the ten: that takes linear time, unlike sorting. */
static void leave_likeliest(std::vector<Candidate>& candidates, bool by_count, double target) {
  const auto bits_of = [](float weight) {
    uint32_t bits;
    memcpy(&bits, &weight, sizeof bits);
    return bits;
  };
  uint32_t last = 0; /* its first bits; the very first two are 0 for weights up to 1 */
  double before = 0; /* what those above come to */
  for (int shift = 20; shift >= 0; shift -= 10) {
    double amounts[1024] = {0};
    for (const Candidate& c : candidates) {
      const uint32_t bits = bits_of(c.weight) >> shift;
      if (bits >> 10 == last) amounts[bits & 1023] += by_count ? 1.0 : c.weight;
    }
    uint32_t chosen = 0;
    double above = before;
    for (int i = 1023; i >= 0 && above < target; i--) {
      if (amounts[i] == 0) continue;
      chosen = i;
      before = above;
      above += amounts[i];
    }
    last = last << 10 | chosen;
  }
  size_t count = 0;
  for (const Candidate& c : candidates) {
    const uint32_t bits = bits_of(c.weight);
    if (bits < last || (bits == last && before >= target)) continue;
    if (bits == last) before += by_count ? 1.0 : c.weight;
    candidates[count++] = c;
  }
  candidates.resize(count);
}

/* Draws from what the filters leave. */
static int32_t draw_filtered(const ak_sampling& s, int64_t vocab, double total, SamplingScratch& scratch) {
  const float* weights = scratch.weights.data();
  std::vector<Candidate>& candidates = scratch.candidates;
  const bool by_rank = s.top_k > 0 && s.top_k < vocab, by_mass = s.top_p < 1.0f;
  const auto mass_of = [&] {
    double mass = 0;
    for (const Candidate& c : candidates) mass += c.weight;
    return mass;
  };

  if (!by_rank && !by_mass) {
    collect(weights, vocab, std::min(s.min_p, 1.0f), candidates);
  } else {
    /* Above a threshold lies all that can be left. Scores are rarely so flat that the first one is too high. */
    for (float least = 1e-3f;; least = 0) {
      const double mass = collect(weights, vocab, least, candidates);
      if (least == 0 || (by_rank ? (int64_t)candidates.size() >= s.top_k : mass >= s.top_p * total)) break;
    }
    if (by_rank && s.top_k < (int64_t)candidates.size()) leave_likeliest(candidates, true, s.top_k);
    if (by_mass) leave_likeliest(candidates, false, s.top_p * (by_rank ? mass_of() : total));
  }

  /* The likeliest stays whatever min_p is. */
  const float least = std::min(s.min_p, 1.0f);
  double mass = 0;
  for (const Candidate& c : candidates)
    if (c.weight >= least) mass += c.weight;
  double target = uniform(s.seed, s.position) * mass;
  int32_t token = -1;
  for (const Candidate& c : candidates) {
    if (c.weight < least) continue;
    token = c.token;
    if (target < c.weight) break;
    target -= c.weight;
  }
  return token;
}

/* The log-probabilities of a token and of the likeliest ones, before any setting. Places that no possible token is left
 * for are given to token -1. */
static void report(const float* scores, int64_t vocab, int32_t token, int32_t num_top, SamplingScratch& scratch,
                   float* logprob, int32_t* top_tokens, float* top_logprobs) {
  const float largest = largest_score(scores, vocab);
  const double total = weights_of(scores, vocab, largest, 1.0f, scratch.weights.data(), scratch.sums.data());
  const double log_total = std::log(total);
  const auto logprob_of = [&](float score) { return (float)((double)score - largest - log_total); };
  if (token >= 0) *logprob = logprob_of(std::min(scores[token], 3.402823466e38f));

  std::vector<Candidate>& top = scratch.candidates;
  top.clear();
  float least = -INFINITY; /* what a score must exceed; of equal ones the first stay */
  for (int64_t t = 0; num_top > 0 && t < vocab; t += 8) {
    const v8f here = scores_at(scores, t, vocab);
    if (!(v8_largest(here) > least)) continue;
    for (int i = 0; i < 8; i++) {
      if (!(here[i] > least)) continue;
      if ((int32_t)top.size() == num_top) top.pop_back();
      const Candidate candidate = {here[i], (int32_t)(t + i)};
      top.insert(std::upper_bound(top.begin(), top.end(), candidate, Likelier()), candidate);
      if ((int32_t)top.size() == num_top) least = top.back().weight;
    }
  }
  for (int32_t i = 0; i < num_top; i++) {
    const bool there = i < (int32_t)top.size();
    top_tokens[i] = there ? top[i].token : -1;
    top_logprobs[i] = there ? logprob_of(top[i].weight) : -INFINITY;
  }
}

static int32_t sample(const float* logits, int64_t vocab, const ak_sampling& s, float* logprob, int32_t* top_tokens,
                      float* top_logprobs) {
  static thread_local SamplingScratch scratch;
  const size_t chunks = (size_t)((vocab + CHUNK - 1) / CHUNK);
  if (scratch.sums.size() < chunks) {
    scratch.sums.resize(chunks);
    scratch.weights.resize(chunks * CHUNK);
  }
  float* weights = scratch.weights.data();

  const float* scores = logits;
  if (is_adjusted(s)) {
    adjust(logits, vocab, s, weights);
    scores = weights;
  }
  const float largest = largest_score(scores, vocab);
  int32_t token = -1;
  if (largest == -INFINITY) {
    /* Nothing is allowed. */
  } else if (!(s.temperature >= 1e-4f) || s.top_k == 1 || s.top_p <= 0) {
    token = first_of(scores, vocab, largest);
  } else {
    const double total = weights_of(scores, vocab, largest, 1.0f / s.temperature, weights, scratch.sums.data());
    if (s.top_p < 1 || s.min_p > 0 || (s.top_k > 0 && s.top_k < vocab))
      token = draw_filtered(s, vocab, total, scratch);
    else
      token = draw(weights, scratch.sums.data(), vocab, uniform(s.seed, s.position) * total);
  }
  if (s.num_top >= 0) report(logits, vocab, token, s.num_top, scratch, logprob, top_tokens, top_logprobs);
  return token;
}

#endif
