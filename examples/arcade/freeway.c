/* Freeway: cross ten lanes of cars, one of eight levels. */
#define GAME_HEADER "freeway/freeway.h"
#define GAME_TYPE Freeway
#define GAME_NAME "freeway"
#define GAME_OBSERVATION float
#define GAME_ACTION int
#define GAME_FEATURES 34
#define GAME_BRANCHES 3
#define GAME_PARTS {"name": "self", "shape": [4]}, {"name": "cars", "shape": [10, 3]}
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length) \
    SCORE(up_action_frac) SCORE(hits)
#include "ocean.h"

static void set_up(Freeway *env) {
    env->frameskip = 4;
    env->width = 1216;
    env->height = 720;
    env->player_width = 64;
    env->player_height = 64;
    env->car_width = 64;
    env->car_height = 40;
    env->lane_size = 64;
    env->level = -1;
    env->use_dense_rewards = 1;
    env->env_randomization = 1;
    init(env);
}
