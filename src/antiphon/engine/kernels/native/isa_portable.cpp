/* Any processor: what the compiler makes of plain loops. */
#include "operations.h"

namespace ak {

static bool usable() { return true; }

extern const Isa portable = table("portable", usable);

}  // namespace ak
