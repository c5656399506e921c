/* Blastar: a ship below shoots at one above. Its log starts over before anyone can read it. */
#define GAME_HEADER "blastar/blastar.h"
#define GAME_TYPE Blastar
#define GAME_NAME "blastar"
#define GAME_OBSERVATION float
#define GAME_ACTION int
#define GAME_FEATURES 10
#define GAME_BRANCHES 6
#define GAME_PARTS {"name": "ships", "shape": [10]}
#define GAME_SCORES 
#define GAME_TRUNCATED(copy, agent) false
#include "ocean.h"

static void set_up(Blastar *env) { init(env, GAME_FEATURES); }
