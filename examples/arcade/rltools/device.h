// RLtools' device for WebAssembly, with the machine's square root. Its own one nears a root in a
// loop, which does not end for some floats.
#include <math.h>

#include <rl_tools/operations/wasm32.h>

namespace rl_tools::math {
inline float sqrt(const devices::math::WASM32 &, float x) { return sqrtf(x); }
} // namespace rl_tools::math
