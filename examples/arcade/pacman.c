/* Pacman: eat 244 dots, and no ghost but the frightened ones. */
#define GAME_HEADER "pacman/pacman.h"
#define GAME_TYPE PacmanEnv
#define GAME_NAME "pacman"
#define GAME_OBSERVATION float
#define GAME_ACTION int
#define GAME_FEATURES 291
#define GAME_BRANCHES 4
#define GAME_PARTS \
    {"name": "player", "shape": [11]}, {"name": "ghosts", "shape": [4, 9]}, \
    {"name": "dots", "shape": [244], "low": 0, "high": 1}
#define GAME_SCORES SCORE(score) SCORE(episode_return) SCORE(episode_length)
#include "ocean.h"

static void set_up(PacmanEnv *env) {
    env->randomize_starting_position = true;
    env->max_start_timeout = 49;
    env->frightened_time = 35;
    env->max_mode_changes = 6;
    env->scatter_mode_length = 70;
    env->chase_mode_length = 140;
    init(env);
}
