/* x86-64 with AVX2, FMA and half-precision conversion: all since 2013 (Intel) and 2015 (AMD). */
#if defined(__x86_64__)
#include "operations.h"

namespace ak {

static bool usable() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

extern const Isa avx2 = table("avx2", usable);

}  // namespace ak
#endif
