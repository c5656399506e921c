/* Checkers: against moves at random. A game that ends takes its last reward along. */
#define GAME_HEADER "checkers/checkers.h"
#define GAME_TYPE Checkers
#define GAME_NAME "checkers"
#define GAME_OBSERVATION unsigned char
#define GAME_ACTION int
#define GAME_FEATURES 64
#define GAME_BRANCHES 512
#define GAME_PARTS {"name": "board", "shape": [8, 8], "low": 0, "high": 4}
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length) \
    SCORE(winrate)
#define GAME_TERMINATED(copy, agent) ((copy)->has_scores)
#include "ocean.h"

static void set_up(Checkers *env) { env->size = 8; }
