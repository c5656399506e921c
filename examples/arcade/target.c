/* Target: eight agents fly to four goals, which move when they are reached; it has no end. */
#define GAME_HEADER "target/target.h"
#define GAME_TYPE Target
#define GAME_NAME "target"
#define GAME_OBSERVATION float
#define GAME_ACTION int
#define GAME_FEATURES 28
#define GAME_BRANCHES 9, 5
#define GAME_PARTS \
    {"name": "goals", "shape": [4, 2]}, {"name": "others", "shape": [8, 2]}, \
    {"name": "self", "shape": [4]}
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length)
#define GAME_AGENTS 8
#define GAME_COPIES 128
#include "ocean.h"

static void set_up(Target *env) {
    env->width = 1080;
    env->height = 720;
    env->num_agents = GAME_AGENTS;
    env->num_goals = 4;
    init(env);
}
