/* Cartpole: keep a pole upright on a cart, for 200 steps at most. */
#define GAME_HEADER "cartpole/cartpole.h"
#define GAME_TYPE Cartpole
#ifndef GAME_NAME
#define GAME_NAME "cartpole"
#endif
#define GAME_OBSERVATION float
#define GAME_ACTION float
#define GAME_FEATURES 4
#define GAME_BRANCHES 2
#define GAME_PARTS {"name": "body", "shape": [4]}
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_length) \
    SCORE(x_threshold_termination) SCORE(pole_angle_termination) SCORE(max_steps_termination)
#include "ocean.h"

static void set_up(Cartpole *env) { init(env); }
