/* Pong: against a paddle that follows the ball, to 21 points. */
#define GAME_HEADER "pong/pong.h"
#define GAME_TYPE Pong
#ifndef GAME_NAME
#define GAME_NAME "pong"
#endif
#define GAME_OBSERVATION float
#define GAME_ACTION float
#define GAME_FEATURES 8
#define GAME_BRANCHES 3
#define GAME_PARTS {"name": "board", "shape": [8]}
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length)
#include "ocean.h"

static void set_up(Pong *env) {
    env->width = 500;
    env->height = 640;
    env->paddle_width = 20;
    env->paddle_height = 70;
    env->ball_width = 32;
    env->ball_height = 32;
    env->paddle_speed = 8;
    env->ball_initial_speed_x = 10;
    env->ball_initial_speed_y = 1;
    env->ball_speed_y_increment = 3;
    env->ball_max_speed_y = 13;
    env->max_score = 21;
    env->frameskip = 8;
    init(env);
}
