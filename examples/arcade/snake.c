/* Snake: 256 of them on one board; one that ends begins anew. */
#define GAME_HEADER "snake/snake.h"
#define GAME_TYPE CSnake
#define GAME_NAME "snake"
#define GAME_OBSERVATION char
#define GAME_ACTION int
#define GAME_FEATURES 121
#define GAME_BRANCHES 4
#define GAME_PARTS {"name": "sight", "kind": "grid", "shape": [11, 11], "categories": 8}
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length)
#define GAME_AGENTS 256
#define GAME_COPIES 4
#define GAME_TERMINATED(copy, agent) ((copy)->rewards[agent] == (copy)->env.reward_death)
#include "ocean.h"

static void set_up(CSnake *env) {
    env->width = 640;
    env->height = 360;
    env->num_snakes = GAME_AGENTS;
    env->food = 4096;
    env->vision = 5;
    env->leave_corpse_on_death = true;
    env->reward_food = 0.1f;
    env->reward_corpse = 0.1f;
    env->reward_death = -1.0f;
    env->max_snake_length = 1024;
    env->cell_size = 2;
    init_csnake(env);
}
