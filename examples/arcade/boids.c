/* Boids: 64 birds keep their distance; it has no end. */
#define GAME_HEADER "boids/boids.h"
#define GAME_TYPE Boids
#define GAME_NAME "boids"
#define GAME_OBSERVATION float
#define GAME_ACTION float
#define GAME_FEATURES 256
#define GAME_BRANCHES 5, 5
#define GAME_PARTS {"name": "flock", "shape": [64, 4]}
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length)
#define GAME_AGENTS 64
#define GAME_COPIES 16
#define GAME_VALUE(branch, choice) (((float)(choice) - 2.0f) / 4.0f)
#include "ocean.h"

/* Of raylib: there is no keyboard and no mouse. */
bool IsKeyDown(int key) {
    (void)key;
    return false;
}
int GetMouseX(void) { return 0; }
int GetMouseY(void) { return 0; }

static void set_up(Boids *env) {
    env->num_boids = GAME_AGENTS;
    env->report_interval = 128;
    env->avoid_factor = 1.0f;
    env->matching_factor = 1.0f;
    init(env);
}
