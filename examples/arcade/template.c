/* Template: the smallest game, of which others are made: go left or right to the goal. */
#define GAME_HEADER "template/template.h"
#define GAME_TYPE Template
#define GAME_NAME "template"
#define GAME_OBSERVATION unsigned char
#define GAME_ACTION int
#define GAME_FEATURES 1
#define GAME_BRANCHES 2
#define GAME_PARTS {"name": "goal", "shape": [1], "low": 0, "high": 255}
#define GAME_SCORES SCORE(score)
#include "ocean.h"

static void set_up(Template *env) { env->size = 5; }
