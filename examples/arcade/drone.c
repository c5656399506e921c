/* Drone: fly a quadrotor through five targets. */
#define GAME_HEADER "drone/drone.h"
#define GAME_TYPE Drone
#define GAME_NAME "drone"
#define GAME_OBSERVATION float
#define GAME_ACTION float
#define GAME_FEATURES 16
#define GAME_CONTINUOUS 4
#define GAME_PARTS \
    {"name": "target", "shape": [3]}, {"name": "position", "shape": [3]}, \
    {"name": "attitude", "shape": [4]}, {"name": "speed", "shape": [3]}, \
    {"name": "spin", "shape": [3]}
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length)
#include "ocean.h"

static void set_up(Drone *env) {
    env->n_targets = 5;
    env->moves_left = 1000;
    init(env);
}
