// Runs the kernels on every instruction set of this processor, and compares them with plain sums.
//
// Prints the sets that passed. What is only slightly off is a matter of order; exact sums of whole
// numbers make that less than 1e-5 of the largest.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "antiphon_kernels.h"

namespace {

uint32_t state = 1;

uint32_t bits() { return (state = state * 1664525u + 1013904223u) >> 8; }

float number() { return static_cast<float>(bits() % 2001) / 1000.0f - 1.0f; }

std::vector<float> numbers(size_t n) {
  std::vector<float> values(n);
  for (float& value : values) value = number();
  return values;
}

void* memory(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }

void require(bool condition, const char* what) {
  if (condition) return;
  std::printf("%s: %s\n", ak_isa(), what);
  std::exit(1);
}

ak_weight make(int format, int64_t rows, int64_t cols) {
  ak_weight weight{format, rows, cols, nullptr, nullptr};
  if (format == AK_P6) {
    std::vector<uint8_t> blocks(static_cast<size_t>(rows * cols / 32 * 22));
    for (size_t i = 0; i < blocks.size(); i++)
      blocks[i] = i % 22 == 0 ? 0 : i % 22 == 1 ? 0x2C : static_cast<uint8_t>(bits()); /* d = 1/16 */
    void* data = memory(ak_packed_bytes(format, rows, cols));
    require(ak_pack(6, blocks.data(), rows, cols, data) == 0, "pack");
    weight.data = data;
    return weight;
  }
  std::vector<float> values = numbers(static_cast<size_t>(rows * cols));
  if (format == AK_F32) {
    void* data = memory(values.size() * 4);
    memcpy(data, values.data(), values.size() * 4);
    weight.data = data;
    return weight;
  }
  void* data = memory(ak_packed_bytes(format, rows, cols));
  require(ak_quantize(format, values.data(), rows, cols, data) == 0, "quantize");
  weight.data = data;
  return weight;
}

/* Inputs that are multiples of their block's largest / 127, so that quantising them loses nothing. */
std::vector<float> inputs(int64_t m, int64_t cols) {
  std::vector<float> x(static_cast<size_t>(m * cols));
  for (size_t i = 0; i < x.size(); i++)
    x[i] = i % 32 == 5 ? -127.0f : static_cast<float>(static_cast<int>(bits() % 255) - 127);
  return x;
}

void check_linear(int format) {
  constexpr int64_t m = 7, rows = 21, cols = 96;
  ak_weight weight = make(format, rows, cols);
  std::vector<float> x = inputs(m, cols), y(m * rows), alone(rows), row(cols);
  require(ak_linear(&weight, x.data(), m, y.data()) == 0, "linear");
  for (int64_t r = 0; r < rows; r++) {
    require(ak_unpack_row(&weight, r, row.data()) == 0, "unpack");
    for (int64_t i = 0; i < m; i++) {
      double sum = 0, largest = 0;
      for (int64_t k = 0; k < cols; k++) {
        sum += static_cast<double>(row[k]) * x[i * cols + k];
        largest += std::fabs(static_cast<double>(row[k]) * x[i * cols + k]);
      }
      require(std::fabs(sum - y[i * rows + r]) <= 1e-5 * largest, "a product is off");
    }
  }
  for (int64_t i = 0; i < m; i++) {
    ak_linear(&weight, x.data() + i * cols, 1, alone.data());
    require(memcmp(alone.data(), &y[i * rows], rows * 4) == 0, "a row depends on others");
  }
}

void check_gated() {
  constexpr int64_t n = 21;
  std::vector<float> x = numbers(2 * n), y(n);
  for (int activation = 0; activation < 2; activation++) {
    require(ak_gated(x.data(), 1, n, activation, y.data()) == 0, "gated");
    for (int64_t i = 0; i < n; i++) {
      double g = x[i], silu = g / (1 + std::exp(-g));
      double gelu = 0.5 * g * (1 + std::tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)));
      require(std::fabs((activation ? gelu : silu) * x[n + i] - y[i]) < 1e-5, "a gate is off");
    }
  }
}

/* A small decoder: a prompt at once and token by token. */
void check_forward(int format) {
  constexpr int hidden = 64, ffn = 96, heads = 4, kv_heads = 2, size = 16, vocab = 50, n = 21;
  std::vector<float> ones(hidden, 1.0f), inv_freq = {1.0f, 0.3f, 0.1f, 0.03f, 0.01f, 0.003f, 0.001f, 0.0003f};
  ak_layer layers[2];
  for (ak_layer& layer : layers)
    layer = {make(format, heads * size, hidden), make(format, kv_heads * size, hidden),
             make(format, kv_heads * size, hidden), make(format, hidden, heads * size), make(format, ffn, hidden),
             make(format, ffn, hidden), make(format, hidden, ffn), ones.data(), ones.data(), nullptr, nullptr, 1, 0};
  std::vector<uint16_t> cache(2 * 2 * 2 * kv_heads * size * AK_BLOCK);
  ak_weight table = make(AK_P8, vocab, hidden);
  ak_decoder decoder{2, hidden, ffn, heads, kv_heads, size, size, 0, 1e-5f, 0.25f, 1, 1, 1, 1, inv_freq.data(), layers,
                     table, table, ones.data(), cache.data(), 2};
  std::vector<int32_t> tokens(n), rows(n);
  for (int i = 0; i < n; i++) tokens[i] = static_cast<int32_t>(bits() % vocab), rows[i] = i;
  const int32_t blocks[2] = {1, 0};
  std::vector<float> whole(n * vocab), one(vocab);
  ak_segment segment{0, n, 0, 0, blocks};
  ak_batch batch{n, tokens.data(), &segment, 1, rows.data(), n};
  require(ak_forward(&decoder, &batch, whole.data(), nullptr) == 0, "forward");
  float largest = 0;
  for (float score : whole) largest = std::fmax(largest, std::fabs(score));
  require(std::isfinite(largest) && largest > 0, "scores make no sense");
  for (int i = 0; i < n; i++) {
    segment = {0, 1, i, 0, blocks};
    batch = {1, &tokens[i], &segment, 1, rows.data(), 1};
    require(ak_forward(&decoder, &batch, one.data(), nullptr) == 0, "forward");
    require(memcmp(one.data(), &whole[i * vocab], vocab * 4) == 0, "a token depends on its batch");
  }
}

}  // namespace

int main() {
  ak_set_threads(2);
  for (int i = 0; i < ak_num_isas(); i++) {
    if (!ak_isa_usable(i)) continue;
    ak_use_isa(ak_isa_name(i));
    for (int format : {AK_P4, AK_P6, AK_P8, AK_F32}) check_linear(format);
    check_gated();
    for (int format : {AK_P4, AK_P6, AK_P8}) check_forward(format);
    std::printf("%s\n", ak_isa());
  }
  return 0;
}
