/* All operations and their table, for the instruction set that the including file is compiled for.
 *
 * They lie in an unnamed namespace: each set has its own. The linker keeps one copy of what the standard library's
 * templates make of themselves; compile.py links the sets in an order that makes it one that every processor can run.
 */
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "isa.h"
#include "vec.h"
#include "weights.h"

namespace ak {
namespace {

#include "dot.h"
#include "linear.h"
#include "ops.h"
#include "attention.h"
#include "sampling.h"
#include "forward.h"

constexpr Isa table(const char* name, bool (*usable)()) {
  return {name, usable, linear, embed, rms_norm, rope, gated, write_cache, attend, forward, sample};
}

}  // namespace
}  // namespace ak
