#include "weights.h"

#include <cmath>
#include <cstring>

#include "vec.h"

namespace ak {
namespace {

/* ggml's numbers. */
enum Type { kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ8_0 = 8, kQ4_K = 12, kQ6_K = 14 };

struct TypeInfo {
  int type;
  int format;
  int64_t columns;
  int64_t bytes;
};

constexpr TypeInfo kTypes[] = {
    {kQ4_0, AK_P4, 32, 18}, {kQ4_1, AK_P4, 32, 20},    {kQ5_0, AK_P6, 32, 22},
    {kQ8_0, AK_P8, 32, 34}, {kQ4_K, AK_P4, 256, 144}, {kQ6_K, AK_P6, 256, 210},
};

const TypeInfo* info(int ggml_type) {
  for (const TypeInfo& type : kTypes)
    if (type.type == ggml_type) return &type;
  return nullptr;
}

/* 32 columns of one row: values are scale[half] * (q - offset of the format) + minimum. */
struct Piece {
  uint16_t scale[2];
  uint16_t minimum;
  uint8_t q[32];
};

uint16_t load_half(const uint8_t* p) {
  uint16_t h;
  memcpy(&h, p, 2);
  return h;
}

void read_nibbles(const uint8_t* p, uint8_t* q) {
  for (int i = 0; i < 16; i++) {
    q[i] = p[i] & 15;
    q[i + 16] = p[i] >> 4;
  }
}

/* The six-bit scale and minimum of 32 columns of a Q4_K block. */
void read_k_scale(const uint8_t* p, int j, int* scale, int* minimum) {
  if (j < 4) {
    *scale = p[j] & 63;
    *minimum = p[j + 4] & 63;
  } else {
    *scale = (p[j + 4] & 15) | (p[j - 4] >> 6 << 4);
    *minimum = (p[j + 4] >> 4) | (p[j] >> 6 << 4);
  }
}

void read_piece(int type, const uint8_t* row, int64_t number, Piece* piece) {
  const TypeInfo& t = *info(type);
  const uint8_t* block = row + number * kTile / t.columns * t.bytes;
  int j = static_cast<int>(number % (t.columns / kTile));
  piece->minimum = 0;
  switch (type) {
    case kQ4_0: {
      piece->scale[0] = load_half(block);
      piece->minimum = float_to_half(-8.0f * half_to_float(piece->scale[0]));
      read_nibbles(block + 2, piece->q);
      break;
    }
    case kQ4_1: {
      piece->scale[0] = load_half(block);
      piece->minimum = load_half(block + 2);
      read_nibbles(block + 4, piece->q);
      break;
    }
    case kQ5_0: { /* d * (q - 16) */
      piece->scale[0] = piece->scale[1] = load_half(block);
      uint32_t high;
      memcpy(&high, block + 2, 4);
      read_nibbles(block + 6, piece->q);
      for (int i = 0; i < 32; i++) piece->q[i] = static_cast<uint8_t>((piece->q[i] | (high >> i & 1) << 4) + 16);
      break;
    }
    case kQ8_0: {
      piece->scale[0] = load_half(block);
      memcpy(piece->q, block + 2, 32);
      break;
    }
    case kQ4_K: { /* nibbles of two times 32 columns share 32 bytes */
      int scale, minimum;
      read_k_scale(block + 4, j, &scale, &minimum);
      piece->scale[0] = float_to_half(half_to_float(load_half(block)) * static_cast<float>(scale));
      piece->minimum = float_to_half(-half_to_float(load_half(block + 2)) * static_cast<float>(minimum));
      const uint8_t* p = block + 16 + j / 2 * 32;
      for (int i = 0; i < 32; i++) piece->q[i] = j % 2 ? p[i] >> 4 : p[i] & 15;
      break;
    }
    case kQ6_K: { /* of each 128 columns, four times 32 share 64 bytes of low and 32 of high bits */
      const uint8_t* low = block + j / 4 * 64 + j % 2 * 32;
      const uint8_t* high = block + 128 + j / 4 * 32;
      const int8_t* scales = reinterpret_cast<const int8_t*>(block + 192) + 2 * j;
      float d = half_to_float(load_half(block + 208));
      for (int h = 0; h < 2; h++) piece->scale[h] = float_to_half(d * static_cast<float>(scales[h]));
      for (int i = 0; i < 32; i++) {
        int nibble = j % 4 / 2 ? low[i] >> 4 : low[i] & 15;
        piece->q[i] = static_cast<uint8_t>(nibble | (high[i] >> 2 * (j % 4) & 3) << 4);
      }
      break;
    }
  }
}

/* The low four bits of 32 values of row r, as P4 and P6 have them. */
void write_nibbles(const uint8_t* q, int r, uint8_t* registers) {
  for (int j = 0; j < 4; j++)
    for (int i = 0; i < 4; i++)
      registers[j * kRegister + 4 * r + i] =
          static_cast<uint8_t>((q[8 * j + i] & 15) | (q[8 * j + 4 + i] & 15) << 4);
}

void write_piece(int format, const Piece& piece, int r, uint8_t* tile) {
  memcpy(tile + 2 * r, &piece.scale[0], 2);
  switch (format) {
    case AK_P4:
      memcpy(tile + 16 + 2 * r, &piece.minimum, 2);
      write_nibbles(piece.q, r, tile + kP4Scales);
      break;
    case AK_P6:
      memcpy(tile + 16 + 2 * r, &piece.scale[1], 2);
      write_nibbles(piece.q, r, tile + kP6Scales);
      for (int h = 0; h < 2; h++)
        for (int i = 0; i < 4; i++) {
          int bits = 0;
          for (int k = 0; k < 4; k++) bits |= piece.q[16 * h + 4 * k + i] >> 4 << 2 * k;
          tile[kP6Scales + (4 + h) * kRegister + 4 * r + i] = static_cast<uint8_t>(bits);
        }
      break;
    case AK_P8:
      for (int j = 0; j < 8; j++) memcpy(tile + kP8Scales + j * kRegister + 4 * r, piece.q + 4 * j, 4);
      break;
  }
}

/* Has `read(row, number, piece)` read each 32 columns of each row, and writes them where they belong. */
template <class Read>
void write_all(Team& team, int format, int64_t rows, int64_t cols, uint8_t* target, const Read& read) {
  int64_t tiles = cols / kTile, size = tile_bytes(format);
  team.share((rows + kGroup - 1) / kGroup, 8, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; group++)
      for (int64_t t = 0; t < tiles; t++) {
        uint8_t* tile = target + (group * tiles + t) * size;
        if ((group + 1) * kGroup > rows) memset(tile, 0, static_cast<size_t>(size));
        for (int64_t r = 0; r < kGroup && group * kGroup + r < rows; r++) {
          Piece piece;
          read(group * kGroup + r, t, &piece);
          write_piece(format, piece, static_cast<int>(r), tile);
        }
      }
  });
}

