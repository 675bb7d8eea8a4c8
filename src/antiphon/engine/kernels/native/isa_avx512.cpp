/* x86-64 with AVX-512's dot products of bytes, in vectors of 256 bits: longer ones slow many processors down. */
#if defined(__x86_64__)
#include "operations.h"

namespace ak {

static bool usable() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
         __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

extern const Isa avx512 = table("avx512", usable);

}  // namespace ak
#endif
