/*
 * Tower climb: move blocks into stairs, and climb to the goal in 60 steps. A guest draws one tower.
 *
 * The search that checks it asks for 400 MB, more than a guest may have, and fills little of that:
 * it gets MOST, and each of its nodes takes several times its share of it elsewhere, so that a
 * search that is too large ends for want of memory before it is through with that.
 */
#include <stdlib.h>

#define MOST ((size_t)48 << 20)

static void *bounded(size_t size) {
    void *room = malloc(size < MOST ? size : MOST);
    if (room == 0) {
        __builtin_trap();
    }
    return room;
}
#define malloc bounded

#define GAME_HEADER "tower_climb/tower_climb.h"
#define GAME_TYPE CTowerClimb
#define GAME_NAME "tower_climb"
#define GAME_OBSERVATION unsigned char
#define GAME_ACTION int
#define GAME_FEATURES 228
#define GAME_BRANCHES 6
#define GAME_PARTS \
    {"name": "sight", "shape": [5, 5, 9], "low": 0, "high": 3}, \
    {"name": "self", "shape": [3], "low": 0, "high": 255}
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length)
/* Its time is up after 60 steps, as the fourth score tells. */
#define GAME_TERMINATED(copy, agent) ((copy)->has_scores && (copy)->scores[3] <= 60.0f)
#define GAME_COPIES 256
#include "ocean.h"

static Level *tower; /* of all copies, as the puzzle */
static PuzzleState *puzzle;

double GetTime(void) { return 0; } /* of raylib */

static void build_tower(void) {
    int goal = rand() % 4 + 5;
    tower = calloc(1, sizeof *tower);
    puzzle = calloc(1, sizeof *puzzle);
    init_level(tower);
    init_puzzle_state(puzzle);
    cy_init_random_level(tower, goal, 15, 10, 0);
    levelToPuzzleState(tower, puzzle);
}

static void set_up(CTowerClimb *env) {
    if (tower == 0) {
        build_tower();
    }
    env->all_levels = tower;
    env->all_puzzles = puzzle;
    env->num_maps = 1;
    env->reward_climb_row = 0.636873185634613f;
    env->reward_fall_row = -0.15898257493972778f;
    env->reward_illegal_move = -0.003928301855921745f;
    env->reward_move_block = 0.235064297914505f;
    init(env);
}
