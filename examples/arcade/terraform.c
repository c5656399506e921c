/* Terraform: a bulldozer levels hills into given squares. */
#define GAME_HEADER "terraform/terraform.h"
#define GAME_TYPE Terraform
#define GAME_NAME "terraform"
#define GAME_OBSERVATION float
#define GAME_ACTION int
#define GAME_FEATURES 319
#define GAME_BRANCHES 5, 5, 3
#define GAME_PARTS \
    {"name": "ground", "shape": [2, 11, 11]}, {"name": "self", "shape": [5]}, \
    {"name": "quarters", "shape": [2, 36]}
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length) \
    SCORE(quadrant_progress)
#define GAME_COPIES 256 /* each takes a millisecond to begin */
#include "ocean.h"

static void set_up(Terraform *env) {
    env->size = 64;
    env->num_agents = GAME_AGENTS;
    env->reward_scale = 0.11f;
    env->reset_frequency = 1024;
    init(env);
}
