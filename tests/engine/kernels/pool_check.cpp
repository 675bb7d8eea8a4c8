// Has threads share much small work, and checks that each piece was done once and in the right share.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "pool.h"

int main(int, char** arguments) {
  ak::set_threads(std::atoi(arguments[1]));
  std::vector<int64_t> values(100);
  int64_t expected = 0;
  for (int region = 0; region < 3000; region++) {
    int shares = 1 + region % 37;
    ak::run([&](ak::Team& team) {
      int64_t* shared = static_cast<int64_t*>(team.shared_scratch(800));
      for (int s = 0; s < shares; s++) {
        // Each share reads what another thread may have written in the one before.
        team.share(100, 1 + s % 9, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; i++) shared[i] = values[99 - i] + 1;
        });
        team.share(0, 1, [&](int64_t, int64_t) { std::abort(); });
        team.share(100, 7, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; i++) values[i] = shared[99 - i];
        });
      }
    });
    expected += shares;
    for (int64_t value : values)
      if (value != expected) {
        std::printf("region %d: %ld instead of %ld\n", region, static_cast<long>(value), static_cast<long>(expected));
        return 1;
      }
  }
  return 0;
}
