/* Grid: find the way out of a maze, one of 64 of up to 47 by 47. */
#define GAME_HEADER "grid/grid.h"
#define GAME_TYPE Grid
#define GAME_NAME "grid"
#define GAME_OBSERVATION unsigned char
#define GAME_ACTION float
#define GAME_FEATURES 121
#define GAME_BRANCHES 5
#define GAME_PARTS {"name": "sight", "shape": [11, 11], "low": 0, "high": 255}
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length)
#include "ocean.h"

#define MOST 47
#define MAPS 64

static State *levels; /* of all copies */

static void draw_levels(Grid *env) {
    levels = calloc(MAPS, sizeof *levels);
    for (int i = 0; i < MAPS; i++) {
        int size = 5 + rand() % (MOST - 5);
        float difficulty = (float)rand() / (float)RAND_MAX;
        size -= size % 2 == 0;
        create_maze_level(env, size, size, difficulty, i);
        init_state(&levels[i], MOST, 1);
        get_state(env, &levels[i]);
    }
}

static void set_up(Grid *env) {
    env->max_size = MOST;
    env->num_maps = MAPS;
    init_grid(env);
    if (levels == 0) {
        draw_levels(env);
    }
    env->levels = levels;
}