/* A scale that half precision can hold: with a larger one values would be infinite. */
uint16_t scale_to_half(float d) { return float_to_half(d < 65504.0f ? d : 65504.0f); }

int nearest(float x, int lowest, int highest) {
  if (!(x > static_cast<float>(lowest))) return lowest; /* and what is no number */
  return x < static_cast<float>(highest) ? static_cast<int>(lrintf(x)) : highest;
}

void quantize_p8(const float* x, Piece* piece) {
  float largest = 0;
  for (int i = 0; i < 32; i++) largest = fmaxf(largest, fabsf(x[i]));
  piece->scale[0] = scale_to_half(largest / 127.0f);
  float d = half_to_float(piece->scale[0]), inverse = d > 0 ? 1.0f / d : 0.0f;
  for (int i = 0; i < 32; i++) piece->q[i] = static_cast<uint8_t>(nearest(x[i] * inverse, -127, 127));
}

void quantize_p4(const float* x, Piece* piece) {
  float lowest = x[0], highest = x[0];
  for (int i = 1; i < 32; i++) {
    lowest = fminf(lowest, x[i]);
    highest = fmaxf(highest, x[i]);
  }
  piece->minimum = float_to_half(fminf(fmaxf(lowest, -65504.0f), 65504.0f));
  float m = half_to_float(piece->minimum);
  piece->scale[0] = scale_to_half(fmaxf(highest - m, 0.0f) / 15.0f);
  float d = half_to_float(piece->scale[0]), inverse = d > 0 ? 1.0f / d : 0.0f;
  for (int i = 0; i < 32; i++) piece->q[i] = static_cast<uint8_t>(nearest((x[i] - m) * inverse, 0, 15));
}

