/* Tetris: on a board of 10 by 20, with a look at three blocks and one to hold. */
#define GAME_HEADER "tetris/tetris.h"
#define GAME_TYPE Tetris
#define GAME_NAME "tetris"
#define GAME_OBSERVATION float
#define GAME_ACTION int
#define GAME_FEATURES 234
#define GAME_BRANCHES 7
#define GAME_PARTS \
    {"name": "board", "shape": [20, 10]}, {"name": "game", "shape": [6]}, \
    {"name": "deck", "shape": [4, 7], "low": 0, "high": 1}
#define GAME_SCORES SCORE(score) SCORE(perf) SCORE(ep_length) SCORE(ep_return) SCORE(avg_combo) \
    SCORE(lines_deleted) SCORE(atn_frac_soft_drop) SCORE(atn_frac_hard_drop) \
    SCORE(atn_frac_rotate)
#include "ocean.h"

static void set_up(Tetris *env) {
    env->n_rows = 20;
    env->n_cols = 10;
    env->deck_size = 3;
    init(env);
}
