// RLtools' memory: say how many of the last ten inputs were 1; only the newest is shown.
#include "rltools/device.h"

#include <rl_tools/rl/environments/memory/operations_generic.h>

#include "rltools/game.h"

#define GAME_NAME "memory"
#define GAME_FEATURES 1
#define GAME_ACTIONS 1
#define GAME_SPACE {"continuous": 1, "low": -1, "high": 1}
#define GAME_STEPS 20
#define GAME_MOST_COPIES 65536
#define GAME_PARTS {"name": "input", "shape": [1], "low": 0, "high": 1}

using Memory = rlt::rl::environments::Memory<rlt::rl::environments::memory::Specification<float, Index>>;
static_assert(Memory::EPISODE_STEP_LIMIT == GAME_STEPS);
using Game = RltoolsGame<Memory>;

#include "gymnasium/guest.h"
