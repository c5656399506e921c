/* Connect Four: against an opponent that looks three moves ahead. */
#define GAME_HEADER "connect4/connect4.h"
#define GAME_TYPE CConnect4
#define GAME_NAME "connect4"
#define GAME_OBSERVATION float
#define GAME_ACTION int
#define GAME_FEATURES 42
#define GAME_BRANCHES 7
/* The rows of this grid are the columns that pieces fall into. */
#define GAME_PARTS \
    {"name": "board", "kind": "grid", "shape": [7, 6, 1], "low": -1, "high": 1, \
     "choices": {"are": "rows"}}
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length)
#define GAME_ENDS_LATE
#define GAME_MASKED(copy, agent, branch, choice)                                                  \
    invalid_move(choice, (copy)->env.player_pieces | (copy)->env.env_pieces)
#include "ocean.h"

static void set_up(CConnect4 *env) { init(env); }
