/* Triple Triad: select a card, place it, and turn those of the opponent. */
#define GAME_HEADER "tripletriad/tripletriad.h"
#define GAME_TYPE CTripleTriad
#define GAME_NAME "tripletriad"
#define GAME_OBSERVATION float
#define GAME_ACTION int
#define GAME_FEATURES 114
#define GAME_BRANCHES 14
#define GAME_PARTS \
    {"name": "board", "shape": [3, 3], "low": -1, "high": 1}, \
    {"name": "taken", "shape": [15], "low": 0, "high": 1}, {"name": "selected", "shape": [2]}, \
    {"name": "score", "shape": [2]}, {"name": "cards", "shape": [3, 3, 4]}, \
    {"name": "hands", "shape": [2, 5, 4]}, {"name": "places", "shape": [2, 5]}
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length)
#define GAME_ENDS_LATE
#define GAME_MASKED(copy, agent, branch, choice) ((copy)->env.action_masks[choice] != 0)
#include "ocean.h"

static void set_up(CTripleTriad *env) {
    env->width = 990;
    env->height = 690;
    env->card_width = 192;
    env->card_height = 224;
    init_ctripletriad(env);
}