void unpack_packed(const ak_weight& weight, int64_t row, float* target) {
  const uint8_t* tile = group_data(weight, row / kGroup);
  int r = static_cast<int>(row % kGroup);
  for (int64_t t = 0; t < weight.cols / kTile; t++, tile += tile_bytes(weight.format), target += kTile) {
    float d = half_to_float(load_half(tile + 2 * r)), second = half_to_float(load_half(tile + 16 + 2 * r));
    const uint8_t* p = tile + 32 + 4 * r;
    switch (weight.format) {
      case AK_P4:
        for (int c = 0; c < 32; c++) {
          int byte = p[c / 8 * kRegister + c % 4];
          target[c] = d * static_cast<float>(c & 4 ? byte >> 4 : byte & 15) + second;
        }
        break;
      case AK_P6:
        for (int c = 0; c < 32; c++) {
          int byte = p[c / 8 * kRegister + c % 4], high = p[(4 + c / 16) * kRegister + c % 4] >> c % 16 / 4 * 2 & 3;
          int q = (c & 4 ? byte >> 4 : byte & 15) | high << 4;
          target[c] = (c < 16 ? d : second) * static_cast<float>(q - 32);
        }
        break;
      case AK_P8:
        for (int c = 0; c < 32; c++)
          target[c] = d * static_cast<float>(static_cast<int8_t>(tile[kP8Scales + c / 4 * kRegister + 4 * r + c % 4]));
        break;
    }
  }
}

}  // namespace

int packed_format(int ggml_type) {
  const TypeInfo* type = info(ggml_type);
  return type == nullptr ? -1 : type->format;
}

int64_t block_columns(int ggml_type) {
  const TypeInfo* type = info(ggml_type);
  return type == nullptr ? 0 : type->columns;
}

int64_t block_bytes(int ggml_type) {
  const TypeInfo* type = info(ggml_type);
  return type == nullptr ? 0 : type->bytes;
}

size_t packed_bytes(int format, int64_t rows, int64_t cols) {
  if (!is_packed(format) || rows < 1 || cols < 1 || cols % kTile != 0) return 0;
  return static_cast<size_t>((rows + kGroup - 1) / kGroup * (cols / kTile) * tile_bytes(format));
}

void pack(Team& team, int ggml_type, const uint8_t* source, int64_t rows, int64_t cols, uint8_t* target) {
  int64_t row_bytes = cols / block_columns(ggml_type) * block_bytes(ggml_type);
  write_all(team, packed_format(ggml_type), rows, cols, target, [&](int64_t row, int64_t number, Piece* piece) {
    read_piece(ggml_type, source + row * row_bytes, number, piece);
  });
}

void quantize(Team& team, int format, const float* source, int64_t rows, int64_t cols, uint8_t* target) {
  write_all(team, format, rows, cols, target, [&](int64_t row, int64_t number, Piece* piece) {
    const float* x = source + row * cols + number * kTile;
    piece->minimum = 0;
    format == AK_P8 ? quantize_p8(x, piece) : quantize_p4(x, piece);
  });
}

void unpack_row(const ak_weight& weight, int64_t row, float* target) {
  const char* data = static_cast<const char*>(weight.data);
  int64_t cols = weight.cols;
  switch (weight.format) {
    case AK_F32:
      memcpy(target, data + row * cols * 4, static_cast<size_t>(cols) * 4);
      break;
    case AK_F16:
    case AK_BF16: {
      const uint16_t* p = reinterpret_cast<const uint16_t*>(data) + row * cols;
      bool half = weight.format == AK_F16;
      for (int64_t i = 0; i < cols; i++) target[i] = half ? half_to_float(p[i]) : bf16_to_float(p[i]);
      break;
    }
    default:
      unpack_packed(weight, row, target);
  }
}

}  // namespace ak
