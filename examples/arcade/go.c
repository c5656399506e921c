/* Go: on a board of 7 by 7, against an opponent that takes what it can. */
#define GAME_HEADER "go/go.h"
#define GAME_TYPE CGo
#define GAME_NAME "go"
#define GAME_OBSERVATION float
#define GAME_ACTION int
#define GAME_FEATURES 100
#define GAME_BRANCHES 50
#define GAME_COPIES 256 /* the masks of full boards are 3.6 kB each, and a batch may have 1 MiB */
#define GAME_PARTS \
    {"name": "board", "kind": "grid", "shape": [7, 7, 2], "low": 0, "high": 1, \
     "choices": {"are": "cells", "first": 1}}, \
    {"name": "game", "shape": [2]}
/* The game has all points of its own stones before those of the other's: here they are channels. */
#define GAME_PLACE(number) ((number) < 98 ? (number) % 2 * 49 + (number) / 2 : (number))
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length)
#define GAME_TERMINATED(copy, agent) ((copy)->has_scores)
/* Choice 0 passes, and the others put a stone on a point. */
#define GAME_MASKED(copy, agent, branch, choice) \
    ((choice) > 0 && is_forbidden(&(copy)->env, (choice) - 1))
struct CGo;
static int is_forbidden(struct CGo *env, int point);
#include "ocean.h"

static void set_up(CGo *env) {
    env->width = 950;
    env->height = 64 * 8;
    env->grid_size = 7;
    env->board_width = 600;
    env->board_height = 600;
    env->grid_square_size = 600 / 9;
    env->komi = 7.5f;
    env->last_capture_position = -1;
    env->reward_move_pass = -0.6026362603175613f;
    env->reward_move_invalid = -0.5393516480382454f;
    env->reward_player_capture = 0.42122681325442923f;
    env->reward_opponent_capture = -0.3152783593705354f;
    init(env);
}

/* True for a point that is taken, and for one where a stone would have no liberty and take none. */
static int is_forbidden(CGo *env, int point) {
    if (env->board_states[point] != 0) {
        return true;
    }
    for (int i = 0; i < NUM_DIRECTIONS; i++) {
        int x = point % env->grid_size + DIRECTIONS[i][0];
        int y = point / env->grid_size + DIRECTIONS[i][1];
        if (is_valid_position(env, x, y)) {
            int beside = y * env->grid_size + x, color = env->board_states[beside];
            int liberties = color == 0 ? 1 : env->groups[find(env->groups, beside)].liberties;
            if (color == 0 || (color == 1 ? liberties > 1 : liberties == 1)) {
                return false;
            }
        }
    }
    return true;
}
