/* Enduro: pass 200 cars a day, by any weather. */
#define GAME_HEADER "enduro/enduro.h"
#define GAME_TYPE Enduro
#define GAME_NAME "enduro"
#define GAME_OBSERVATION float
#define GAME_ACTION int
#define GAME_FEATURES 68
#define GAME_BRANCHES 9
#define GAME_PARTS {"name": "road", "shape": [68]}
#define GAME_SCORES SCORE(perf) SCORE(score) SCORE(episode_return) SCORE(episode_length) \
    SCORE(reward) SCORE(step_rew_car_passed_no_crash) SCORE(crashed_penalty) SCORE(passed_cars) \
    SCORE(passed_by_enemy) SCORE(cars_to_pass) SCORE(days_completed) SCORE(days_failed) \
    SCORE(collisions_player_vs_car) SCORE(collisions_player_vs_road)
#define GAME_TERMINATED(copy, agent) ((copy)->env.tracking_episode_length == 0)
#define GAME_TRUNCATED(copy, agent) false /* it also logs a day that was won */
#include "ocean.h"

static void set_up(Enduro *env) {
    env->seed = rand();
    env->rng_state = (unsigned int)env->seed;
    env->max_enemies = 10;
    init(env);
}
