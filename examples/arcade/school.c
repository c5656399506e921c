/* School: two armies of 256 ships, tanks and planes over one landscape. */
#define GAME_HEADER "school/school.h"
#define GAME_TYPE School
#define GAME_NAME "school"
#define GAME_OBSERVATION float
#define GAME_ACTION float
#define GAME_FEATURES 39
#define GAME_CONTINUOUS 3
#define GAME_PARTS \
    {"name": "bases", "shape": [2, 3]}, {"name": "centers", "shape": [2, 3]}, \
    {"name": "self", "shape": [19]}, {"name": "unit", "shape": [8], "low": 0, "high": 1}
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length) \
    SCORE(collision_rate) SCORE(oob_rate)
#define GAME_AGENTS 512
#define GAME_COPIES 2
#include "ocean.h"

static void set_up(School *env) {
    env->width = 1920;
    env->height = 1080;
    env->size_x = 2;
    env->size_y = 2;
    env->size_z = 2;
    env->num_agents = GAME_AGENTS;
    env->num_armies = 2;
    init(env);
}
