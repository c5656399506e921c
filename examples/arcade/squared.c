/* Squared: walk to the target on a board of 11 by 11 before the time is up. */
#define GAME_HEADER "squared/squared.h"
#define GAME_TYPE Squared
#define GAME_NAME "squared"
#define GAME_OBSERVATION unsigned char
#define GAME_ACTION int
#define GAME_FEATURES 121
#define GAME_BRANCHES 5
#define GAME_PARTS {"name": "board", "shape": [11, 11], "low": 0, "high": 2}
/* To leave the board loses at once, to stand still loses later. Without a large bonus for entropy
   agents learn to stand still where they have not found the way to a target. */
#define GAME_CONFIG "{\"arkml\":{\"entropy_coefficient\":0.05}}"
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length)
#include "ocean.h"

static void set_up(Squared *env) { env->size = 11; }
