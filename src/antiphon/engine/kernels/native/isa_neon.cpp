/* 64-bit ARM with dot products of bytes: ARMv8.2 and later. */
#if defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>
#endif

#include "operations.h"

namespace ak {

static bool usable() {
#if defined(__linux__)
  constexpr unsigned long kHalves = 1ul << 10, kDotProducts = 1ul << 20; /* HWCAP_ASIMDHP, HWCAP_ASIMDDP */
  return (getauxval(AT_HWCAP) & (kHalves | kDotProducts)) == (kHalves | kDotProducts);
#else
  return true; /* Apple's have them */
#endif
}

extern const Isa neon = table("neon", usable);

}  // namespace ak
#endif
