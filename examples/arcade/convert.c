/* Convert: 1,024 agents carry goods from factory to factory; it has no end. */
#define GAME_HEADER "convert/convert.h"
#define GAME_TYPE Convert
#define GAME_NAME "convert"
#define GAME_OBSERVATION float
#define GAME_ACTION int
#define GAME_FEATURES 28
#define GAME_BRANCHES 9, 5
#define GAME_PARTS \
    {"name": "factories", "shape": [8, 2]}, {"name": "self", "shape": [4]}, \
    {"name": "item", "shape": [8], "low": 0, "high": 1}
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length)
#define GAME_AGENTS 1024
#define GAME_COPIES 1
#include "ocean.h"

static void set_up(Convert *env) {
    env->width = 1920;
    env->height = 1080;
    env->num_agents = GAME_AGENTS;
    env->num_factories = 32;
    env->num_resources = 8;
    init(env);
}
