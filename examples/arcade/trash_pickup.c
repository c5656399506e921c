/* Trash pickup: eight agents carry 40 pieces of trash to two bins. */
#define GAME_HEADER "trash_pickup/trash_pickup.h"
#define GAME_TYPE CTrashPickupEnv
#define GAME_NAME "trash_pickup"
#define GAME_OBSERVATION char
#define GAME_ACTION int
#define GAME_FEATURES 605
#define GAME_BRANCHES 4
#define GAME_PARTS {"name": "sight", "shape": [5, 11, 11], "low": 0, "high": 1}
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length) \
    SCORE(trash_collected)
#define GAME_AGENTS 8
#define GAME_COPIES 128
#include "ocean.h"

static void set_up(CTrashPickupEnv *env) {
    env->grid_size = 20;
    env->num_agents = GAME_AGENTS;
    env->num_trash = 40;
    env->num_bins = 2;
    env->max_steps = 500;
    env->agent_sight_range = 5;
    initialize_env(env);
}
