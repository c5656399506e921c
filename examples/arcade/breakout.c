/* Breakout: 108 bricks, and five balls to clear them with. */
#define GAME_HEADER "breakout/breakout.h"
#define GAME_TYPE Breakout
#ifndef GAME_NAME
#define GAME_NAME "breakout"
#endif
#define GAME_OBSERVATION float
#define GAME_ACTION float
#define GAME_FEATURES 118
#define GAME_BRANCHES 3
#define GAME_PARTS \
    {"name": "game", "shape": [10]}, \
    {"name": "bricks", "kind": "grid", "shape": [6, 18, 1], "low": 0, "high": 1}
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length)
#include "ocean.h"

static void set_up(Breakout *env) {
    env->frameskip = 4;
    env->width = 576;
    env->height = 330;
    env->paddle_width = 62;
    env->paddle_height = 8;
    env->ball_width = 32;
    env->ball_height = 32;
    env->brick_width = 32;
    env->brick_height = 12;
    env->brick_rows = 6;
    env->brick_cols = 18;
    init(env);
}
