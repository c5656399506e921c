/* Common pool: eight agents live on food that grows beside food. */
#define GAME_HEADER "cpr/cpr.h"
#define GAME_TYPE CCpr
#define GAME_NAME "cpr"
#define GAME_OBSERVATION unsigned char
#define GAME_ACTION int
#define GAME_FEATURES 49
#define GAME_BRANCHES 5
#define GAME_PARTS {"name": "sight", "shape": [7, 7], "low": 0, "high": 255}
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(moves) SCORE(alive_steps)
#define GAME_AGENTS 8
#define GAME_COPIES 128
#define GAME_PRESENT(copy, agent) ((copy)->env.agents[agent].hp > 0)
#define GAME_TRUNCATED(copy, agent) ((copy)->env.tick == 0)
#include "ocean.h"

static void set_up(CCpr *env) {
    env->width = 32;
    env->height = 32;
    env->num_agents = GAME_AGENTS;
    env->vision = 3;
    env->reward_food = 0.1f;
    env->interactive_food_reward = 0.2f;
    env->reward_move = 0.0f;
    env->food_base_spawn_rate = 2e-3f;
    init_ccpr(env);
}
