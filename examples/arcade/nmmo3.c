/* Neural MMO 3: 128 players gather, fight and trade; it has no end. */
#define GAME_HEADER "nmmo3/nmmo3.h"
#define GAME_TYPE MMO
#define GAME_NAME "nmmo3"
#define GAME_OBSERVATION unsigned char
#define GAME_ACTION int
#define GAME_FEATURES 1707
#define GAME_BRANCHES 26
#define GAME_PARTS \
    {"name": "sight", "shape": [11, 15, 10], "low": 0, "high": 255}, \
    {"name": "self", "shape": [57], "low": 0, "high": 255}
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length) \
    SCORE(return_comb_lvl) SCORE(return_prof_lvl) SCORE(return_death) SCORE(min_comb_prof) \
    SCORE(purchases) SCORE(sales)
#define GAME_AGENTS 128
#define GAME_COPIES 1
#include "ocean.h"

static void set_up(MMO *env) {
    env->width = 256;
    env->height = 256;
    env->num_players = GAME_AGENTS;
    env->num_enemies = 256;
    env->num_resources = 256;
    env->num_weapons = 128;
    env->num_gems = 64;
    env->tiers = 5;
    env->levels = 40;
    env->teleportitis_prob = 0.001f;
    env->enemy_respawn_ticks = 2;
    env->item_respawn_ticks = 100;
    env->x_window = 7;
    env->y_window = 5;
    env->reward_combat_level = 1.0f;
    env->reward_prof_level = 1.0f;
    env->reward_item_level = 1.0f;
    env->reward_death = -1.0f;
    init(env);
}
