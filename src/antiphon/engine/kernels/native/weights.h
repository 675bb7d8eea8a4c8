/* How packed weights lie in memory.
 *
 * Eight rows are interleaved, so that one vector holds the same four columns of each and a dot product needs no sum
 * across lanes. A tile is eight rows by 32 columns; the tiles of eight rows follow one another along the columns, and
 * rows are filled up to a multiple of eight with zeros. In a tile, "register" j is 32 bytes, byte 4 * r + i belonging to
 * row r:
 *
 *   P8: 8 half d, then registers 0 to 7 of signed bytes q, register j holding columns 4j to 4j+3.      value = d * q
 *   P4: 8 half d, 8 half m, then registers 0 to 3 of nibbles: columns 8j to 8j+3 low and 8j+4 to 8j+7 high.
 *                                                                                                  value = d * q + m
 *   P6: 8 half d of columns 0 to 15, 8 half d of columns 16 to 31, then registers 0 to 3 with the low four bits as in
 *       P4, then 2 registers of the high two bits: bits 2k and 2k+1 of register h are those of columns 16h + 4k to
 *       16h + 4k + 3.                                                                           value = d * (q - 32)
 */
#ifndef ANTIPHON_WEIGHTS_H
#define ANTIPHON_WEIGHTS_H

#include <cstddef>
#include <cstdint>

#include "antiphon_kernels.h"
#include "pool.h"

namespace ak {

constexpr int64_t kTile = 32;  /* columns of a tile */
constexpr int64_t kGroup = 8;  /* rows that are interleaved */
constexpr int64_t kRegister = 32;

constexpr int64_t kP4Scales = 32, kP4Bytes = kP4Scales + 4 * kRegister;
constexpr int64_t kP6Scales = 32, kP6Bytes = kP6Scales + 6 * kRegister;
constexpr int64_t kP8Scales = 16, kP8Bytes = kP8Scales + 8 * kRegister;

constexpr bool is_packed(int format) { return format == AK_P4 || format == AK_P6 || format == AK_P8; }

constexpr int64_t tile_bytes(int format) {
  return format == AK_P4 ? kP4Bytes : format == AK_P6 ? kP6Bytes : format == AK_P8 ? kP8Bytes : 0;
}

/* Where the tiles of the eight rows from `group` * 8 on begin. */
inline const uint8_t* group_data(const ak_weight& weight, int64_t group) {
  return static_cast<const uint8_t*>(weight.data) + group * (weight.cols / kTile) * tile_bytes(weight.format);
}

int packed_format(int ggml_type);
size_t packed_bytes(int format, int64_t rows, int64_t cols);
/* These two are called by all threads of a region, with arguments that were checked. */
void pack(Team& team, int ggml_type, const uint8_t* source, int64_t rows, int64_t cols, uint8_t* target);
void quantize(Team& team, int format, const float* source, int64_t rows, int64_t cols, uint8_t* target);
/* Values of one row, of any format. */
void unpack_row(const ak_weight& weight, int64_t row, float* target);
/* Columns of a row that a block of this type has, and its bytes; 0 for what is not packed. */
int64_t block_columns(int ggml_type);
int64_t block_bytes(int ggml_type);

}  // namespace ak

#endif
