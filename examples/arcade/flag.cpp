// RLtools' flag: visit two flags in order, which are shown in the first step only.
#ifdef __wasm__
// The original tells of a state that there is not, and ends its process; a guest traps.
namespace std {
struct Silence {
    template <typename Any> const Silence &operator<<(const Any &) const { return *this; }
};
constexpr Silence cout, endl;
[[noreturn]] inline void exit(int) { __builtin_trap(); }
} // namespace std
#else
#include <iostream>
#endif

#include "rltools/device.h"

#include <rl_tools/rl/environments/flag/operations_generic.h>

#include "rltools/game.h"

#define GAME_NAME "flag"
#define GAME_FEATURES 11
#define GAME_ACTIONS 2
#define GAME_SPACE {"continuous": 2, "low": -1, "high": 1}
#define GAME_STEPS 200
#define GAME_COPIES 256
#define GAME_MOST_COPIES 65536
/* A flag is found by chance in one episode of three: large minibatches of whole episodes. */
#define GAME_CONFIG                                                                             \
    "{\"arkml\":{\"sequence_length\":256,\"rollout_rows\":65536,\"batch_size\":16384,"          \
    "\"epochs\":4,\"gamma\":0.985,\"entropy_coefficient\":0.003,\"noise\":\"white\"}}"
#define GAME_PARTS                                                                              \
    {"name": "position", "shape": [2], "low": 0, "high": 10},                                   \
    {"name": "velocity", "shape": [2], "low": -5, "high": 5},                                   \
    {"name": "visited", "shape": [3], "low": -1, "high": 1},                                    \
    {"name": "flags", "shape": [4], "low": -1, "high": 10}

using Flag = rlt::rl::environments::Flag<rlt::rl::environments::flag::Specification<float, Index>>;
static_assert(Flag::EPISODE_STEP_LIMIT == GAME_STEPS);
using Game = RltoolsGame<Flag>;

#include "gymnasium/guest.h"
