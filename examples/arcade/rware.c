/* Warehouse: eight agents bring shelves to the counter and back; it has no end. */
#define GAME_HEADER "rware/rware.h"
#define GAME_TYPE CRware
#define GAME_NAME "rware"
#define GAME_OBSERVATION float
#define GAME_ACTION int
#define GAME_FEATURES 27
#define GAME_BRANCHES 5
#define GAME_PARTS {"name": "self", "shape": [3]}, {"name": "sight", "shape": [8, 3]}
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length)
#define GAME_AGENTS 8
#define GAME_COPIES 128
#include "ocean.h"

static void set_up(CRware *env) {
    env->width = 1280;
    env->height = 640;
    env->map_choice = 2;
    env->num_agents = GAME_AGENTS;
    env->num_requested_shelves = 8;
    env->grid_square_size = 64;
    env->reward_type = 1;
    init(env);
}
